"""The JSON Lines sink has a page's whole line on file before its commit, and survives a kill."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from node.sinks import jsonl

PAGE = jsonl.PageLine(
    url="https://a.example/",
    site="a.example",
    node="n1",
    fetched_ms=5,
    status=200,
    title="Caf\u00e9",
    links=("https://a.example/x",),
    content_type="text/html",
    charset="utf-8",
    bytes=12,
    content="0f",
)


def test_a_page_is_one_line_of_json_with_every_field(tmp_path: Path) -> None:
    sink = jsonl.JsonlSink(tmp_path / "pages-n1.jsonl")
    sink.write(PAGE)
    sink.write({"url": "https://b.example/\n"})
    sink.close()
    first, second = (json.loads(line) for line in (tmp_path / "pages-n1.jsonl").read_text().splitlines())
    assert first["title"] == "Caf\u00e9"
    assert first["links"] == ["https://a.example/x"]
    assert (first["truncated"], first["redirect"], first["etag"]) == (None, None, None)
    assert second == {"url": "https://b.example/\n"}


def test_what_was_written_before_a_kill_is_there_and_the_next_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    program = (
        "import os, pathlib, signal, sys\n"
        "from node.sinks import jsonl\n"
        "sink = jsonl.JsonlSink(pathlib.Path(sys.argv[1]))\n"
        "for number in range(100):\n"
        "    sink.write({'n': number})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], cwd=Path(__file__).parents[2], timeout=30, check=False
    )
    assert done.returncode == -signal.SIGKILL
    with path.open("ab") as file:
        file.write(b'{"n": 10')
        os.fsync(file.fileno())
    sink = jsonl.JsonlSink(path)
    sink.write({"n": 100})
    sink.close()
    assert [json.loads(line)["n"] for line in path.read_text().splitlines()] == list(range(101))
