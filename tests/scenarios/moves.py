"""What may befall a cluster in virtual time, as values: a plan of moves is all it takes to run one again."""

from dataclasses import asdict, dataclass, replace
from typing import Any

SHARE_VISITS = 2  # of a site, until it makes room for one that is not held
SITES = tuple(f"s{i}.example" for i in range(6))

# Moves of the world. `who` is the slot of a process, `node` an id in etcd, `seconds` how long.
WORLD = {
    "cut": "{who} cannot reach etcd with its {call} for {seconds:g} s",
    "freeze": "{who} is stopped for {seconds:g} s",
    "suspend": "{who} is stopped for {seconds:g} s and its boot clock with it",
    "crash": "{who} dies and starts again {seconds:g} s later",
    "drain": "{who} is told to drain",
    "revoke": "the lease of {node} is revoked",
    "override": "{site} is asked to be placed on {node}",
    "wall": "the wall clock of {who} is stepped by {seconds:+g} s",
    "compact": "etcd's history is compacted",
    "down": "etcd answers nobody for {seconds:g} s",
    "restore": "etcd is put back to what it was {seconds:g} s ago ({call})",
    "hint": "{who} gets a stale hint",
}
# Moves of one message: of the next one of that kind which that process sends at this moment or later.
MESSAGE = {
    "lost": "the {call} of {who} is lost",
    "late": "the {call} of {who} is {seconds:g} s under way to etcd",
    "late answer": "the answer to the {call} of {who} is {seconds:g} s under way",
    "no answer": "the {call} of {who} takes effect, its answer is lost",
    "twice": "the {call} of {who} is delivered again {seconds:g} s later",
    "stale": "the {call} of {who} is answered from {seconds:g} s ago",
    "blind": "the {call} of {who} finds the views between unreadable",
    "tail": "{who}: what the {call} sends leaves the machine {seconds:g} s later",
    "long": "{who}: the {call} lasts {seconds:g} s",
    "amnesia": "{who}: the {call} finds an empty record",
}


@dataclass(frozen=True, slots=True)
class Move:
    """One thing that happens at one moment."""

    at_s: float
    what: str
    who: int = -1
    call: str = ""
    seconds: float = 0.0
    site: str = ""
    node: str = ""

    @property
    def key(self) -> tuple[int, str, str]:
        """Which messages a move of one message is about; `site` only for visits and claims."""
        return self.who, self.call, self.site


@dataclass(frozen=True, slots=True)
class Actor:
    """One process: the id it runs under, from when on, and the rate of its clocks."""

    name: str
    starts_s: float = 0.0
    rate: float = 1.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One run, whole. Without `weather` every message takes the same time and every step is as long."""

    actors: tuple[Actor, ...]
    moves: tuple[Move, ...] = ()
    until_s: float = 90.0
    weather: int | None = None
    sites: tuple[str, ...] = SITES
    held_max: int = 0
    """Sites that a process holds in memory; 0: all."""

    def label(self, slot: int) -> str:
        """The id, with a dash for each process of the same id before it."""
        name = self.actors[slot].name
        return name + "'" * sum(actor.name == name for actor in self.actors[:slot])

    def tell(self, move: Move) -> str:
        words = WORLD.get(move.what) or MESSAGE[move.what]
        who = self.label(move.who) if move.who >= 0 else ""
        call = f"{move.call} of {move.site}" if move.what in MESSAGE and move.site else move.call
        return words.format(who=who, call=call, seconds=round(move.seconds, 3), site=move.site, node=move.node)


def to_json(plan: Plan) -> dict[str, Any]:
    return asdict(plan)


def from_json(value: dict[str, Any]) -> Plan:
    return Plan(
        actors=tuple(Actor(**actor) for actor in value["actors"]),
        moves=tuple(Move(**move) for move in value["moves"]),
        until_s=value["until_s"],
        weather=value["weather"],
        sites=tuple(value["sites"]),
        held_max=value.get("held_max", 0),
    )


def cast(*names: str, starts_s: float = 0.0) -> tuple[Actor, ...]:
    """Processes of these ids with equal clocks."""
    return tuple(Actor(name, starts_s) for name in names)


def with_moves(plan: Plan, *moves: Move) -> Plan:
    return replace(plan, moves=tuple(sorted((*plan.moves, *moves), key=lambda move: move.at_s)))
