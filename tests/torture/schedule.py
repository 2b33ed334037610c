"""Which fault strikes when: a plan drawn from a seed, with calm between, and nothing that cannot go together.

It knows the faults by their table alone: how long each lasts, and what it touches.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.torture import nemesis
from tests.torture.wounds import Touch

FIRST_S = 2.0
EVERY_S = (12.0, 20.0)  # from one strike to the next
CALM_S = 8.0  # a takeover after a crash ends within max(TTL, VL + G) + delay + 2 s
CALM_EVERY = 3  # strikes, on average, until one waits for all before it to heal
TOGETHER_S = 2.0  # faults that strike at once do so within this
END_S = 15.0  # before the end of the run, all is healed

# Two faults of these rooms at a time would undo each other: what one restarts the other has frozen.
ALONE: frozenset[Touch] = frozenset(("etcd", "store", "web", "spares", "all-nodes"))
# And beside one that strikes all nodes there is none left for another.
NODES: frozenset[Touch] = frozenset(("nodes", "all-nodes"))


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault to come."""

    at_s: float
    """After the beginning."""
    name: str
    lasts_s: float
    seed: int
    """Of the fault's own choices: its victim, its moments."""

    @property
    def until_s(self) -> float:
        return self.at_s + self.lasts_s


def plan(
    seed: int,
    seconds: float,
    names: Sequence[str],
    *,
    overlap: float = 0.3,
    faults: Mapping[str, nemesis.Fault] = nemesis.FAULTS,
) -> list[Planned]:
    """Faults of these names in order of time, a strike every 12 to 20 s; `overlap` is the share of double strikes.

    Each name comes up before any comes up again, as far as the time allows.
    """
    rng = random.Random(f"{seed} {seconds:g} {' '.join(names)}")
    planned: list[Planned] = []
    deck: list[str] = []
    at_s = FIRST_S
    while at_s < seconds - END_S:
        count = 1 + (rng.random() < overlap) + (rng.random() < overlap / 3)
        for _ in range(count):
            if not deck:
                deck = rng.sample(list(names), len(names))
            drawn = _draw(rng, deck, faults, planned, at_s + rng.uniform(0, TOGETHER_S), seconds - END_S)
            if drawn is not None:
                planned.append(drawn)
        at_s += rng.uniform(*EVERY_S)
        if rng.random() < 1 / CALM_EVERY:
            at_s = max(at_s, CALM_S + max((one.until_s for one in planned), default=0.0))
    return sorted(planned, key=lambda one: one.at_s)


def _draw(
    rng: random.Random,
    deck: list[str],
    faults: Mapping[str, nemesis.Fault],
    planned: Sequence[Planned],
    at_s: float,
    end_s: float,
) -> Planned | None:
    """The first card of the deck that may strike at this moment, taken out of it."""
    for name in deck:
        lo_s, hi_s = faults[name].seconds
        lasts_s = min(rng.uniform(lo_s, hi_s), end_s - at_s)
        one = Planned(round(at_s, 3), name, round(lasts_s, 3), rng.randrange(2**31))
        if lasts_s >= lo_s and all(together(faults, one, other) for other in planned):
            deck.remove(name)
            return one
    return None


def together(faults: Mapping[str, nemesis.Fault], one: Planned, other: Planned) -> bool:
    """May these two be in one plan: apart in time, or of rooms that do not meet?"""
    if one.until_s + 1.0 < other.at_s or other.until_s + 1.0 < one.at_s:
        return True
    mine, its = faults[one.name].touches, faults[other.name].touches
    if one.name == other.name or mine & its & ALONE:
        return False
    return not ("all-nodes" in mine | its and mine & NODES and its & NODES)
