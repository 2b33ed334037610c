"""The audit command finds what is planted in real files, however the log is parted, and says when it read nothing."""

import asyncio
import json

import pytest

from coordinator import auditing, cli
from shared import frontier, records
from tests.coordinator import clusters

BASE_MS = 1_700_000_000_000
DELAY_MS = 1_000


def line(site, start_ms, **fields):
    plain = {
        "url": f"http://{site}/{start_ms}",
        "node": "n1",
        "epoch": 10,
        "tenure": 10,
        "status": 200,
        "outcome": "fetched",
        "visit": "first",
        "bytes": 1,
        "ms": 1,
        "delay_ms": DELAY_MS,
        "due_term": "minimum",
        "clock_error_ms": 5,
    }
    return records.CrawlLine(site=site, start_ms=BASE_MS + start_ms, **(plain | fields))


def moved(site, **fields):
    plain = {"node": "n2", "cause": "joined", "from_node": "n1", "to": "n2", "settled_by": "ack"}
    return records.Handoff(kind="moved", time_ms=BASE_MS, epoch=20, site=site, **(plain | fields))


def write(path, lines):
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(records.encode_json(one) + b"\n" for one in lines))


def polite(site, *, count=5):
    first = [line(site, DELAY_MS * number) for number in range(count)]
    second = [line(site, DELAY_MS * (count + 1 + number), node="n2", tenure=20, epoch=20) for number in range(count)]
    return first, second


@pytest.fixture
def out(tmp_path):
    """Logs of two nodes and three sites, with nothing wrong in them."""
    logs = [polite(site) for site in ("a.test", "b.test", "c.test")]
    write(tmp_path / "out" / "crawl-n1.jsonl", [one for first, _ in logs for one in first])
    write(tmp_path / "out" / "crawl-n2.jsonl", [one for _, second in logs for one in second])
    write(tmp_path / "handoffs.jsonl", [moved(site) for site in ("a.test", "b.test", "c.test")])
    return tmp_path / "out"


def audited(out, capsys, *more):
    status = cli.main(["audit", str(out), *more, f"--handoffs={out.parent / 'handoffs.jsonl'}", "--json"])
    return status, json.loads(capsys.readouterr().out or "null")


def append(path, *lines):
    with path.open("ab") as log:
        log.writelines(records.encode_json(one) + b"\n" for one in lines)


def test_good_logs_are_0_with_every_key_of_the_contract(out, capsys):
    status, told = audited(out, capsys)
    assert status == 0
    assert {name: told[name] for name in ("requests", "sites", "handoffs", "violations", "repeats")} == {
        "requests": 30,
        "sites": 3,
        "handoffs": 3,
        "violations": [],
        "repeats": 0,
    }
    assert told["smallest_gap_ratio"] == 1.0
    assert (told["files"], told["bad_lines"], told["unjudged"], told["gaps"]) == (2, 0, 0, 27)


@pytest.mark.parametrize(
    ("planted", "promise", "reason"),
    [
        ([line("b.test", 500)], "P1", "gap_too_short"),
        ([line("b.test", 20_000)], "P4", "older_tenure_after_newer"),
        ([line("d.test", 0), line("d.test", 5_000, node="n3")], "P4", "tenure_of_two_nodes"),
        ([line("b.test", 0, url="http://b.test/1000", delay_ms=0)], "P3", "repeat_in_tenure"),
    ],
)
def test_each_planted_fault_is_found_and_is_1(out, capsys, planted, promise, reason):
    append(out / "crawl-n3.jsonl", *planted)
    status, told = audited(out, capsys)
    assert status == 1
    assert (promise, reason) in [(one["promise"], one["reason"]) for one in told["violations"]]
    assert {one["site"] for one in told["violations"]} <= {"b.test", "d.test"}


def test_the_handoffs_decide_whether_a_repeat_is_allowed(out, capsys):
    again = line("a.test", 30_000, node="n2", tenure=20, url="http://a.test/0")
    append(out / "crawl-n2.jsonl", again)
    status, told = audited(out, capsys)
    assert (status, told["repeats"], told["violations"][0]["reason"]) == (1, 1, "repeat_after_ack")
    write(out.parent / "handoffs.jsonl", [moved("a.test", settled_by="time", cause="lease_lost")])
    status, told = audited(out, capsys)
    assert (status, told["repeats"], told["handoffs"]) == (0, 1, 1)


