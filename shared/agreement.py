"""The values of the membership protocol: what is read, what happened, what to do, and what a process knows.

Pure values; the rules over them are in `views`. Times are seconds on one machine's boot clock. An epoch is one
integer, generation * 2**40 + etcd revision, so that epochs compare as (generation, revision).
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from shared import records

GENERATION_STEP = 1 << 40
SLACK = 1.002  # every wait between two machines' clocks is this much longer
UNKNOWN = ("", 0)  # the elder that stands for whoever acted before the first view of a generation
REVISIONS_KEPT = 256  # at a look every 0.1 s or slower this is more than VL + G


class Phase(enum.StrEnum):
    """Where this process stands; a line each."""

    OUT = "out"  # no key of ours in etcd; a join is wanted
    MEMBER = "member"  # our key is there as far as we know
    DRAINING = "draining"  # member that wants to leave: weight 0, then gone
    STOPPING = "stopping"  # the key is gone: everything must stop, then resign
    RESTING = "resting"  # resigned; joins again after a while
    LEFT = "left"  # drained and gone for good


@dataclass(frozen=True, slots=True)
class Settings:
    """Seconds, as in `config.Membership`."""

    view_lease_s: float = 5.0
    wire_s: float = 2.25
    confirm_s: float = 1.0
    gather_s: float = 1.0
    rejoin_s: float = 30.0
    lease_ttl_s: float = 10.0
    look_s: float = 1.0
    hurry_s: float = 0.1

    @property
    def silence_s(self) -> float:
        """VL + G: after so long a silent owner can reach no site any more."""
        return (self.view_lease_s + self.wire_s) * SLACK


@dataclass(frozen=True, slots=True)
class SeenMember:
    """A member key as read."""

    incarnation: int
    lease: int
    value: records.MemberValue


@dataclass(frozen=True, slots=True)
class SeenBeat:
    """A beat as read, with the revision that wrote it."""

    revision: int
    beat: records.Beat


@dataclass(frozen=True, slots=True)
class Mine:
    """What a write of ours rests on: our key, and the view that we hold.

    Revisions alone are no names. An etcd that went back gives them out again, to another process or another view; then
    the lease of the key, and the view itself, still tell them apart.
    """

    node: str
    incarnation: int
    lease: int
    view_bytes: bytes = b""
    """As it stood in etcd; empty: none was there."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One linearizable read of the whole prefix."""

    cluster_id: int
    revision: int
    view: records.View | None = None
    epoch: int = 0
    members: Mapping[str, SeenMember] = field(default_factory=dict)
    beats: Mapping[int, SeenBeat] = field(default_factory=dict)
    overrides: Mapping[str, str] = field(default_factory=dict)
    rejoin: Mapping[str, float] = field(default_factory=dict)
    strange: tuple[str, ...] = ()
    """Keys whose values could not be read."""
    view_bytes: bytes = b""
    """The view as it stands in etcd."""


# --- what happened --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Our member key was created."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Exists:
    """The member key is another's."""


@dataclass(frozen=True, slots=True)
class Looked:
    """A read was answered; `chain` holds the views between ours and the read one, oldest first, None if unreadable."""

    incarnation: int
    floor: int
    """Highest revision this node had seen when it asked."""
    snapshot: Snapshot
    chain: tuple[tuple[int, records.View], ...] | None = ()


@dataclass(frozen=True, slots=True)
class Confirmed:
    """etcd committed our beat. Times are those of the sending."""

    incarnation: int
    epoch: int
    sent_s: float
    sent_wall_s: float = 0.0
    revision: int = 0
    floor: int = 0
    """Highest revision this node had seen when it asked."""
    cluster_id: int = 0


@dataclass(frozen=True, slots=True)
class Denied:
    """A conditional write found something changed. It went through consensus, so its `revision` cannot be stale."""

    kind: str
    incarnation: int = 0
    revision: int = 0
    floor: int = 0
    """Highest revision this node had seen when it asked."""
    cluster_id: int = 0


@dataclass(frozen=True, slots=True)
class Outdated:
    """The store holds a tenure of a later epoch than the view we hold."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Hint:
    """Something may have changed: look now. A watch is never more than this."""


@dataclass(frozen=True, slots=True)
class Gone:
    """A keep-alive was answered with TTL 0: the lease is no more."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Done:
    """A call of this kind was answered, and says nothing else."""

    kind: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A call of this kind was not answered in time; it may still take effect."""

    kind: str


@dataclass(frozen=True, slots=True)
class Applied:
    """What was lost up to this epoch is stopped and committed."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """After the key was lost: nothing of this incarnation is in flight any more."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Drain:
    """The operator wants this node to leave."""


