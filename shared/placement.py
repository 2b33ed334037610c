"""Who owns what in one view, and the fingerprint of everything that decides it."""

from collections.abc import Mapping

from shared import records, ring


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


class Placement:
    """Who owns what in one view: an override of that view first, then its ring."""

    __slots__ = ("epoch", "ring", "view")

    def __init__(self, view: records.View, epoch: int, circle: ring.Ring) -> None:
        self.view = view
        self.epoch = epoch
        self.ring = circle

    @classmethod
    def of(cls, view: records.View, epoch: int, previous: "Placement | None" = None) -> "Placement":
        """Build from `previous` where there is one, so that only the points of changed nodes are hashed."""
        weights = {node: member.weight for node, member in view.members.items()}
        if previous is not None and previous.view.fingerprint.get("ring") == view.fingerprint.get("ring"):
            return cls(view, epoch, previous.ring.with_weights(weights))
        algorithm, _, vnodes = view.fingerprint["ring"].rpartition("/")
        return cls(view, epoch, ring.Ring.build(weights, algorithm=algorithm, vnodes=int(vnodes)))

    def owner(self, site: str) -> str | None:
        override = self.view.members.get(self.view.overrides.get(site, ""))
        if override is not None and override.weight > 0:
            # A node that drains has weight 0 and must lose its overrides too, or it would leave with them.
            return self.view.overrides[site]
        return self.ring.owner(site)

    def incarnation(self, node: str) -> int:
        """0 for a node that is not a member."""
        member = self.view.members.get(node)
        return member.incarnation if member else 0
