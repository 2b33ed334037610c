"""What `durability = "strict"` waits for: the word of a disk, or of a replica, that a write lasts.

Pure: it says what to send and reads the answers; `frontier` sends. A store's log is one line, so a write of our own,
the mark, comes after whatever an answer rests on. It is needed because WAITAOF waits for what *this connection* wrote:
a repeat that finds everything done writes nothing, and would be answered before the first try is on any disk.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from shared import errors

Command = tuple[Any, ...]

ANSWER_S = 0.4  # "not yet" must come before the socket's own time-out, and a store looks at its waits every 0.1 s
# WAITAOF is believed only where each write is synced before it is answered. With everysec, Valkey up to 9.1.2 and Redis
# 7.4 say yes at their next turn, synced or not (redis/redis#13793; seen with strace: 8 yeses, one fdatasync).
OR_REPLICA = "or attach a replica"
ALWAYS_ADVICE = f"set `appendfsync always`, {OR_REPLICA}"
POLICY_ADVICE = f"give it `+config|get`, {OR_REPLICA}"
DISK_ADVICE = f"start it with `appendonly yes` and `appendfsync always` (Redis 7.2 or later, or Valkey), {OR_REPLICA}"
REPLICA_ADVICE = (
    f"it has no WAITAOF: use Redis 7.2 or later or Valkey with `appendonly yes` and `appendfsync always`, {OR_REPLICA}"
)


class Question(NamedTuple):
    """What is asked of a server that has just been written to."""

    of: str
    """Who answers."""
    command: Command
    least: tuple[int, ...]
    """What each number of the answer must be, or more."""

    def check(self, answer: Any) -> None:
        """Raise StoreUnavailable unless the answer says that everything before it lasts."""
        if isinstance(answer, Exception):
            raise errors.StoreUnavailable(f"redis: {self.command[0]}: {answer}")
        numbers = answer if isinstance(answer, list) else [answer]
        if any(number < least for number, least in zip(numbers, self.least, strict=True)):
            raise errors.StoreUnavailable(f"redis: {self.of} has not confirmed a write in time")


@dataclass(frozen=True, slots=True)
class Witness:
    """Who confirms that a write lasts, and how it is asked."""

    mark: str
    """A key that is written for the sake of writing."""
    question: Question

    def seal(self) -> tuple[Command, Command]:
        """What ends a pipeline whose commands must last; the answer to the second is for `question.check`."""
        return ("SET", self.mark, ""), self.question.command


def disk(*, call_s: float) -> Question:
    """The server's own append-only file, synced."""
    return Question("the append-only file", ("WAITAOF", 1, 0, _wait_ms(call_s)), (1, 0))


def replicas(*, call_s: float, count: int = 1) -> Question:
    """The memory of so many replicas."""
    return Question("a replica", ("WAIT", count, _wait_ms(call_s)), (count,))


def refused(why: str, advice: str) -> errors.ConfigError:
    """The store cannot keep what `strict` promises."""
    return errors.ConfigError(f'durability = "strict" cannot be kept by this store: {why}; {advice}')


def _wait_ms(call_s: float) -> int:
    return max(1, round(1000 * max(call_s - ANSWER_S, call_s / 2)))
