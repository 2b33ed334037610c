"""`pause` and `resume` say what is paused by name, return when the nodes have heard, and are seen by other commands."""

import asyncio
import json
import threading
import time

import pytest

from coordinator import cli, seeding, steering
from shared import frontier, records
from tests.coordinator import clusters


@pytest.fixture
def settings(etcd, valkey, cluster):
    return clusters.settings_of(etcd, valkey, cluster)


@pytest.fixture
def ask(settings, capsys):
    """Run a command with --json: its exit status, and what it printed."""

    def run(*arguments: str):
        status = cli.main([*arguments, "--json", *clusters.arguments(settings)])
        out = capsys.readouterr().out
        return status, json.loads(out) if out else None

    return run


def report(node: str, incarnation: int, **figures: int) -> records.NodeReport:
    plain = {"epoch": 1, "weight": 1.0, "address": "127.0.0.1:1", "time_ms": 1, "state": "member"}
    return records.NodeReport(id=node, incarnation=incarnation, **(plain | figures))


def in_a_loop(settings, step):
    async def run():
        store = await frontier.Frontier.open(settings.redis, settings.cluster)
        try:
            return await step(store)
        finally:
            await store.close()

    return asyncio.run(run())


def test_sites_are_paused_by_name_host_or_url_and_resumed(ask):
    assert ask("pause", "--list") == (0, {"all": False, "sites": [], "unheard": []})
    assert ask("pause", "www.e.org", "https://f.org/x")[1]["sites"] == ["e.org", "f.org"]
    assert ask("pause", "e.org") == (0, {"all": False, "sites": ["e.org", "f.org"], "unheard": []})
    assert ask("resume", "e.org", "never.org")[1]["sites"] == ["f.org"]
    assert ask("resume", "e.org")[0] == 1
    assert ask("pause", "--list")[1]["sites"] == ["f.org"]


def test_what_was_paused_by_name_stays_so_when_all_goes_on(ask):
    ask("pause", "e.org")
    assert ask("pause", "--all")[1] == {"all": True, "sites": ["e.org"], "unheard": []}
    assert ask("resume", "--all") == (0, {"all": False, "sites": ["e.org"], "unheard": []})
    assert ask("resume", "--all")[0] == 1


@pytest.mark.parametrize(
    "arguments",
    [["pause"], ["pause", "--all", "e.org"], ["pause", "--list", "--all"], ["resume"], ["pause", "http://"]],
)
def test_what_cannot_be_meant_is_wrong_usage(ask, arguments):
    assert ask(*arguments)[0] == 2


def test_it_returns_when_every_node_has_heard(settings, ask):
    said_s: list[float] = []

    def hear(incarnations):
        async def later(store):
            deadline = time.monotonic() + 10
            while (await store.pauses()).version == 0:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            for node in ("n1", "n2"):
                await asyncio.sleep(0.3)
                said_s.append(time.monotonic())
                await store.report(report(node, incarnations[node], pause_version=1))

        in_a_loop(settings, later)

    with clusters.members(settings, {"n1": 1.0, "n2": 1.0}) as (_, incarnations):
        nodes = threading.Thread(target=hear, args=(incarnations,))
        nodes.start()
        told = ask("pause", "--all")
        returned_s = time.monotonic()
        nodes.join()
    assert told == (0, {"all": True, "sites": [], "unheard": []})
    assert len(said_s) == 2
    assert said_s[1] < returned_s < said_s[1] + steering.HEARD_S / 2


def test_a_node_that_does_not_say_so_is_named(settings):
    async def wait(store):
        await store.report(report("old", 1, pause_version=0))
        await store.report(report("new", 1, pause_version=2))
        return await steering.unheard(store, ["old", "new", "none"], lambda one: one.pause_version >= 1, within_s=0.2)

    assert in_a_loop(settings, wait) == ["none", "old"]


def test_status_and_site_say_that_it_is_paused(settings, ask, capsys):
    asyncio.run(seeding.seed_lines(settings, ["https://e.org/", "https://f.org/"]))
    assert ask("site", "e.org")[1]["paused"] is False
    ask("pause", "e.org")
    assert ask("site", "www.e.org")[1]["paused"] is True
    assert ask("site", "f.org")[1]["paused"] is False
    assert ask("status")[1]["paused"] == {"all": False, "sites": ["e.org"]}
    ask("pause", "--all")
    assert ask("site", "f.org")[1]["paused"] is True
    assert cli.main(["status", *clusters.arguments(settings)]) == 0
    told = capsys.readouterr().out
    assert "the whole crawl is paused" in told
    assert "paused: e.org" in told


def test_status_says_that_nodes_have_other_scopes(settings, capsys):
    with clusters.members(settings, {"n1": 1.0, "n2": 1.0}) as (_, incarnations):

        async def say(store, other):
            await store.report(report("n1", incarnations["n1"], scope="a"))
            await store.report(report("n2", incarnations["n2"], scope=other))

        for other, differs in (("a", False), ("b", True)):
            in_a_loop(settings, lambda store, other=other: say(store, other))
            assert cli.main(["status", *clusters.arguments(settings)]) == 0
            assert ("scope settings differ" in capsys.readouterr().out) is differs
