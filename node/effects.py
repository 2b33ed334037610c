"""What `ownership` wants done, as values: the runner carries it out, in order.

Pure. Times are boot seconds.
"""

from dataclasses import dataclass

from node.holding import Held
from shared import records, ring


@dataclass(frozen=True, slots=True)
class ReadArcs:
    """Read the index of these arcs and tell which sites there are (`found`)."""

    arcs: tuple[ring.Arc, ...]
    overridden: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Claim:
    """Claim (or read again) these sites in the store, each under its `claim_epoch`; answer each with `claimed`."""

    sites: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ready:
    """The site has something to do at `at_s`."""

    site: str
    at_s: float
    priority: int


@dataclass(frozen=True, slots=True)
class Abandon:
    """These sites are lost with a visit on: let it end within `stop_s`, then reset it."""

    sites: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Everything lost up to this epoch is stopped and committed."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """Nothing of the lost incarnation is on any more."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Released:
    """These sites are held no more, lost or making room: nothing is to be remembered of them."""

    sites: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Moved:
    """A site came from another tenure: one entry of the handoff log."""

    held: Held
    cause: records.Cause
    settled_by: records.Settled
    record: records.SiteRecord


Effect = ReadArcs | Claim | Ready | Abandon | Acknowledge | Stopped | Released | Moved
