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

import functools
import hashlib
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import xxhash

from shared import errors

ALGORITHMS = ("xxh3-64", "sha1-64", "md5-32")

SCORE_BITS = 48  # a sorted set's score is a double: whole numbers are exact up to 53 bits
SHARD_BITS = 8  # keys.INDEX_SHARDS = 2 ** 8


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
    return _hash_of(algorithm)(key)


def score(algorithm: str, position: int) -> int:
    """The 48 bits of a position that the site index is ordered by."""
    bits = _bits(algorithm)
    return position >> (bits - SCORE_BITS) if bits > SCORE_BITS else position << (SCORE_BITS - bits)


class Ring:
    """Who owns which position; immutable. Equal weights, vnodes and algorithm make equal rings everywhere.

    Points that meet on one position: the smallest id has it, but with `md5-32` the later one in the given
    order. `bounds` (sorted), `owners` (bound -> node), `hashed` (node -> its bounds by number) are what the
    functions of this module read.
    """

    def __init__(  # all parts are handed over by `build` and `with_weights`, which keep them consistent
        self,
        weights: Mapping[str, float],
        *,
        algorithm: str,
        vnodes: int,
        hashed: dict[str, tuple[int, ...]],
        bounds: list[int],
        owners: dict[int, str],
    ) -> None:
        self.weights: Mapping[str, float] = MappingProxyType(dict(weights))
        self.algorithm = algorithm
        self.vnodes = vnodes
        self._hash = _hash_of(algorithm)
        self.hashed = hashed
        self.bounds = bounds
        self.owners = owners

    @classmethod
    def build(cls, weights: Mapping[str, float], *, algorithm: str, vnodes: int) -> "Ring":
        """A ring from nothing; raises ConfigError for an unknown algorithm or a senseless number."""
        _hash_of(algorithm)
        if vnodes < 1:
            raise errors.ConfigError(f"a ring needs at least one vnode, not {vnodes}")
        hashed = {node: _hashed(algorithm, node, count) for node, count in _counts(weights, vnodes).items()}
        owners = _settle(hashed, algorithm)
        return cls(weights, algorithm=algorithm, vnodes=vnodes, hashed=hashed, bounds=sorted(owners), owners=owners)

    def with_weights(self, weights: Mapping[str, float]) -> "Ring":
        """The ring of other members or weights; hashes only the points that this ring does not have."""
        hashed: dict[str, tuple[int, ...]] = {}
        for node, count in _counts(weights, self.vnodes).items():
            known = self.hashed.get(node, ())
            hashed[node] = known[:count] + _hashed(self.algorithm, node, count, first=len(known))
        bounds, owners = self._exchange(hashed) or (None, _settle(hashed, self.algorithm))
        return Ring(
            weights,
            algorithm=self.algorithm,
            vnodes=self.vnodes,
            hashed=hashed,
            bounds=sorted(owners) if bounds is None else bounds,
            owners=owners,
        )

    def owner(self, site: str) -> str | None:
        """The node that a site belongs to; None on an empty ring."""
        return self.owner_at(self._hash(site))

    def owner_at(self, position: int) -> str | None:
        bounds = self.bounds
        if not bounds:
            return None
        index = bisect_left(bounds, position)
        return self.owners[bounds[index if index < len(bounds) else 0]]

    def arcs(self) -> list[Arc]:
        """The whole circle in order, `target` owning each arc and `source` None; empty on an empty ring."""
        return _merged(self.arc(low, high, None, self.owner_at(high)) for low, high in self._spans())

    def share(self, node: str) -> float:
        """The fraction of the circle that a node owns; 0.0 for a stranger."""
        return self._shares.get(node, 0.0)

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

    @functools.cached_property
    def _shares(self) -> dict[str, float]:
        owned: dict[str, int] = {}
        for low, high in self._spans():
            node = self.owners.get(high) or self.owners[self.bounds[0]]
            owned[node] = owned.get(node, 0) + high - low
        return {node: size / 2 ** _bits(self.algorithm) for node, size in owned.items()}

    def _exchange(self, hashed: dict[str, tuple[int, ...]]) -> tuple[list[int], dict[int, str]] | None:
        """Bounds and owners with only the changed points moved; None where points meet."""
        gone, come = _changes(self.hashed, hashed)
        owners = self.owners.copy()
        for bound in gone:
            del owners[bound]
        owners.update(come)
        if len(owners) != sum(map(len, hashed.values())):  # points meet, here or in the ring before
            return None
        bounds = [bound for bound in self.bounds if bound not in gone] if gone else self.bounds.copy()
        bounds += sorted(come)
        bounds.sort()  # two sorted runs: Python's sort merges them
        return bounds, owners

    @property
    def meets(self) -> bool:
        """Whether two points of this ring fell on one position."""
        return len(self.owners) != sum(map(len, self.hashed.values()))

    @property
    def top(self) -> int:
        return (1 << _bits(self.algorithm)) - 1

    def _spans(self) -> Iterator[tuple[int, int]]:
        """(low, high] of every arc in order, the one across the top as two; nothing on an empty ring."""
        low = -1
        if not self.bounds:
            return
        for bound in [*self.bounds, self.top]:
            if bound > low:
                yield low, bound
                low = bound

    def arc(self, low: int, high: int, source: str | None, target: str | None) -> Arc:
        shift = _shift(self.algorithm)
        return Arc(low + shift, high + shift, source, target)

    def closed(self, arc: Arc) -> tuple[int, int]:
        """First and last position of an arc."""
        shift = _shift(self.algorithm)
        return arc.start + 1 - shift, arc.end - shift


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


