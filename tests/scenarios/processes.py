"""One process in virtual time: what it knows, its two clocks, what is on; and the calls that it has under way."""

from dataclasses import dataclass, field
from typing import Any

from node import ownership
from shared import agreement, records
from tests.scenarios import model_etcd


@dataclass
class Message:
    """A call on its way to etcd."""

    at: float
    process: "Process"
    generation: int
    call: agreement.Call
    sent: model_etcd.Sent
    answer_s: float
    answered: bool = True


@dataclass
class Process:
    """One process of an id, and the two clocks of its machine."""

    slot: int
    name: str
    label: str
    rate: float
    down_until: float
    state: agreement.State
    owner: ownership.Ownership
    frozen_until: float = 0.0
    slept_s: float = 0.0
    """Lost by the boot clock: it stood still with the machine."""
    stepped_s: float = 0.0
    """By which the wall clock is wrong."""
    inbox: list[tuple[float, Any]] = field(default_factory=list)
    cut: dict[str, float] = field(default_factory=dict)
    visits: dict[str, tuple[float, ownership.Held]] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)
    leaving: list[tuple[float, ownership.Held]] = field(default_factory=list)
    why: dict[str, str] = field(default_factory=dict)
    round_s: float = 0.0
    """When it looks through the index again."""
    lease: int = 0
    last_told: str = ""
    generation: int = 0
    """Of the process: answers to one that was restarted are lost."""

    def boot_s(self, t: float) -> float:
        return (t - self.slept_s) * self.rate

    def wall_s(self, t: float) -> float:
        return t + self.stepped_s


@dataclass
class Claimed:
    site: str
    epoch: int
    record: records.SiteRecord | None
