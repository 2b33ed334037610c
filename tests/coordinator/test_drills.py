"""The drills reach the node they name, and say so when there is none."""

import json

import pytest

from coordinator import cli
from shared import etcd, keys
from tests.coordinator import clusters


@pytest.fixture
def settings(etcd, cluster):
    return clusters.settings_of(etcd, "redis://127.0.0.1:1/0", cluster)  # a drill needs no Redis


def seen(settings):
    store = etcd.Etcd(settings.etcd)
    try:
        return store.look(keys.EtcdKeys(settings.cluster))
    finally:
        store.close()


def test_kill_lease_takes_the_member_away_and_leaves_the_rest(settings, capsys):
    with clusters.members(settings, {"n1": 1.0, "n2": 1.0}):
        assert cli.main(["kill-lease", "n2", "--rejoin=120", *clusters.arguments(settings)]) == 0
        now = seen(settings)
        assert list(now.members) == ["n1"]
        assert now.rejoin == {"n2": 120.0}
        assert "120 s" in capsys.readouterr().out
        assert cli.main(["kill-lease", "n2", *clusters.arguments(settings)]) == 1


def test_drain_asks_for_weight_0_and_keeps_the_incarnation(settings, capsys):
    with clusters.members(settings, {"n1": 1.0, "n2": 1.0}) as (_, incarnations):
        assert cli.main(["drain", "n2", "--json", *clusters.arguments(settings)]) == 0
        assert json.loads(capsys.readouterr().out) == {"node": "n2", "done": True}
        member = seen(settings).members["n2"]
        assert (member.value.weight, member.incarnation) == (0.0, incarnations["n2"])


@pytest.mark.parametrize("command", ["kill-lease", "drain"])
def test_no_such_node_is_1(settings, command, capsys):
    assert cli.main([command, "n9", *clusters.arguments(settings)]) == 1
    assert "no such node" in capsys.readouterr().out