def _differences(old: Ring, new: Ring) -> Iterator[Arc]:
    bounds = sorted({*_changed_bounds(old, new), old.top})
    for high in bounds:
        source, target = old.owner_at(high), new.owner_at(high)
        low = max(_below(old, high), _below(new, high))
        if source != target and low < high:
            yield old.arc(low, high, source, target)


def _changed_bounds(old: Ring, new: Ring) -> set[int]:
    if old.meets or new.meets:  # then a new order of the nodes alone can change an owner
        pairs = old.owners.items() ^ new.owners.items()
        return {bound for bound, _ in pairs if bound >= 0}
    gone, come = _changes(old.hashed, new.hashed)
    return {bound for bound in (*gone, *come) if bound >= 0}


def _below(ring: Ring, bound: int) -> int:
    """The bound before this one; -1 below the first."""
    index = bisect_left(ring.bounds, bound)
    return ring.bounds[index - 1] if index else -1


def _merged(arcs: Iterable[Arc]) -> list[Arc]:
    merged: list[Arc] = []
    for arc in arcs:
        if merged and merged[-1][1:] == (arc.start, arc.source, arc.target):
            merged[-1] = merged[-1]._replace(end=arc.end)
        else:
            merged.append(arc)
    return merged


def _changes(old: Mapping[str, tuple[int, ...]], new: Mapping[str, tuple[int, ...]]) -> tuple[set[int], dict[int, str]]:
    """Bounds that go, and bounds that come with their node. A node's points are a prefix of one sequence."""
    gone: set[int] = set()
    come: dict[int, str] = {}
    for node in {**old, **new}:
        before, after = old.get(node, ()), new.get(node, ())
        gone.update(before[len(after) :])
        come.update(dict.fromkeys(after[len(before) :], node))
    return gone, come


def _settle(hashed: Mapping[str, tuple[int, ...]], algorithm: str) -> dict[int, str]:
    """Bound -> node, points that meet settled by the algorithm's rule: the last one written stays."""
    in_order = hashed if algorithm == "md5-32" else sorted(hashed, reverse=True)
    owners: dict[int, str] = {}
    for node in in_order:
        owners.update(dict.fromkeys(hashed[node], node))
    return owners


def _counts(weights: Mapping[str, float], vnodes: int) -> dict[str, int]:
    """Points per node, rounded as `round` does; any weight above zero has one at least."""
    for node, weight in weights.items():
        if not (math.isfinite(weight) and weight >= 0):
            raise errors.ConfigError(f"the weight of {node} must be a number of zero or more, not {weight}")
    return {node: max(1, round(vnodes * weight)) for node, weight in weights.items() if weight > 0}


def _hashed(algorithm: str, node: str, count: int, *, first: int = 0) -> tuple[int, ...]:
    hash_of, shift = _hash_of(algorithm), _shift(algorithm)
    return tuple([hash_of(f"{node}#{i}") - shift for i in range(first, count)])


def _shard(score: int) -> int:
    return score >> (SCORE_BITS - SHARD_BITS)


def _shift(algorithm: str) -> int:
    """How much lower than its point a bound is: see the module's docstring."""
    return 1 if algorithm == "md5-32" else 0


def _bits(algorithm: str) -> int:
    return 32 if algorithm == "md5-32" else 64


def _hash_of(algorithm: str) -> Callable[[str], int]:
    try:
        return _HASHES[algorithm]
    except KeyError:
        raise errors.ConfigError(f"ring algorithm {algorithm!r} is none of {', '.join(ALGORITHMS)}") from None


def _xxh3_64(key: str) -> int:
    return xxhash.xxh3_64_intdigest(key.encode())


def _sha1_64(key: str) -> int:
    return int.from_bytes(hashlib.sha1(key.encode(), usedforsecurity=False).digest()[:8])


def _md5_32(key: str) -> int:
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4])


_HASHES: dict[str, Callable[[str], int]] = {
    "xxh3-64": _xxh3_64,
    "sha1-64": _sha1_64,
    "md5-32": _md5_32,
}
