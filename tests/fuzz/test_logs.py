"""Logs of any bytes: audit judges what can be read and counts the rest; nothing in a log ends it."""

import itertools
import tempfile
from pathlib import Path

from hypothesis import example
from hypothesis import strategies as st

from coordinator import auditing
from shared import errors, handoffs, records
from tests.fuzz import budget

GOOD_CRAWL = records.CrawlLine(
    start_ms=1_700_000_000_000,
    site="a.test",
    url="http://a.test/",
    node="n1",
    epoch=1,
    tenure=1,
    status=200,
    outcome="fetched",
    visit="first",
    bytes=1,
    ms=1,
    delay_ms=1_000,
    due_term="minimum",
    clock_error_ms=5,
)
GOOD_MOVE = records.Handoff(
    kind="moved",
    time_ms=1_700_000_000_000,
    epoch=2,
    node="n2",
    site="a.test",
    from_node="n1",
    to="n2",
    settled_by="ack",
)
numbers = st.integers(-(2**63), 2**64 - 1) | st.sampled_from([0, 1, 1_700_000_000_000, 10**25, -1])
values = (
    numbers
    | st.none()
    | st.booleans()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["a.test", "n1", "n2", "fetched", "first", "failed:guard", "moved", "first_fetch", "epoch", []])
)


def changed(record: records.Record, changes: dict[str, object]) -> bytes:
    """The record's line with some fields changed, as JSON that need not be a record any more."""
    import json  # noqa: PLC0415 - it writes NaN, lone surrogates and big numbers, as a damaged file may hold

    plain = json.loads(records.encode_json(record))
    return json.dumps({**plain, **changes}).encode()


def lines_of(record: records.Record):
    names = sorted(records.msgspec.structs.asdict(record))
    return st.dictionaries(st.sampled_from([*names, "from", "extra"]), values, max_size=4).map(
        lambda changes: changed(record, changes)
    )


JUNK = [
    b"",
    b"{",
    b"[]",
    b"5",
    b'"x"',
    b"null",
    b"\xff\xfe",
    b"\x00" * 9,
    b'{"site":',
    b"[" * 3_000,
    b'{"a":' * 3_000,
    b"{}",
    b'{"site":"\\ud800"}',
]
crawl_logs = st.lists(lines_of(GOOD_CRAWL) | st.sampled_from(JUNK) | st.binary(max_size=20), max_size=8).map(b"\n".join)
move_logs = st.lists(lines_of(GOOD_MOVE) | st.sampled_from(JUNK) | st.binary(max_size=20), max_size=6).map(b"\n".join)


@budget.tried(crawl_logs, move_logs, share=4)
@example(changed(GOOD_CRAWL, {"tenure": -2}), b"")
def test_audit_reports_or_says_that_there_was_nothing_to_read(crawl, moves):
    with tempfile.TemporaryDirectory() as folder:
        log, said = Path(folder) / "crawl-n1.jsonl", Path(folder) / "handoffs.jsonl"
        log.write_bytes(crawl)
        said.write_bytes(moves)
        bad = itertools.count()
        entries = handoffs.read_file(said, on_bad=lambda: next(bad))
        try:
            report = auditing.judge([log], entries)
        except errors.ConfigError as error:
            report, said = None, str(error)
    if report is None:
        assert "nothing to audit" in said
        return
    assert report.requests >= 1
    assert report.violations_total >= len(report.violations)
    assert records.encode_json(report)
    assert auditing.told(report)


@budget.tried(lines_of(GOOD_MOVE) | st.sampled_from(JUNK) | st.binary(max_size=40), share=4)
def test_a_handoff_line_is_an_entry_or_a_value_error(line):
    try:
        entry = handoffs.parse_line(line)
    except ValueError:
        return
    handoffs.matches(entry, site="a.test", node="n1", epoch=2)
    assert handoffs.parse_line(handoffs.json_line(entry)).site == entry.site
