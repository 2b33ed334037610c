"""A cluster as etcd and the store show it, without any node running: what reading commands are tested on."""

import contextlib
from collections.abc import Iterator, Mapping

from shared import agreement, config, etcd, keys, membership, records, sites


def settings_of(etcd_address: str, redis_url: str, cluster: str) -> config.Config:
    return config.load(environ={}, options={"etcd": etcd_address, "redis": redis_url, "cluster": cluster})


def arguments(settings: config.Config) -> list[str]:
    return [f"--etcd={settings.etcd}", f"--redis={settings.redis}", f"--cluster={settings.cluster}"]


def fingerprint(settings: config.Config) -> dict[str, str]:
    return membership.fingerprint(settings, sites_digest=sites.Sites(settings.sites.private_suffixes).digest)


@contextlib.contextmanager
def members(
    settings: config.Config, weights: Mapping[str, float], *, overrides: Mapping[str, str] | None = None
) -> Iterator[tuple[int, dict[str, int]]]:
    """Members with leases and a view that lists them; yields the epoch and the incarnations."""
    store = etcd.Etcd(settings.etcd)
    names = keys.EtcdKeys(settings.cluster)
    prints = fingerprint(settings)
    incarnations: dict[str, int] = {}
    leases = []
    try:
        for node, weight in weights.items():
            lease, _ = store.grant(60)
            leases.append(lease)
            value = records.MemberValue(weight=weight, address="127.0.0.1:1", fingerprint=prints)
            created, incarnations[node], _ = store.join(names, node, value, lease)
            assert created
        view = records.View(
            members={
                node: records.Member(incarnation=incarnations[node], weight=weight, address="127.0.0.1:1")
                for node, weight in weights.items()
            },
            overrides=dict(overrides or {}),
            fingerprint=prints,
        )
        first = next(iter(weights))
        revision = store.look(names).revision
        mine = agreement.Mine(first, incarnations[first], leases[0])
        done, epoch, _ = store.propose(names, mine, agreement.Propose(view=view, epoch=0, revision=revision))
        assert done
        yield epoch, incarnations
    finally:
        for lease in leases:
            store.revoke(lease)
        store.close()
