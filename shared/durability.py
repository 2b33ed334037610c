"""What `durability = "strict"` waits for: the word of a disk, or of a replica, that a write lasts.

Pure: it says what to send and reads the answers; `frontier` sends. A store's log is one line, so a write of our own,
the mark, comes after whatever an answer rests on. It is needed because WAITAOF waits for what *this connection* wrote:
a repeat that finds everything done writes nothing, and would be answered before the first try is on any disk.
"""

from dataclasses import dataclass
from typing import Any

from shared import errors

Command = tuple[Any, ...]

ANSWER_S = 0.4  # "not yet" must come before the socket's own time-out, and a store looks at its waits every 0.1 s
DISK_ADVICE = "start it with `appendonly yes` (Redis 7.2 or later, or Valkey)"
REPLICA_ADVICE = "it has no WAITAOF: use Redis 7.2 or later or Valkey with `appendonly yes`, or attach a replica"


@dataclass(frozen=True, slots=True)
class Witness:
    """Who confirms that a write lasts, and how it is asked."""

    name: str
    mark: str
    """A key that is written for the sake of writing."""
    question: Command

    def seal(self) -> tuple[Command, Command]:
        """What ends a pipeline whose commands must last; the answer to the second is for `check`."""
        return ("SET", self.mark, ""), self.question

    def check(self, answer: Any) -> None:
        """Raise StoreUnavailable unless the answer says that everything before it lasts."""
        if isinstance(answer, Exception):
            raise errors.StoreUnavailable(f"redis: {self.question[0]}: {answer}")
        confirmed = answer[0] if isinstance(answer, list) else answer
        if confirmed < 1:
            raise errors.StoreUnavailable(f"redis: {self.name} has not confirmed a write in time")


def disk(mark: str, *, call_s: float) -> Witness:
    """The store's own append-only file, synced."""
    return Witness("the append-only file", mark, ("WAITAOF", 1, 0, _wait_ms(call_s)))


def replica(mark: str, *, call_s: float) -> Witness:
    """The memory of one replica, for a store that cannot tell when its file is synced."""
    return Witness("a replica", mark, ("WAIT", 1, _wait_ms(call_s)))


def refused(why: str, advice: str) -> errors.ConfigError:
    """The store cannot keep what `strict` promises."""
    return errors.ConfigError(f'durability = "strict" cannot be kept by this store: {why}; {advice}')


def _wait_ms(call_s: float) -> int:
    return max(1, round(1000 * max(call_s - ANSWER_S, call_s / 2)))
