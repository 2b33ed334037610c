"""The JSON Lines sink has a page's whole line on file before its commit, and survives a kill."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from node.sinks import jsonl
from shared import records
from tests.node.visited import START_MS, URL, visited


async def test_a_page_is_one_line_of_json_with_every_field(tmp_path: Path) -> None:
    sink = jsonl.JsonlSink(tmp_path / "pages-n1.jsonl")
    await sink.write(visited(title="Caf\u00e9", links=("https://a.example/x",)))
    await sink.write(visited(url="https://b.example/"))
    sink.close()
    first, second = (json.loads(line) for line in (tmp_path / "pages-n1.jsonl").read_text().splitlines())
    assert list(first) == list(jsonl.PageLine.__struct_fields__)
    assert (first["title"], first["links"]) == ("Caf\u00e9", ["https://a.example/x"])
    assert (first["truncated"], first["redirect"], first["etag"]) == (None, None, None)
    assert (second["url"], second["title"], second["links"]) == ("https://b.example/", None, [])


async def test_what_was_written_before_a_kill_is_there_and_the_next_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    program = (
        "import asyncio, os, pathlib, signal, sys\n"
        "from node.sinks import jsonl\n"
        "from tests.node.visited import visited\n"
        "sink = jsonl.JsonlSink(pathlib.Path(sys.argv[1]))\n"
        "for number in range(100):\n"
        "    asyncio.run(sink.write(visited(depth=number)))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    done = await asyncio.to_thread(subprocess.run, command, cwd=Path(__file__).parents[2], timeout=30, check=False)
    assert done.returncode == -signal.SIGKILL
    with path.open("ab") as file:
        file.write(b'{"depth": 10')
        os.fsync(file.fileno())
    sink = jsonl.JsonlSink(path)
    await sink.write(visited(depth=100))
    sink.close()
    assert [json.loads(line)["depth"] for line in path.read_text().splitlines()] == list(range(101))


async def test_a_visit_is_told_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    sink = jsonl.JsonlSink(tmp_path / "pages-n1.jsonl")
    await sink.write(
        visited(
            b"hello",
            outcome=records.Fetched(
                status=200, headers=(("ETag", '"a"'), ("Last-Modified", "then")), body=b"hello", truncated="size"
            ),
            answer={"tls_fault": "tls_expired"},
            visit="recrawl",
            depth=4,
            canonical="https://a.example/c",
            duplicate=records.ContentRef(url="https://b.example/", fetched_ms=1),
            content=0xAB,
            rate=(0.5, 0.1, 2.0),
        )
    )
    await sink.write(visited(b"", outcome=records.Redirected(status=301, location="/x")))
    await sink.write(visited(b"", outcome=records.NotModified()))
    await sink.write(visited(visit="robots"))
    await sink.write(visited(outcome=records.Failed(reason="timeout")))
    sink.sync()
    sink.close()
    page, moved, same = (json.loads(line) for line in (tmp_path / "pages-n1.jsonl").read_text().splitlines())
    expected = {
        "url": URL,
        "fetched_ms": START_MS,
        "status": 200,
        "visit": "recrawl",
        "depth": 4,
        "bytes": 5,
        "canonical": "https://a.example/c",
        "duplicate_of": "https://b.example/",
        "tls_fault": "tls_expired",
        "payload": "sha1:VL2MMHO4YXUKFWV63YHTWSBM3GXKSQ2N",
        "content": "00000000000000ab",
        "truncated": "size",
        "change_rate": 0.5,
        "change_rate_low": 0.1,
        "change_rate_high": 2.0,
        "etag": '"a"',
        "last_modified": "then",
    }
    assert {name: page[name] for name in expected} == expected
    assert (moved["status"], moved["redirect"], moved["duplicate_of"]) == (301, "/x", None)
    assert (same["status"], same["bytes"]) == (304, 0)
