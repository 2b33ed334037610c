"""What the cluster agreed on, for commands that work out owners: its view, checked against our settings."""

from typing import NamedTuple

from shared import agreement, config, errors, etcd, keys, membership, placement, ring, sites

PLACING = ("ring", "canonical form", "sites")  # the parts of the fingerprint that decide owners


class Rules(NamedTuple):
    """The site rule, and the owners by the view of this moment; no placement before the first view."""

    sites: sites.Sites
    snapshot: agreement.Snapshot
    placement: placement.Placement | None

    def owner(self, site: str) -> str | None:
        return self.placement.owner(site) if self.placement else None


def look(settings: config.Config) -> agreement.Snapshot:
    """One linearizable look at the cluster."""
    with etcd.reached(settings) as store:
        return store.look(keys.EtcdKeys(settings.cluster))


def rules(settings: config.Config) -> Rules:
    """The cluster's rules; ConfigError where ours would give other owners than its nodes have."""
    if settings.ring.algorithm not in ring.ALGORITHMS:
        raise errors.ConfigError(f"ring.algorithm is one of {', '.join(ring.ALGORITHMS)}")
    rule = sites.Sites(settings.sites.private_suffixes)
    snapshot = look(settings)
    if snapshot.view is None:
        return Rules(rule, snapshot, None)
    ours = membership.fingerprint(settings, sites_digest=rule.digest)
    for part in PLACING:
        value = ours[part]
        theirs = snapshot.view.fingerprint.get(part)
        if theirs != value:
            raise errors.FingerprintMismatch(
                f"{part}: the cluster has {theirs}, this command {value}; use the nodes' configuration (--config FILE)"
            )
    return Rules(rule, snapshot, placement.Placement.of(snapshot.view, snapshot.epoch))
