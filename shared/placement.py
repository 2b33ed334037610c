"""Who owns what in one view, and the fingerprint of everything that decides it."""

from collections.abc import Callable, Mapping

from shared import records, ring

OWNERS_MAX = 32_768  # some 5 MB with their names; links of a crawl go to few sites again and again


def fingerprint(
    *, algorithm: str, vnodes: int, form: str, sites: str, view_lease_s: float, wire_s: float, delays: str
) -> dict[str, str]:
    """What all members must agree on, part by part; a ring that disagrees is worse than none."""
    return {
        "ring": f"{algorithm}/{vnodes}",
        "canonical form": form,
        "sites": sites,
        "view lease, wire": f"{view_lease_s:g}/{wire_s:g}",
        "delay": delays,
    }


def mismatch(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str | None:
    """Which parts differ, in words an operator can act on; None where the two agree."""
    parts = [
        f"{part}: the cluster has {theirs.get(part)!r}, this node {ours.get(part)!r}"
        for part in ours
        if theirs.get(part) != ours[part]
    ]
    return "; ".join(parts) or None


class Owners(dict[str, str | None]):
    """Site -> owner, worked out when first asked for; at most OWNERS_MAX are remembered, then all are forgotten."""

    __slots__ = ("_overrides", "_ring")

    def __init__(self, overrides: Mapping[str, str], circle: ring.Ring) -> None:
        self._overrides = overrides
        self._ring = circle

    def __missing__(self, site: str) -> str | None:
        owner = self._overrides[site] if site in self._overrides else self._ring.owner(site)
        if len(self) >= OWNERS_MAX:
            self.clear()
        self[site] = owner
        return owner


class Placement:
    """Who owns what in one view: an override of that view first, then its ring."""

    __slots__ = ("epoch", "owner", "ring", "view")

    def __init__(self, view: records.View, epoch: int, circle: ring.Ring) -> None:
        self.view = view
        self.epoch = epoch
        self.ring = circle
        # A node that drains has weight 0 and must lose its overrides too, or it would leave with them.
        standing = {site: node for site, node in view.overrides.items() if _takes(view.members.get(node))}
        self.owner: Callable[[str], str | None] = Owners(standing, circle).__getitem__
        """The node that a site belongs to; None where there is no node. The dict's own method: one look-up."""

    @classmethod
    def of(cls, view: records.View, epoch: int, previous: "Placement | None" = None) -> "Placement":
        """Build from `previous` where there is one, so that only the points of changed nodes are hashed."""
        weights = {node: member.weight for node, member in view.members.items()}
        if previous is not None and previous.view.fingerprint.get("ring") == view.fingerprint.get("ring"):
            return cls(view, epoch, previous.ring.with_weights(weights))
        algorithm, _, vnodes = view.fingerprint["ring"].rpartition("/")
        return cls(view, epoch, ring.Ring.build(weights, algorithm=algorithm, vnodes=int(vnodes)))

    def incarnation(self, node: str) -> int:
        """0 for a node that is not a member."""
        member = self.view.members.get(node)
        return member.incarnation if member else 0


def _takes(member: records.Member | None) -> bool:
    return member is not None and member.weight > 0
