"""Two clusters of the same members, each with its own etcd view, give every real host name to the same node."""

from coordinator import agreed
from tests.coordinator import clusters
from tests.shared.test_agreement import hosts_of


def test_two_clusters_of_the_same_members_agree_on_every_real_host(etcd, valkey, cluster, conformance):
    hosts = hosts_of(conformance / "domains")
    assert len(hosts) > 25_000
    weights = {"n1": 1.0, "n2": 1.0, "n3": 2.0}
    first = clusters.settings_of(etcd, valkey, f"{cluster}-a")
    second = clusters.settings_of(etcd, valkey, f"{cluster}-b")
    with clusters.members(first, weights), clusters.members(second, dict(reversed(weights.items()))):
        one, two = agreed.rules(first), agreed.rules(second)
    counts = dict.fromkeys(weights, 0)
    for host in hosts:
        site = one.sites.site_of_host(host)
        assert two.sites.site_of_host(host) == site
        assert one.owner(site) == two.owner(site), host
        counts[one.owner(site)] += 1
    assert one.placement.ring == two.placement.ring
    share = {node: count / len(hosts) for node, count in counts.items()}
    assert all(abs(share[node] - one.placement.ring.share(node)) < 0.06 for node in weights), share