Event = (
    Tick
    | Joined
    | Exists
    | Looked
    | Confirmed
    | Denied
    | Outdated
    | Hint
    | Gone
    | Done
    | Failed
    | Applied
    | Stopped
    | Drain
)

# --- what to do -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Join:
    kind = "join"


@dataclass(frozen=True, slots=True)
class KeepAlive:
    kind = "keepalive"


@dataclass(frozen=True, slots=True)
class Look:
    kind = "look"


@dataclass(frozen=True, slots=True)
class Confirm:
    """If the member key is ours and the view is at `epoch`: put the beat naming `applied`."""

    epoch: int
    applied: int
    kind = "confirm"


@dataclass(frozen=True, slots=True)
class Propose:
    """If the view is at `epoch`, our key is ours, no member key was put since `revision`: put the view, drop beats."""

    view: records.View
    epoch: int
    revision: int
    drop_beats: tuple[int, ...] = ()
    kind = "propose"


@dataclass(frozen=True, slots=True)
class Resign:
    """Write *resigned* to the beat of this incarnation."""

    incarnation: int
    kind = "resign"


@dataclass(frozen=True, slots=True)
class Weigh:
    """Put our member key again with weight 0."""

    kind = "weigh"


@dataclass(frozen=True, slots=True)
class Leave:
    """In one transaction: delete our member key, write *resigned*."""

    incarnation: int
    epoch: int
    kind = "leave"


@dataclass(frozen=True, slots=True)
class Adopt:
    """For the owner of sites: the views from the one held to the newest; `whole` is False where some are unknown."""

    views: tuple[tuple[int, records.View], ...]
    whole: bool
    incarnation: int


@dataclass(frozen=True, slots=True)
class Settle:
    """For the owner of sites: every earlier incarnation is past `epoch`; how, by node id."""

    epoch: int
    how: Mapping[str, records.Settled]


@dataclass(frozen=True, slots=True)
class StopAll:
    """For the owner of sites: this incarnation owns nothing any more."""

    incarnation: int
    reason: str


Call = Join | KeepAlive | Look | Confirm | Propose | Resign | Weigh | Leave
Effect = Call | Adopt | Settle | StopAll


@dataclass(frozen=True, slots=True)
class State:
    """All this process knows of the agreement."""

    me: str
    value: records.MemberValue
    settings: Settings
    phase: Phase = Phase.OUT
    incarnation: int = 0
    epoch: int = 0
    view: records.View | None = None
    applied: int = 0
    deadline_s: float = float("-inf")
    wall_deadline_s: float = float("-inf")
    transfer_s: float = float("-inf")
    """As `deadline_s`, but a newer view does not end it: what is in flight on a kept site may go on."""
    wall_transfer_s: float = float("-inf")
    confirmed_s: float = float("-inf")
    settled: int = 0
    cluster_id: int = 0
    revision: int = 0
    generation: int = 0
    generation_seen_s: float = float("inf")
    revisions: tuple[tuple[int, float], ...] = ()
    busy: frozenset[str] = frozenset()
    next_confirm_s: float = float("-inf")
    next_look_s: float = float("-inf")
    next_keepalive_s: float = float("-inf")
    differs_s: float | None = None
    adopted_s: float = float("-inf")
    behind_s: float | None = None
    """Since when reads have been behind what this node has seen; None while they are not."""
    next_join_s: float = float("-inf")
    outdated: tuple[int, float] = (0, float("inf"))
    """Latest epoch that the store has shown us beyond ours, and when."""
    lost_s: float = float("-inf")
    lost_incarnation: int = 0
    stopped: bool = True
    draining: bool = False
    exists_s: float | None = None
    """Since when another process has held our id; None while nobody does."""

    @property
    def member(self) -> bool:
        """Our key is in etcd as far as we know."""
        return self.phase in (Phase.MEMBER, Phase.DRAINING)

    @property
    def waiting(self) -> bool:
        """Some earlier incarnation may not be past the newest view yet."""
        return self.settled < self.epoch


def epoch_of(generation: int, revision: int) -> int:
    return generation * GENERATION_STEP + revision


def revision_of(epoch: int) -> int:
    return epoch % GENERATION_STEP


def has_authority(state: State, now_s: float, wall_s: float) -> bool:
    """Rule 3: may this process contact its sites now? A forward jump of the wall clock ends authority too."""
    return now_s < state.deadline_s and wall_s < state.wall_deadline_s


def without_authority(state: State) -> State:
    """The same state with every deadline behind it."""
    never = float("-inf")
    return replace(state, deadline_s=never, wall_deadline_s=never, transfer_s=never, wall_transfer_s=never)


def may_transfer(state: State, now_s: float, wall_s: float) -> bool:
    """Rule 7: may what is in flight go on? Until the last deadline: its confirm was sent before any later view."""
    return now_s < state.transfer_s and wall_s < state.wall_transfer_s
