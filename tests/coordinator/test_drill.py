"""`crawlring drill` refuses what cannot be drilled, and judges by the logs what happened since."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from coordinator import cli, drill_logs, nodes, relay, up
from shared import errors, records

BEGAN_MS = 1_000_000


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("burn", "invalid choice"),
        ("freeze --seconds 0", "more than 0"),
        ("freeze --seconds soon", "invalid"),
        ("kill --seconds 5", "stays dead"),
        ("freeze --store redis", "restart-store"),
        ("kill --from etcd", "partition"),
        ("restart-store --node n1", "everybody's"),
        ("kill-lease", "no `crawlring up`"),
    ],
)
def test_wrong_usage_is_2_and_says_what_is_wrong(
    arguments: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert cli.main(["drill", *arguments.split(), f"--data={tmp_path}"]) == cli.USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("etcd", "redis"),
    [
        ("127.0.0.1:1", "rediss://127.0.0.1:2/0"),
        ("127.0.0.1:1", "redis-cluster://127.0.0.1:2,127.0.0.1:3"),
        ("https://127.0.0.1:1", "redis://127.0.0.1:2/0"),
    ],
)
def test_a_relay_where_certificates_or_a_cluster_would_see_it_is_refused(etcd: str, redis: str):
    with pytest.raises(errors.ConfigError, match="plain connections"):
        up._behind(up.Stores(etcd, redis, ()))


def test_a_node_sees_its_stores_through_its_relays_and_keeps_its_password():
    where = up.Stores("10.0.0.1:2379,10.0.0.2", "redis://user:secret@10.0.0.3/4?timeout=1", ())
    behind = up._behind(where)
    assert behind == {"etcd": [("10.0.0.1", 2379), ("10.0.0.2", 2379)], "redis": [("10.0.0.3", 6379)]}
    relays = {store: [relay.Relay(*one) for one in addresses] for store, addresses in behind.items()}
    for port, one in enumerate((*relays["etcd"], *relays["redis"]), 1):
        one.address = f"127.0.0.1:{port}"
    place = up._relayed(nodes.Place(where.etcd, where.redis, "c", Path("out"), Path("logs")), relays)
    assert place.etcd == "127.0.0.1:1,127.0.0.1:2"
    assert place.redis == "redis://user:secret@127.0.0.1:3/4?timeout=1"


def line(start_ms: int, url: str = "http://a.test/1", *, tenure: int = 5, node: str = "n1") -> records.CrawlLine:
    return records.CrawlLine(
        start_ms=start_ms,
        site="a.test",
        url=url,
        node=node,
        epoch=tenure,
        tenure=tenure,
        status=200,
        outcome="fetched",
        visit="first",
        bytes=1,
        ms=1,
        delay_ms=1_000,
        due_term="minimum",
        clock_error_ms=0,
    )


def judged(folder: Path, *lines: records.CrawlLine):
    """The requests and findings of a drill that began at BEGAN_MS."""
    for node in {one.node for one in lines}:
        raws = [records.encode_json(one) + b"\n" for one in lines if one.node == node]
        (folder / f"crawl-{node}.jsonl").write_bytes(b"".join(raws) + b'{"start_ms": 1000000, "si')
    scene = SimpleNamespace(
        link=SimpleNamespace(hello=SimpleNamespace(out=str(folder))), began_ms=BEGAN_MS, entries=[], store_ahead_ms=0
    )
    return drill_logs.audited(scene)


def test_what_was_wrong_before_the_drill_is_not_its_fault(tmp_path: Path):
    before = [line(BEGAN_MS - 5_000, "u0"), line(BEGAN_MS - 4_900, "u1"), line(BEGAN_MS - 3_000, "u1", tenure=6)]
    lines, found = judged(tmp_path, *before, line(BEGAN_MS + 100, "u3", tenure=6))
    assert (len(lines), found.gaps, found.repeats, found.violations) == (1, 1, 0, ())


def test_a_gap_too_short_across_nodes_and_a_repeat_are_found(tmp_path: Path):
    lines, found = judged(
        tmp_path,
        line(BEGAN_MS - 500, "u1"),
        line(BEGAN_MS + 300, "u2", node="n2", tenure=6),
        line(BEGAN_MS + 2_000, "u1", node="n2", tenure=6),
    )
    assert (len(lines), found.repeats, found.smallest_gap_ratio) == (2, 1, 0.8)
    assert [(one.promise, one.reason) for one in found.violations] == [("P1", "gap_too_short")]


def test_a_repeat_is_seen_though_the_page_was_asked_for_before(tmp_path: Path):
    """The minute before is background: without it this would be a first visit."""
    _, found = judged(tmp_path, line(BEGAN_MS - 59_000, "u1"), line(BEGAN_MS + 5_000, "u1", tenure=6))
    assert found.repeats == 1
    (tmp_path / "later").mkdir()
    _, found = judged(tmp_path / "later", line(BEGAN_MS - 61_000, "u1"), line(BEGAN_MS + 5_000, "u1", tenure=6))
    assert found.repeats == 0


def test_without_a_request_there_is_nothing_to_judge(tmp_path: Path):
    assert judged(tmp_path, line(BEGAN_MS - 10)) == ([], None)


def test_the_node_resumes_with_its_own_request_and_a_store_with_anybodys():
    lines = [drill_logs.Line(10, "n1"), drill_logs.Line(25, "n2"), drill_logs.Line(30, "n1")]
    for node, expected in (("n1", 30), (None, 25), ("n3", None)):
        assert drill_logs.resumed(SimpleNamespace(healed_ms=20, node=node), lines) == expected
    assert drill_logs.resumed(SimpleNamespace(healed_ms=None, node="n1"), lines) is None
