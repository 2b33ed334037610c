"""Rules for a relay: which messages on a node's way to its stores are lost, late, repeated or cut."""

import json
import random
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

Channel = Literal[
    "any",  # every call to etcd
    "keepalive",
    "confirm",
    "propose",
    "join",
    "resign",
    "leave",
    "weigh",
    "look",
    "lease",
    "watch",
    "other",
    "redis",
]
Deed = Literal[
    "drop",  # the request is not delivered, nothing is answered; of a stream: nothing comes back any more
    "lose",  # the request is delivered, its answer is not
    "delay",  # request and answer are each late by lo_s to hi_s, whether or not anybody still waits
    "repeat",  # delivered, answered, and delivered once more lo_s to hi_s later
    "reset",  # a connection to Redis ends with an error
]


@dataclass(frozen=True, slots=True)
class Rule:
    channel: Channel
    deed: Deed
    lo_s: float = 0.0
    hi_s: float = 0.0
    share: float = 1.0
    """Of the messages that meet it."""

    def meets(self, channel: str) -> bool:
        return self.channel == channel or (self.channel == "any" and channel != "redis")

    def seconds(self, rng: random.Random) -> float:
        return rng.uniform(self.lo_s, self.hi_s)


class Handle:
    """The harness's end of one relay: every change is one new file in the place of the old."""

    def __init__(self, control: Path) -> None:
        self.control = control
        self._held: dict[str, tuple[Rule, ...]] = {}

    def set(self, by: str, *wanted: Rule) -> None:
        """From now on these rules of `by`, and no others of it."""
        self._held[by] = wanted
        self._write()

    def clear(self, by: str | None = None) -> None:
        """No more rules of `by`, or of anybody."""
        if by is None:
            self._held.clear()
        else:
            self._held.pop(by, None)
        self._write()

    def _write(self) -> None:
        write(self.control, (rule for held in list(self._held.values()) for rule in held))


def write(control: Path, wanted: Iterable[Rule]) -> None:
    fresh = control.with_name(f"{control.name}.new")
    fresh.write_text(json.dumps([asdict(rule) for rule in wanted]))
    fresh.replace(control)


def read(control: Path) -> tuple[Rule, ...]:
    try:
        return tuple(Rule(**fields) for fields in json.loads(control.read_text()))
    except FileNotFoundError:
        return ()
