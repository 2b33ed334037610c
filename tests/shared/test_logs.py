"""Events go out as JSON lines, and a file of lines survives any crash but for its unfinished last line."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from shared import logs, records

LINE = records.CrawlLine(
    start_ms=1,
    site="a.example",
    url="https://a.example/",
    node="n1",
    epoch=5,
    tenure=4,
    status=200,
    outcome="fetched",
    visit="first",
    bytes=10,
    ms=3,
    delay_ms=2000,
    due_term="minimum",
    clock_error_ms=1,
)


@pytest.fixture(autouse=True)
def _defaults():
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def events(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_carries_what_was_bound_before_and_since() -> None:
    out = io.StringIO()
    logs.configure(stream=out, node="n1")
    log = logs.get("node.agent")
    log.info("joined", members=3)
    logs.bind(epoch=7)
    log.warning("lost", site="a.example")
    first, second = events(out)
    assert {
        "event": "joined",
        "node": "n1",
        "members": 3,
        "level": "info",
        "module": "node.agent",
    }.items() <= first.items()
    assert "epoch" not in first
    assert {
        "event": "lost",
        "node": "n1",
        "epoch": 7,
        "site": "a.example",
        "level": "warning",
    }.items() <= second.items()
    assert "timestamp" in second


def test_an_events_own_field_wins_over_a_bound_one() -> None:
    out = io.StringIO()
    logs.configure(stream=out, node="n1", epoch=1)
    logs.get("x").info("moved", epoch=2)
    assert events(out)[0]["epoch"] == 2


def test_events_below_the_level_and_an_earlier_processs_fields_are_left_out() -> None:
    out = io.StringIO()
    logs.configure(stream=out, node="old")
    logs.configure(stream=out, level="warning")
    logs.get("x").info("quiet")
    logs.get("x").error("loud", path=Path("x"))
    (event,) = events(out)
    assert event["event"] == "loud"
    assert "node" not in event


def test_an_exception_is_one_line() -> None:
    out = io.StringIO()
    logs.configure(stream=out)
    try:
        int("here")
    except ValueError:
        logs.get("x").exception("failed")
    (event,) = events(out)
    assert "ValueError: invalid literal" in str(event["exception"])


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_a_terminal_gets_text_and_no_color_is_honoured(
    monkeypatch: pytest.MonkeyPatch, no_color: str, coloured: bool
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("NO_COLOR", no_color)
    out = Terminal()
    logs.configure(stream=out, node="n1")
    logs.get("x").info("joined")
    assert "joined" in out.getvalue()
    assert ("\x1b[" in out.getvalue()) is coloured


def test_lines_are_in_the_file_when_write_returns(tmp_path: Path) -> None:
    path = tmp_path / "out" / "crawl-n1.jsonl"
    log = logs.CrawlLog(path)
    log.write(LINE)
    (read,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert read == json.loads(records.encode_json(LINE))
    assert [*read] == [
        *("start_ms", "site", "url", "node", "epoch", "tenure", "status", "outcome", "visit"),
        *("bytes", "ms", "delay_ms", "due_term", "clock_error_ms"),
    ]
    log.close()


@given(st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8"), min_size=1), max_size=6), st.data())
def test_a_file_cut_anywhere_opens_again_with_every_whole_line(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("lines") / "x.jsonl"
    file = logs.LinesFile(path)
    for line in lines:
        file.write(line.encode())
    file.close()
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    os.truncate(path, cut)
    again = logs.LinesFile(path)
    again.write(b"after")
    again.close()
    kept = whole[:cut].rpartition(b"\n")
    assert path.read_bytes() == kept[0] + kept[1] + b"after\n"
    assert again.repaired_bytes == len(kept[2])


def test_an_unfinished_line_longer_than_a_block_is_cut_too(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"whole\n" + b"x" * 300_000)
    file = logs.LinesFile(path)
    assert (path.read_bytes(), file.repaired_bytes) == (b"whole\n", 300_000)
    file.close()


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    """A file size limit stands for the full disk: the write that crosses it raises, and what was whole stays."""
    path = tmp_path / "x.jsonl"
    program = (
        "import pathlib, resource, signal, sys\n"
        "from shared import logs\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "file = logs.LinesFile(pathlib.Path(sys.argv[1]))\n"
        "file.write(b'first')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "try:\n"
        "    file.write(b'second line')\n"
        "except OSError:\n"
        "    sys.exit(7)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], cwd=Path(__file__).parents[2], timeout=30, check=False
    )
    assert done.returncode == 7
    assert path.read_bytes() == b"first\n"


def test_closing_twice_is_harmless_and_writing_after_it_an_error(tmp_path: Path) -> None:
    file = logs.LinesFile(tmp_path / "x")
    file.sync()
    file.close()
    file.close()
    with pytest.raises(ValueError, match="closed"):
        file.write(b"x")