def test_lines_that_cannot_be_read_are_counted_and_told(out, capsys):
    with (out / "crawl-n1.jsonl").open("ab") as log:
        log.write(b'{"site":"a.test","node":"n1","clock_error_ms":5}\n[]\n\n\xff\xfe\n{"start_ms":17')
    status = cli.main(["audit", str(out), f"--handoffs={out.parent / 'handoffs.jsonl'}", "--json"])
    printed = capsys.readouterr()
    assert status == 0
    assert json.loads(printed.out)["bad_lines"] == 4
    assert "4 lines could not be read" in printed.err


def test_the_same_log_given_twice_is_read_once(out, capsys):
    status, told = audited(out, capsys, str(out / "crawl-n1.jsonl"), str(out))
    assert (status, told["requests"]) == (0, 30)


@pytest.mark.parametrize("content", [b"", b"\n", b"no json\n"])
def test_nothing_to_read_is_2(tmp_path, capsys, content):
    (tmp_path / "crawl-n1.jsonl").write_bytes(content)
    assert cli.main(["audit", str(tmp_path), "--handoffs=/dev/null"]) == 2
    assert "nothing to audit" in capsys.readouterr().err


def test_a_folder_without_logs_is_2(tmp_path, capsys):
    assert cli.main(["audit", str(tmp_path), "--handoffs=/dev/null"]) == 2
    assert "no crawl-*.jsonl" in capsys.readouterr().err


def test_however_the_log_is_parted_the_findings_are_the_same(out):
    append(out / "crawl-n1.jsonl", line("b.test", 500), line("c.test", 700))
    found = []
    for parts in (1, 2, 7):
        with auditing.Spool(parts) as spool:
            for log in auditing.crawl_logs([out]):
                spool.add_log(log)
            spool.add_handoffs([moved("a.test"), None])
            found.append(spool.judge())
            assert spool.bad_lines == 1
    assert [sorted(one.site for one in each.violations) for each in found] == [
        ["b.test", "b.test", "c.test", "c.test"]
    ] * 3
    assert {(one.requests, one.sites, one.handoffs, one.gaps, one.smallest_gap_ratio) for one in found} == {
        (32, 3, 1, 29, 0.3)
    }


def test_without_a_file_the_handoffs_come_from_the_store(out, capsys, valkey, cluster):
    async def append_moves():
        store = await frontier.Frontier.open(valkey, cluster)
        try:
            await store.append_handoffs([moved(f"s{number}.test") for number in range(2_500)])
            await store.append_handoffs([records.Handoff(kind="epoch", time_ms=1, epoch=20, node="n1")])
        finally:
            await store.close()

    asyncio.run(append_moves())
    settings = clusters.settings_of("127.0.0.1:1", valkey, cluster)
    assert cli.main(["audit", str(out), "--json", *clusters.arguments(settings)]) == 0
    assert json.loads(capsys.readouterr().out)["handoffs"] == 2_500


def test_what_handoffs_prints_is_what_audit_reads(out, capsys, valkey, cluster):
    async def append_moves():
        store = await frontier.Frontier.open(valkey, cluster)
        try:
            await store.append_handoffs([moved("a.test", to="n9"), moved("b.test")])
        finally:
            await store.close()

    asyncio.run(append_moves())
    assert cli.main(["handoffs", "--json", f"--redis={valkey}", f"--cluster={cluster}"]) == 0
    (out.parent / "handoffs.jsonl").write_text(capsys.readouterr().out)
    status, told = audited(out, capsys)
    assert (status, told["handoffs"]) == (1, 2)
    assert [one["reason"] for one in told["violations"]] == ["request_of_another_owner"]


def test_a_reader_sees_which_promise_is_broken_where(out, capsys):
    append(out / "crawl-n1.jsonl", line("b.test", 500))
    assert cli.main(["audit", str(out), f"--handoffs={out.parent / 'handoffs.jsonl'}"]) == 1
    told = capsys.readouterr().out
    assert "P1 gap      BROKEN" in told
    assert "P4 fencing  kept" in told
    assert "P1 gap_too_short b.test by n1 after n1" in told
