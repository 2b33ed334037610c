"""Karger's ring with virtual nodes: which node owns which site, and what changes hands when members change.

A value over names and numbers alone: it knows no store, clock or network, and no hash of Python's own (that
one differs from process to process). Source: Karger et al., "Consistent hashing and random trees" (STOC
1997). Three placements: `xxh3-64` is ours; `sha1-64` and `md5-32` are those of two published frontier
shardings, point for point.

One code path serves all three. A point p of `sha1-64` and `xxh3-64` owns the keys (previous, p], as
`bisect_left` finds them; a point p of `md5-32` owns [previous, p), as `bisect_right` finds them, which is
(previous - 1, p - 1]: so its points are kept one lower and searched the same way. Inside this module a
*bound* is that last position owned.
"""

import hashlib
import math
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import xxhash

from shared import errors

ALGORITHMS = ("xxh3-64", "sha1-64", "md5-32")

SCORE_BITS = 48  # a sorted set's score is a double: whole numbers are exact up to 53 bits
SHARD_BITS = 8  # keys.INDEX_SHARDS = 2 ** 8

POINTS_A_CELL = 16  # a search of 16 bounds that lie side by side costs a third of one of the whole circle
CELL_BITS_MAX = 12  # where cells begin takes a search each, once a ring: some 2 ms for all of them


class Arc(NamedTuple):
    """Positions that changed hands: (start, end], and for `md5-32` [start, end).

    An arc never wraps: what crosses the top of the circle comes as two, so start < end. The lowest arc of a
    (start, end] placement begins at -1, since it holds position 0.
    """

    start: int
    end: int
    source: str | None
    """The owner before; None where nobody was."""
    target: str | None
    """The owner now; None where nobody is."""


def position(algorithm: str, key: str) -> int:
    """Where a key stands: 0 to 2**64 - 1, for `md5-32` to 2**32 - 1."""
    return _hash_of(algorithm)(key.encode())


def score(algorithm: str, position: int) -> int:
    """The 48 bits of a position that the site index is ordered by."""
    bits = _bits(algorithm)
    return position >> (bits - SCORE_BITS) if bits > SCORE_BITS else position << (SCORE_BITS - bits)


def score_of(algorithm: str, site: str) -> int:
    """Where a site stands in the site index."""
    return score(algorithm, position(algorithm, site))


Search: TypeAlias = "tuple[list[int], int, array[int], array[int], Sequence[str | None]]"
"""What a look-up reads: the first bound of each of 2**n equal cells of the circle, the shift from a position to its
cell, the bounds, their holders with the first again at the end, and the names."""


