"""The reading commands print what scripts rely on, key by key, from a real etcd and a real store."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from coordinator import cli, seeding
from shared import frontier, records, ring
from tests.coordinator import clusters

ROOT = Path(__file__).parent.parent.parent


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


async def stored(settings, *steps):
    store = await frontier.Frontier.open(settings.redis, settings.cluster)
    try:
        return [await step(store) for step in steps]
    finally:
        await store.close()


def in_a_loop(settings, *steps):
    return asyncio.run(stored(settings, *steps))


def seed(settings, *lines):
    return asyncio.run(seeding.seed_lines(settings, lines))


def report(settings, node, incarnation, **figures):
    async def step(store):
        now_ms = await store.ping()
        plain = {"epoch": 1, "weight": 1.0, "address": "127.0.0.1:1", "time_ms": now_ms, "state": "member"}
        await store.report(records.NodeReport(id=node, incarnation=incarnation, **(plain | figures)))

    in_a_loop(settings, step)


NODE_KEYS = {"id", "incarnation", "weight", "share", "sites", "pending", "in_flight", "pages"}


def test_status_has_every_member_and_says_which_is_silent(settings, ask):
    seed(settings, "https://a.test/", "https://b.test/")
    with clusters.members(settings, {"n1": 1.0, "n2": 3.0, "n3": 1.0}) as (epoch, incarnations):
        report(settings, "n1", incarnations["n1"], sites=2, pending=5, later=1, in_flight=1, pages=7)
        report(settings, "n2", incarnations["n2"], sites=3, pending=2, pages=4, time_ms=1)  # long ago
        report(settings, "n3", incarnations["n3"] - 1, pending=99)  # of an earlier life
        status, told = ask("status")
    assert status == 0
    assert (told["epoch"], told["sites"]) == (epoch, 2)
    assert (told["pending"], told["later"], told["pages"]) == (7, 1, 11)
    assert [node["id"] for node in told["nodes"]] == ["n1", "n2", "n3"]
    assert all(node.keys() >= NODE_KEYS for node in told["nodes"])
    assert [node["state"] for node in told["nodes"]] == ["member", "silent", "silent"]
    assert [node["pending"] for node in told["nodes"]] == [5, 2, None]
    assert [node["incarnation"] for node in told["nodes"]] == list(incarnations.values())
    assert sum(node["share"] for node in told["nodes"]) == pytest.approx(1)
    assert told["nodes"][1]["share"] > 0.5


def test_status_without_nodes_does_not_say_that_nothing_is_pending(settings, ask):
    seed(settings, "https://a.test/")
    assert ask("status") == (
        0,
        {
            "epoch": 0,
            "nodes": [],
            "sites": 1,
            "joining": [],
            "paused": {"all": False, "sites": []},
            "pending": None,
            "later": None,
            "in_flight": None,
            "pages": None,
        },
    )


def test_owner_is_what_the_ring_says_and_an_override_wins(settings, ask):
    weights = {"n1": 1.0, "n2": 1.0, "n3": 1.0}
    circle = ring.Ring.build(weights, algorithm="xxh3-64", vnodes=1024)
    with clusters.members(settings, weights, overrides={"placed.test": "n2"}) as (epoch, _):
        for number in range(5):
            status, told = ask("owner", f"https://www.s{number}.test/x#y")
            assert status == 0
            assert told == {
                "url": f"https://www.s{number}.test/x",
                "site": f"s{number}.test",
                "position": str(ring.position("xxh3-64", f"s{number}.test")),
                "node": circle.owner(f"s{number}.test"),
                "epoch": epoch,
            }
        assert ask("owner", "placed.test")[1]["node"] == "n2"


def test_owner_is_1_before_any_node_and_2_for_what_is_no_url(settings, ask):
    status, told = ask("owner", "https://a.test/")
    assert (status, told["node"], told["epoch"]) == (1, None, 0)
    assert ask("owner", "http://") == (2, None)


SITE_KEYS = {
    "site",
    "owner",
    "epoch",
    "tenure",
    "pending",
    "head",
    "later",
    "seen",
    "validators",
    "last_fetch_ms",
    "due_ms",
    "due_term",
    "delay_ms",
    "backoff",
    "change_rate",
    "robots",
}


def test_site_tells_the_record_and_who_may_act_now(settings, ask):
    seed(settings, "https://www.a.test/1", "https://a.test/2")
    with clusters.members(settings, {"n1": 1.0}) as (epoch, _):
        in_a_loop(settings, lambda store: store.claim(["a.test"], "n0", 3, delay_s=2.0))
        for name in ("a.test", "www.a.test", "https://a.test/2"):
            status, told = ask("site", name)
            assert status == 0
            assert told.keys() >= SITE_KEYS
            assert (told["site"], told["owner"], told["epoch"]) == ("a.test", "n1", epoch)
            assert (told["claimed_by"], told["tenure"]) == ("n0", 3)
            assert (told["pending"], told["seen"]) == (2, 2)
            assert told["head"] == ["https://www.a.test/1", "https://a.test/2"]
            assert (told["change_rate"], told["robots"]) == (None, {})


def test_a_site_never_heard_of_is_1(settings, ask):
    assert ask("site", "nowhere.test") == (1, None)


def test_ring_shows_shares_arcs_and_overrides(settings, ask):
    with clusters.members(settings, {"n1": 1.0, "n2": 0.5}, overrides={"a.test": "n2"}) as (epoch, _):
        status, told = ask("ring")
    assert (status, told["epoch"], told["algorithm"], told["vnodes"]) == (0, epoch, "xxh3-64", 1024)
    assert told["overrides"] == {"a.test": "n2"}
    assert [node["arcs"] > 0 for node in told["nodes"]] == [True, True]
    assert sum(node["share"] for node in told["nodes"]) == pytest.approx(1)


def moved(site, epoch, **fields):
    plain = {"kind": "moved", "time_ms": 1, "node": "n2", "cause": "joined", "from_node": "n1", "to": "n2"}
    return records.Handoff(site=site, epoch=epoch, **(plain | fields))


def test_handoffs_are_lines_of_the_contract_and_filters_choose(settings, capsys):
    entries = [
        moved("a.test", 5, pending=3, settled_by="ack"),
        moved("b.test", 5, to="n3"),
        moved("a.test", 7, from_node="n2", to="n1"),
        records.Handoff(kind="epoch", time_ms=2, epoch=7, node="n1", before=("n1", "n2"), after=("n1",)),
    ]
    in_a_loop(settings, lambda store: store.append_handoffs(entries))

    def lines(*arguments):
        assert cli.main(["handoffs", *arguments, *clusters.arguments(settings)]) == 0
        return capsys.readouterr().out.splitlines()

    told = [json.loads(line) for line in lines("--json")]
    assert [(one["kind"], one["site"], one["epoch"]) for one in told] == [
        ("moved", "a.test", 5),
        ("moved", "b.test", 5),
        ("moved", "a.test", 7),
        ("epoch", None, 7),
    ]
    assert (told[0]["from"], told[0]["to"], told[0]["pending"], told[0]["validators"]) == ("n1", "n2", 3, None)
    assert len(lines("--json", "--site=a.test")) == 2
    assert len(lines("--json", "--node=n3")) == 1
    assert len(lines("--json", "--epoch=7")) == 2
    assert len(lines("--json", "--epoch=7", "--site=b.test")) == 0
    assert "a.test: n1 -> n2" in lines()[0]


def test_follow_prints_what_comes_later_and_ends_quietly_on_an_interrupt(settings):
    in_a_loop(settings, lambda store: store.append_handoffs([moved("a.test", 5)]))
    command = [sys.executable, "-m", "coordinator.cli", "handoffs", "--follow", "--json"]
    with subprocess.Popen(
        [*command, *clusters.arguments(settings)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as follower:
        limit = threading.Timer(20, follower.kill)
        limit.start()
        try:
            assert json.loads(follower.stdout.readline())["site"] == "a.test"
            in_a_loop(settings, lambda store: store.append_handoffs([moved("b.test", 6)]))
            assert json.loads(follower.stdout.readline())["site"] == "b.test"
            follower.send_signal(signal.SIGINT)
            _, complaints = follower.communicate(timeout=10)
            assert (follower.returncode, complaints) == (130, "")
        finally:
            limit.cancel()
            follower.kill()


def test_tables_for_readers_name_every_node(settings, capsys):
    seed(settings, "https://a.test/")
    with clusters.members(settings, {"n1": 1.0, "n2": 1.0}):
        for command in (["status"], ["ring"], ["site", "a.test"], ["owner", "a.test"]):
            assert cli.main([*command, *clusters.arguments(settings)]) == 0
            out = capsys.readouterr().out
            assert "n1" in out or "n2" in out, command