class Ring:
    """Who owns which position; immutable. Equal weights, vnodes and algorithm make equal rings everywhere.

    Points that meet on one position: the smallest id has it, but with `md5-32` the later one in the given
    order. What the functions of this module read: `bounds` (sorted), `holders` (the number of each bound's node),
    `names` (number -> node; a number that no bound has may carry any name), `hashed` (node -> its bounds in the order
    of their hashing). Arrays, as they are copied a run at a time and take 12 bytes a point and 8 in `hashed`.
    """

    def __init__(  # all parts are handed over by `build` and `with_weights`, which keep them consistent
        self,
        weights: Mapping[str, float],
        *,
        algorithm: str,
        vnodes: int,
        hashed: "dict[str, array[int]]",
        names: Sequence[str],
        bounds: "array[int]",
        holders: "array[int]",
    ) -> None:
        self.weights: Mapping[str, float] = MappingProxyType(dict(weights))
        self.algorithm = algorithm
        self.vnodes = vnodes
        self._hash = _hash_of(algorithm)
        self.hashed = hashed
        self.names = names
        self.bounds = bounds
        self.holders = holders
        self._search: Search | None = None

    @classmethod
    def build(cls, weights: Mapping[str, float], *, algorithm: str, vnodes: int) -> "Ring":
        """A ring from nothing; raises ConfigError for an unknown algorithm or a senseless number."""
        _hash_of(algorithm)
        if vnodes < 1:
            raise errors.ConfigError(f"a ring needs at least one vnode, not {vnodes}")
        hashed = {node: _hashed(algorithm, node, count) for node, count in _counts(weights, vnodes).items()}
        names = list(hashed)
        bounds, holders = _settled(hashed, names, algorithm)
        return cls(
            weights, algorithm=algorithm, vnodes=vnodes, hashed=hashed, names=names, bounds=bounds, holders=holders
        )

    def with_weights(self, weights: Mapping[str, float]) -> "Ring":
        """The ring of other members or weights; hashes only the points that this ring does not have."""
        hashed: dict[str, array[int]] = {}
        none = array(_typecode(self.algorithm))
        for node, count in _counts(weights, self.vnodes).items():
            known = self.hashed.get(node, none)
            more = _hashed(self.algorithm, node, count, first=len(known))
            hashed[node] = known if len(known) == count else known[:count] + more
        names = _numbered(self.names, hashed)
        bounds, holders = self._exchanged(hashed, names) or _settled(hashed, names, self.algorithm)
        return Ring(
            weights,
            algorithm=self.algorithm,
            vnodes=self.vnodes,
            hashed=hashed,
            names=names,
            bounds=bounds,
            holders=holders,
        )

    def owner(self, site: str) -> str | None:
        """The node that a site belongs to; None on an empty ring."""
        # As `owner_at`, written out: a call less for each site that is new.
        starts, shift, bounds, holders, names = self._search or self._cut()
        position = self._hash(site.encode())
        cell = position >> shift
        return names[holders[bisect_left(bounds, position, starts[cell], starts[cell + 1])]]

    def owner_at(self, position: int) -> str | None:
        starts, shift, bounds, holders, names = self._search or self._cut()
        cell = position >> shift
        return names[holders[bisect_left(bounds, position, starts[cell], starts[cell + 1])]]

    def arcs(self) -> list[Arc]:
        """The whole circle in order, `target` owning each arc and `source` None; empty on an empty ring."""
        if not self.bounds:
            return []
        low, arcs = -1, []
        holders = [*self.holders, self.holders[0]]  # the first has what lies above the last bound, too
        for number, run in groupby(zip([*self.bounds, self.top], holders, strict=True), key=itemgetter(1)):
            *_, (high, _) = run
            if high > low:  # the last bound can be the top itself
                arcs.append(self.arc(low, high, None, self.names[number]))
            low = high
        return arcs

    def arcs_of(self, node: str) -> list[Arc]:
        """Those of `arcs()` that are this node's, without a walk round the circle."""
        return _merged(self._arcs_of(node))

    def share(self, node: str) -> float:
        """The fraction of the circle that a node owns; 0.0 for a stranger."""
        return sum(end - start for start, end, _, _ in self._arcs_of(node)) / (self.top + 1)

    def holds(self, arc: Arc, position: int) -> bool:
        """Whether an arc of this ring's algorithm contains a position."""
        low, high = self.closed(arc)
        return low <= position <= high

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ring):
            return NotImplemented
        mine = (self.algorithm, self.vnodes, self.weights, self.owners)
        return mine == (other.algorithm, other.vnodes, other.weights, other.owners)

    def __hash__(self) -> int:
        return hash((self.algorithm, self.vnodes, frozenset(self.weights.items())))

    def __repr__(self) -> str:
        return f"Ring({dict(self.weights)!r}, algorithm={self.algorithm!r}, vnodes={self.vnodes})"

    @property
    def owners(self) -> dict[int, str]:
        """Bound -> node, made when asked for."""
        return {bound: self.names[number] for bound, number in zip(self.bounds, self.holders, strict=True)}

    @property
    def meets(self) -> bool:
        """Whether two points of this ring fell on one position."""
        return len(self.bounds) != sum(map(len, self.hashed.values()))

    @property
    def top(self) -> int:
        return (1 << _bits(self.algorithm)) - 1

    def arc(self, low: int, high: int, source: str | None, target: str | None) -> Arc:
        shift = _shift(self.algorithm)
        return Arc(low + shift, high + shift, source, target)

    def closed(self, arc: Arc) -> tuple[int, int]:
        """First and last position of an arc."""
        shift = _shift(self.algorithm)
        return arc.start + 1 - shift, arc.end - shift

    def below(self, bound: int) -> tuple[int, str | None]:
        """The bound before this position (-1: none), and who owns the position."""
        bounds = self.bounds
        if not bounds:
            return -1, None
        index = bisect_left(bounds, bound)
        owner = self.names[self.holders[index if index < len(bounds) else 0]]
        return (bounds[index - 1] if index else -1), owner

    def _cut(self) -> "Search":
        """Cut the circle into cells; done when first asked for an owner, as not every ring is."""
        bounds, cell_bits = self.bounds, min(CELL_BITS_MAX, (len(self.bounds) // POINTS_A_CELL).bit_length())
        shift = _bits(self.algorithm) - cell_bits
        starts = [bisect_left(bounds, cell << shift) for cell in range((1 << cell_bits) + 1)]
        holders, names = (self.holders + self.holders[:1], self.names) if bounds else (array("I", [0]), (None,))
        self._search = starts, shift, bounds, holders, names
        return self._search

    def _arcs_of(self, node: str) -> Iterator[Arc]:
        for high in sorted({*self.hashed.get(node, ()), self.top}):
            low, owner = self.below(high)
            if owner == node and low < high:
                yield self.arc(low, high, None, node)

    def _exchanged(
        self, hashed: "Mapping[str, array[int]]", names: Sequence[str]
    ) -> "tuple[array[int], array[int]] | None":
        """Bounds and holders with only the changed points moved; None where points meet."""
        if self.meets:
            return None
        gone, come = _changes(self.hashed, hashed)
        bounds, holders = _without(self.bounds, self.holders, gone) if gone else (self.bounds, self.holders)
        if come:
            number = {name: at for at, name in enumerate(names)}
            merged = _with(bounds, holders, come, number)
            if merged is None:
                return None
            bounds, holders = merged
        return (bounds, holders) if len(bounds) == sum(map(len, hashed.values())) else None


def moved_arcs(old: Ring, new: Ring) -> list[Arc]:
    """Exactly the positions whose owner differs, in order; neighbours of one source and target are one arc.

    Costs what changed, not the size of the rings: an owner can differ only just below a point that one ring
    lacks.
    """
    if old.algorithm != new.algorithm:
        raise errors.ConfigError(f"rings of {old.algorithm} and {new.algorithm} cannot be compared")
    return _merged(_differences(old, new))


def index_ranges(ring: Ring, arcs: Iterable[Arc]) -> list[tuple[int, int, int]]:
    """(shard, lowest score, highest score), both ends included, of every site that could stand in the arcs.

    A superset: scores are shorter than positions, so what comes back is still filtered by the ring. In
    order, and no score twice.
    """
    ranges: list[tuple[int, int, int]] = []
    covered = -1
    for low, high in sorted(ring.closed(arc) for arc in arcs):
        first, last = max(score(ring.algorithm, low), covered + 1), score(ring.algorithm, high)
        if first > last:
            continue
        covered = last
        for shard in range(_shard(first), _shard(last) + 1):
            bottom = shard << (SCORE_BITS - SHARD_BITS)
            top = bottom + (1 << (SCORE_BITS - SHARD_BITS)) - 1
            ranges.append((shard, max(first, bottom), min(last, top)))
    return ranges


def index_places(ring: Ring, sites: Iterable[str]) -> list[tuple[int, int, int]]:
    """The same for single sites."""
    scores = {score_of(ring.algorithm, site) for site in sites}
    return [(_shard(one), one, one) for one in sorted(scores)]


def _differences(old: Ring, new: Ring) -> Iterator[Arc]:
    for high in sorted({*_changed_bounds(old, new), old.top}):
        (below_old, source), (below_new, target) = old.below(high), new.below(high)
        low = max(below_old, below_new)
        if source != target and low < high:
            yield old.arc(low, high, source, target)


def _changed_bounds(old: Ring, new: Ring) -> set[int]:
    if old.meets or new.meets:  # then a new order of the nodes alone can change an owner
        pairs = old.owners.items() ^ new.owners.items()
        return {bound for bound, _ in pairs if bound >= 0}
    gone, come = _changes(old.hashed, new.hashed)
    return {bound for bound in (*gone, *come) if bound >= 0}


def _merged(arcs: Iterable[Arc]) -> list[Arc]:
    merged: list[Arc] = []
    for arc in arcs:
        if merged and merged[-1][1:] == (arc.start, arc.source, arc.target):
            merged[-1] = merged[-1]._replace(end=arc.end)
        else:
            merged.append(arc)
    return merged


def _changes(old: "Mapping[str, array[int]]", new: "Mapping[str, array[int]]") -> tuple[set[int], dict[int, str]]:
    """Bounds that go, and bounds that come with their node. A node's points are a prefix of one sequence."""
    gone: set[int] = set()
    come: dict[int, str] = {}
    for node in {**old, **new}:
        before, after = old.get(node, ()), new.get(node, ())
        if before is not after:
            gone.update(before[len(after) :])
            come.update(dict.fromkeys(after[len(before) :], node))
    return gone, come


def _numbered(names: Sequence[str], nodes: Mapping[str, object]) -> list[str]:
    """Numbers for these nodes that leave those they have; a number that has become free is given again."""
    numbered = list(names)
    known = set(names)
    free = [number for number, name in enumerate(names) if name not in nodes]
    for node in [node for node in nodes if node not in known]:
        if free:
            numbered[free.pop()] = node
        else:
            numbered.append(node)
    return numbered


def _without(bounds: "array[int]", holders: "array[int]", gone: Iterable[int]) -> "tuple[array[int], array[int]]":
    """Without these bounds, all of which are there."""
    kept, kept_by, start = bounds[:0], holders[:0], 0
    for bound in sorted(gone):
        index = bisect_left(bounds, bound, start)
        kept += bounds[start:index]
        kept_by += holders[start:index]
        start = index + 1
    return kept + bounds[start:], kept_by + holders[start:]


def _with(
    bounds: "array[int]", holders: "array[int]", come: Mapping[int, str], number: Mapping[str, int]
) -> "tuple[array[int], array[int]] | None":
    """With these bounds and the numbers of their nodes; None if one of them is there already."""
    merged, merged_by, start, top = bounds[:0], holders[:0], 0, len(bounds)
    near = 4 * top // len(come) + 1  # the next place is hardly ever further off: a short search finds it
    for bound in sorted(come):
        end = start + near
        index = bisect_left(bounds, bound, start, end if end < top else top)  # noqa: FURB136 - a call less
        if index == end:
            index = bisect_left(bounds, bound, end)
        if index != start:
            merged += bounds[start:index]
            merged_by += holders[start:index]
            start = index
        if index < top and bounds[index] == bound:
            return None
        merged.append(bound)
        merged_by.append(number[come[bound]])
    return merged + bounds[start:], merged_by + holders[start:]


def _settled(
    hashed: "Mapping[str, array[int]]", names: Sequence[str], algorithm: str
) -> "tuple[array[int], array[int]]":
    """Bounds and their holders, points that meet settled by the algorithm's rule: the last one written stays."""
    in_order = hashed if algorithm == "md5-32" else sorted(hashed, reverse=True)
    number = {name: at for at, name in enumerate(names)}
    owners: dict[int, int] = {}
    for node in in_order:
        owners.update(dict.fromkeys(hashed[node], number[node]))
    bounds = array(_typecode(algorithm), sorted(owners))
    return bounds, array("I", map(owners.__getitem__, bounds))


def _counts(weights: Mapping[str, float], vnodes: int) -> dict[str, int]:
    """Points per node, rounded as `round` does; any weight above zero has one at least."""
    for node, weight in weights.items():
        if not (math.isfinite(weight) and weight >= 0):
            raise errors.ConfigError(f"the weight of {node} must be a number of zero or more, not {weight}")
    return {node: max(1, round(vnodes * weight)) for node, weight in weights.items() if weight > 0}


def _hashed(algorithm: str, node: str, count: int, *, first: int = 0) -> "array[int]":
    hash_of, shift = _hash_of(algorithm), _shift(algorithm)
    return array(_typecode(algorithm), [hash_of(f"{node}#{i}".encode()) - shift for i in range(first, count)])


def _shard(score: int) -> int:
    return score >> (SCORE_BITS - SHARD_BITS)


def _shift(algorithm: str) -> int:
    """How much lower than its point a bound is: see the module's docstring."""
    return 1 if algorithm == "md5-32" else 0


def _bits(algorithm: str) -> int:
    return 32 if algorithm == "md5-32" else 64


def _typecode(algorithm: str) -> str:
    """Of an array of bounds: 64 bits, and signed where one can be -1."""
    return "q" if _shift(algorithm) else "Q"


def _hash_of(algorithm: str) -> Callable[[bytes], int]:
    try:
        return _HASHES[algorithm]
    except KeyError:
        raise errors.ConfigError(f"ring algorithm {algorithm!r} is none of {', '.join(ALGORITHMS)}") from None


def _sha1_64(key: bytes) -> int:
    return int.from_bytes(hashlib.sha1(key, usedforsecurity=False).digest()[:8])


def _md5_32(key: bytes) -> int:
    return int.from_bytes(hashlib.md5(key, usedforsecurity=False).digest()[:4])


_HASHES: dict[str, Callable[[bytes], int]] = {
    "xxh3-64": xxhash.xxh3_64_intdigest,
    "sha1-64": _sha1_64,
    "md5-32": _md5_32,
}
