"""WARC files are what other programs' readers take them for, and a crash costs at most the request it cut short."""

import asyncio
import base64
import contextlib
import gzip
import hashlib
import io
import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from warcio import archiveiterator, checker

from coordinator import cli, warc_files
from node.sinks import pages, warc, warc_records
from shared import errors, records
from tests import corpus
from tests.node import origins, test_fetch
from tests.node.visited import AGENT, HTML, START_MS, URL, archive, visited

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"crawlring-\d{17}-\d{5}-n1\.warc\.gz")


class Read:
    """One record as warcio's reader, which is not ours, gives it."""

    def __init__(self, record: Any) -> None:
        self.type, self.fields, self.http = record.rec_type, record.rec_headers, record.http_headers
        self.block = record.raw_stream.read()

    def __getitem__(self, name: str) -> str | None:
        value: str | None = self.fields.get_header(name)
        return value


def read(*files: Path) -> list[Read]:
    found = []
    for file in files:
        with file.open("rb") as stream:
            found += [Read(record) for record in archiveiterator.ArchiveIterator(stream)]
    return found


def files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.warc.gz"))


def written(folder: Path, *found: pages.Visited, **options: Any) -> list[Read]:
    """Every record but warcinfo, after `warcio check` and our own have found nothing."""

    async def write() -> None:
        sink = archive(folder, **options)
        for page in found:
            assert await sink.write(page) is None
        sink.close()

    asyncio.run(write())
    sound(folder)
    return [record for record in read(*files(folder)) if record.type != "warcinfo"]


def sound(folder: Path) -> None:
    for file in files(folder):
        said = io.StringIO()
        judge = checker.Checker(type("Options", (), {"inputs": [str(file)], "verbose": False}))
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            assert (judge.process_all(), said.getvalue()) == (0, "")
        assert warc_files.check(file).problems == ()


def sha1(data: bytes) -> str:
    return f"sha1:{base64.b32encode(hashlib.sha1(data).digest()).decode()}"


# -- what is written


def test_a_page_is_a_response_a_request_and_metadata_that_name_each_other(tmp_path: Path) -> None:
    page = visited(links=("https://a.example/x", "https://b.example/"), depth=3, charset="cp1252", title="A")
    response, request, metadata = written(tmp_path, page)
    assert [one.type for one in (response, request, metadata)] == ["response", "request", "metadata"]
    for one in (response, request, metadata):
        assert one["WARC-Date"] == "2026-05-28T20:26:40.123Z"
        assert one["WARC-Target-URI"] == URL
        assert one["WARC-IP-Address"] == "192.0.2.7"
        assert (one["WARC-Block-Digest"] or "").startswith("sha1:")
    assert request["WARC-Concurrent-To"] == metadata["WARC-Concurrent-To"] == response["WARC-Record-ID"]
    assert response.block == b"<title>A</title>"
    assert response["WARC-Payload-Digest"] == sha1(b"<title>A</title>")
    assert response["Content-Type"] == "application/http; msgtype=response"
    assert request["Content-Type"] == "application/http; msgtype=request"
    assert request.http.get_header("user-agent") == AGENT
    said = metadata.block.decode().splitlines()
    assert "fetchTimeMs: 250" in said
    assert {"depth: 3", "charset-detected: cp1252", "title: A"} <= set(said)
    assert said[-2:] == ["outlink: https://a.example/x", "outlink: https://b.example/"]


def test_a_file_begins_with_what_made_it_and_each_record_is_a_gzip_member(tmp_path: Path) -> None:
    written(tmp_path, visited())
    (file,) = files(tmp_path)
    assert NAME.fullmatch(file.name)
    info = read(file)[0]
    assert (info.type, info["WARC-Filename"]) == ("warcinfo", file.name)
    said = dict(line.split(": ", 1) for line in info.block.decode().splitlines())
    assert said["format"] == "WARC File Format 1.1"
    assert (said["robots"], said["http-header-user-agent"], said["operator"]) == ("obey", AGENT, AGENT)
    assert said["software"].startswith("crawlring/")
    offsets = [entry.offset for entry in warc_files.entries(file)]
    data = file.read_bytes()
    assert len(offsets) == 4
    for start, end in zip(offsets, [*offsets[1:], len(data)], strict=True):
        assert gzip.decompress(data[start:end]).startswith(b"WARC/1.1\r\n")


@pytest.mark.parametrize("coding", [b"", b"Content-Encoding: gzip\r\n"], ids=["plain", "gzip"])
def test_case_warc_chunked_digest(tmp_path: Path, coding: bytes) -> None:
    """The same page with a length and chunked has one payload digest: content coding stays, transfer coding goes."""
    raw = gzip.compress(b"hello", mtime=0) if coding else b"hello"
    plain = visited(raw, head=b"HTTP/1.1 200 OK\r\n" + coding + b"Content-Length: %d\r\n\r\n" % len(raw))
    chunked = visited(raw, head=b"HTTP/1.1 200 OK\r\n" + coding + b"Transfer-Encoding: chunked\r\n\r\n")
    one, _, _, two, _, _ = written(tmp_path, plain, chunked)
    assert one["WARC-Payload-Digest"] == two["WARC-Payload-Digest"] == sha1(raw)
    assert one.block == two.block == raw


def test_case_warc_header_body_mismatch() -> None:
    """A head never says of the body what is not true of the one that was kept."""
    head = b"HTTP/1.1 200 OK\r\nA: 1\r\ntransfer-encoding: chunked\r\nContent-Length: 9\r\nB: 2\r\n\r\n"
    assert warc_records.agreeing(head, b"hello") == (
        b"HTTP/1.1 200 OK\r\nA: 1\r\nX-Archive-Orig-transfer-encoding: chunked\r\n"
        b"X-Archive-Orig-Content-Length: 9\r\nB: 2\r\nContent-Length: 5\r\n\r\n"
    )
    coded = b"HTTP/1.1 200 OK\nTransfer-Encoding: gzip, chunked\n\n"
    assert warc_records.agreeing(coded, b"abc") == (
        b"HTTP/1.1 200 OK\nX-Archive-Orig-Transfer-Encoding: gzip, chunked\nContent-Encoding: gzip\nContent-Length: 3\n\n"
    )
    for kept in (
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"HTTP/1.1 999 \xe9\x01\r\nX:\xff\x00y\r\n\r\n",
    ):
        assert warc_records.agreeing(kept, b"hello") == kept
    not_modified = b"HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n"
    assert warc_records.agreeing(not_modified, None) == not_modified


def test_what_came_is_written_byte_for_byte(tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 \xc3\xa9t\xe9\r\nX-A:  two  spaces\t\r\nX-B: \x01\xff;a=\xe4\r\nx-a: again\r\nContent-Length: 2\r\n\r\n"
    written(tmp_path, visited(b"ok", head=head))
    (file,) = files(tmp_path)
    entry = next(one for one in warc_files.entries(file) if one.type == "response")
    record = gzip.decompress(file.read_bytes()[entry.offset : entry.offset + entry.length])
    assert record.partition(b"\r\n\r\n")[2] == head + b"ok" + b"\r\n\r\n"


HEADS = st.lists(
    st.sampled_from(
        [
            b"A: b",
            b" ",
            b"\t",
            b"\x0b",
            b" folded",
            b"no colon",
            b"",
            b"\xc2\xa0",
            b"\xff: \xfe",
            b"Content-Length: 5",
            b"content-length : 7",
            b"Transfer-Encoding: chunked",
            b"Content-Encoding: gzip",
            b": x",
        ]
    ),
    max_size=8,
)


@given(lines=HEADS, end=st.sampled_from([b"\r\n", b"\n"]), body=st.binary(max_size=40), ended=st.booleans())
@example(lines=[b"Content-Length: 5", b" folded"], end=b"\r\n", body=b"12345", ended=True)
@example(lines=[b"Transfer-Encoding:", b"\tchunked"], end=b"\n", body=b"12345", ended=True)
def test_no_head_makes_a_reader_take_another_body_than_ours(
    lines: list[bytes], end: bytes, body: bytes, ended: bool
) -> None:
    head = end.join([b"HTTP/1.1 200 OK", *lines]) + end * (2 if ended else 1)
    data = warc_records.members(visited(body, head=head))
    for record in archiveiterator.ArchiveIterator(io.BytesIO(data), check_digests=True):
        got = record.raw_stream.read()
        assert record.digest_checker.passed is not False, record.digest_checker.problems
        if record.rec_type == "response":
            assert got == body
            if "Transfer-Encoding: chunked" in str(head):
                assert record.http_headers.get_header("transfer-encoding") is None
            assert record.http_headers.get_header("content-length") in {None, str(len(body))}


def test_a_304_is_a_revisit_that_names_the_capture_it_stands_for(tmp_path: Path) -> None:
    head = b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n'
    captured = {"captured_ms": START_MS - 9_000, "payload": pages.base32(pages.payload_of(b"<p>x"))}
    before = records.PageRecord(etag='"a"', last_check_ms=START_MS - 5_000, **captured)
    same = visited(b"", head=head, outcome=records.NotModified(), before=before)
    others = [
        visited(b"", head=head, outcome=records.NotModified(), before=page)
        for page in (
            None,
            records.PageRecord(last_check_ms=1, **captured),
            records.PageRecord(etag='"a"', doubts=3, **captured),
            records.PageRecord(etag='"a"', last_check_ms=1),
        )
    ]
    revisit, _, _, *rest = written(tmp_path, same, *others)
    assert revisit.type == "revisit"
    assert revisit["WARC-Profile"] == "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
    assert revisit["WARC-Refers-To-Target-URI"] == URL
    assert revisit["WARC-Refers-To-Date"] == "2026-05-28T20:26:31.123Z", "of the body's record, not of the last look"
    assert revisit["WARC-Payload-Digest"] == sha1(b"<p>x"), "WARC 1.1 section 6.7.3"
    assert (revisit.block, revisit.http.get_header("etag")) == (b"", '"a"')
    assert [one.type for one in rest[::3]] == ["response"] * 4, "not asked for with a condition, or of no archived body"


def test_a_duplicate_is_a_revisit_of_the_url_that_had_it_first(tmp_path: Path) -> None:
    first = visited(b"the same", url="https://b.example/")
    copy = visited(
        b"the same",
        head=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX: y\r\n\r\n",
        start_ms=START_MS + 60_000,
        duplicate=records.ContentRef(url="https://b.example/", fetched_ms=START_MS),
    )
    original, _, _, revisit, _, metadata = written(tmp_path, first, copy)
    assert revisit.type == "revisit"
    assert revisit["WARC-Profile"] == "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
    assert revisit["WARC-Payload-Digest"] == original["WARC-Payload-Digest"] == sha1(b"the same")
    assert revisit["WARC-Refers-To-Target-URI"] == original["WARC-Target-URI"]
    assert revisit["WARC-Refers-To-Date"] == original["WARC-Date"]
    assert revisit["WARC-Truncated"] == "length"  # WARC 1.1 section 6.7.2
    assert (revisit.block, revisit.http.get_header("x")) == (b"", "y")
    assert revisit.http.get_header("content-length") == "8", "replayed with the original's body"
    assert b"duplicate-of: https://b.example/\r\n" in metadata.block


@pytest.mark.parametrize(
    ("outcome", "length", "reason"),
    [
        (records.Fetched(status=200, headers=(), body=b"", truncated="size"), 99, "length"),
        (records.Fetched(status=200, headers=(), body=b"", truncated="time"), 99, "time"),
        (records.Fetched(status=200, headers=(), body=b"", truncated="connection"), 99, "disconnect"),
        (records.Fetched(status=200, headers=(), body=b"", truncated="encoding"), 99, "unspecified"),
        (records.Fetched(status=200, headers=(), body=b"", truncated="encoding"), 4, None),
        (records.Fetched(status=200, headers=(), body=b"", truncated="type"), 99, "unspecified"),
        (records.Fetched(status=404, headers=(), body=b""), 4, None),
        (records.Redirected(status=301, location="/x"), 99, "unspecified"),
        (records.Redirected(status=301, location="/x"), 4, None),
        (records.Failed(reason="timeout"), 99, "time"),
        (records.Failed(reason="disconnected"), 99, "disconnect"),
        (records.Failed(reason="bad_redirect"), 99, "unspecified"),
    ],
    ids=str,
)
def test_a_body_that_is_not_whole_says_why(
    tmp_path: Path, outcome: records.Outcome, length: int, reason: str | None
) -> None:
    copy = records.ContentRef(url="https://b.example/", fetched_ms=1)
    response, _, _ = written(
        tmp_path, visited(b"part", head=HTML % length, outcome=outcome, duplicate=copy if reason else None)
    )
    assert response.type == "response", "part of a body stands for nothing"
    assert response["WARC-Truncated"] == reason
    assert response.http.get_header("content-length") == "4"
    assert response.http.get_header("x-archive-orig-content-length") == (None if length == 4 else "99")


def test_without_a_head_there_is_nothing_to_archive(tmp_path: Path) -> None:
    nothing = visited(b"", head=b"", outcome=records.Failed(reason="connect"))
    assert written(tmp_path, nothing) == []
    assert files(tmp_path) == []


def test_robots_txt_is_archived_too(tmp_path: Path) -> None:
    response, _, metadata = written(tmp_path, visited(b"User-agent: *\n", url=URL + "/robots.txt", visit="robots"))
    assert response.block == b"User-agent: *\n"
    assert b"visit: robots" in metadata.block


async def test_what_a_real_fetch_brought_is_archived_as_it_was(tmp_path: Path) -> None:
    """Over a socket: the same page with a length, chunked and gzipped; a cut one; one with odd bytes in its head."""
    packed = gzip.compress(b"hello" * 50, mtime=0)
    bodies = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed,
        b"HTTP/1.1 200 OK\r\nX-Odd: \xe9\r\nContent-Length: 99\r\n\r\nhello",
    ]

    async def script(visitor: origins.Visitor) -> None:
        await visitor.send(bodies[visitor.number - 1])
        if visitor.number == len(bodies):
            visitor.writer.close()

    sink = archive(tmp_path)
    async with origins.Origin(script) as origin, test_fetch.fetcher(origin.port) as fetches:
        for _ in bodies:
            answer = await fetches.fetch(test_fetch.URL, permit=test_fetch.Gate().permit())
            await sink.write(
                pages.Visited(url=test_fetch.URL, site="example.com", node="n1", visit="first", answer=answer)
            )
        sent = list(origin.requests)
    sink.close()
    sound(tmp_path)
    found = read(*files(tmp_path))
    responses = [one for one in found if one.type == "response"]
    assert [one.block for one in responses] == [b"hello", b"hello", packed, b"hello"]
    digests = [one["WARC-Payload-Digest"] for one in responses]
    assert digests == [sha1(b"hello"), sha1(b"hello"), sha1(packed), sha1(b"hello")]
    assert responses[1].http.get_header("transfer-encoding") is None
    assert responses[3]["WARC-Truncated"] == "disconnect"
    data = b"".join(gzip.decompress(file.read_bytes()) for file in files(tmp_path))
    assert b"X-Odd: \xe9\r\n" in data
    assert all(head in data for head in sent)


# -- other programs


def test_cdxj_indexer_sees_each_capture_as_what_it_is(tmp_path: Path) -> None:
    pytest.importorskip("cdxj_indexer")
    copy = records.ContentRef(url=URL, fetched_ms=START_MS)
    written(
        tmp_path,
        visited(b"<p>x"),
        visited(
            b"",
            head=b"HTTP/1.1 304 Not Modified\r\n\r\n",
            outcome=records.NotModified(),
            before=records.PageRecord(
                etag='"a"', captured_ms=START_MS, payload=pages.base32(pages.payload_of(b"<p>x"))
            ),
            start_ms=START_MS + 1_000,
        ),
        visited(b"<p>x", url="https://b.example/", duplicate=copy, start_ms=START_MS + 2_000),
        visited(
            b"<p>",
            url="https://c.example/",
            head=HTML % 99,
            outcome=records.Fetched(status=200, headers=(), body=b"<p>", truncated="connection"),
        ),
    )
    program = "from cdxj_indexer.main import main; main()"  # in a process: it leaves temporary files to the end
    line = [sys.executable, "-c", program, *map(str, files(tmp_path))]
    done = subprocess.run(line, capture_output=True, text=True, timeout=30, check=True)
    lines = [line.split(" ", 2) for line in done.stdout.splitlines()]
    found = [(key, stamp, json.loads(rest)) for key, stamp, rest in lines]
    assert [(one["mime"], one.get("status")) for _, _, one in found] == [
        ("text/html", "200"),
        ("warc/revisit", "304"),
        ("warc/revisit", "200"),
        ("text/html", "200"),
    ]
    digests = {one["digest"].removeprefix("sha1:") for _, _, one in found[:3]}
    assert digests == {sha1(b"<p>x").removeprefix("sha1:")}, "by which a replay finds the body"


def test_the_command_lists_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = records.ContentRef(url="https://b.example/", fetched_ms=START_MS)
    written(tmp_path, visited(), visited(duplicate=copy))
    (file,) = files(tmp_path)

    def run(*line: str) -> tuple[int, str]:
        return cli.main(["warc", *line], modules=["coordinator.warc"]), capsys.readouterr().out

    assert run("check", str(file)) == (0, f"{file}: 7 records, sound\n")
    status, out = run("ls", str(file))
    assert status == 0
    assert out.splitlines()[1].endswith(f"2026-05-28T20:26:40.123Z response 200 text/html {URL}")
    assert out.splitlines()[4].endswith(f"{URL} =identical-payload-digest https://b.example/")
    status, out = run("ls", "--json", str(file))
    assert [json.loads(line)["type"] for line in out.splitlines()] == [
        "warcinfo",
        *("response", "request", "metadata"),
        *("revisit", "request", "metadata"),
    ]
    file.write_bytes(file.read_bytes()[:-9])
    status, out = run("check", "--json", str(file))
    assert (status, json.loads(out)["records"]) == (1, 7)
    assert "gzip member does not end" in json.loads(out)["problems"][0]
    assert run("check", str(tmp_path / "none"))[0] == 2


@pytest.mark.parametrize("cut", range(0, 1_400, 100))
def test_the_check_notices_every_cut(tmp_path: Path, cut: int) -> None:
    """warcio's own passes over a last record that is cut, since no digest of it is ever complete."""
    written(tmp_path, visited())
    (file,) = files(tmp_path)
    data = file.read_bytes()
    ends = {entry.offset for entry in warc_files.entries(file)} | {len(data)}
    file.write_bytes(data[: min(cut, len(data))])
    assert bool(warc_files.check(file).problems) is (cut == 0 or min(cut, len(data)) not in ends)


@given(st.binary(max_size=300))
def test_the_check_of_garbage_is_an_answer(data: bytes) -> None:
    walked = list(warc_files._entries(io.BytesIO(data), "x"))
    assert all(entry.file == "x" for entry in walked)


# -- files


def test_a_file_that_is_full_is_closed_and_the_next_begun(tmp_path: Path) -> None:
    sink = archive(tmp_path, bytes_max=2_000)

    for number in range(6):
        asyncio.run(sink.write(visited(random.Random(number).randbytes(900), url=f"https://a.example/{number}")))
        (being_written,) = tmp_path.glob("*.open")
        assert being_written.stat().st_size < 2_000 + 2_500
    sink.close()
    sink.close()
    found = files(tmp_path)
    assert len(found) > 1
    assert [file.name.split("-")[2] for file in found] == [f"{number:05}" for number in range(len(found))]
    assert list(tmp_path.glob("*.open")) == []
    sound(tmp_path)
    urls = [one["WARC-Target-URI"] for file in found for one in read(file) if one.type == "response"]
    assert urls == [f"https://a.example/{number}" for number in range(6)]
    for file in found:
        assert read(file)[0].type == "warcinfo"


async def test_visits_at_one_time_and_large_bodies_do_not_mix_and_do_not_hold_the_loop(tmp_path: Path) -> None:
    sink = archive(tmp_path, bytes_max=2_000_000)
    sizes = [100, 20_000, 400_000, 3_000_000] * 6
    held: list[float] = []

    async def watch() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            held.append(time.thread_time() - before)

    watching = asyncio.create_task(watch())
    found = [
        visited(random.Random(number).randbytes(size), url=f"https://a.example/{number}")
        for number, size in enumerate(sizes)
    ]
    await asyncio.gather(*(sink.write(page) for page in found))
    watching.cancel()
    sink.sync()
    sink.close()
    sound(tmp_path)
    got = {one["WARC-Target-URI"]: len(one.block) for one in read(*files(tmp_path)) if one.type == "response"}
    assert got == {f"https://a.example/{number}": size for number, size in enumerate(sizes)}
    # One turn of the loop starts every write here: the twelve small ones are compressed in it, no large one is.
    assert max(held) < 0.1


def test_two_processes_never_write_as_one_node(tmp_path: Path) -> None:
    sink = archive(tmp_path)
    with pytest.raises(errors.ConfigError, match="as node n1"):
        archive(tmp_path)
    other = archive(tmp_path, node="n1-b")
    other.close()
    sink.close()
    archive(tmp_path).close()


def test_a_full_disk_leaves_no_half_record(tmp_path: Path) -> None:
    """The limit of a file's size stands for the disk: the kernel writes what fits, then refuses."""
    import resource  # noqa: PLC0415

    sink = archive(tmp_path)
    asyncio.run(sink.write(visited(url="https://a.example/1")))
    (file,) = tmp_path.glob("*.open")
    size = file.stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 700, before[1]))
        with pytest.raises(OSError, match="large"):
            asyncio.run(sink.write(visited(random.Random(1).randbytes(2_000))))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert file.stat().st_size == size
    asyncio.run(sink.write(visited(url="https://a.example/2")))
    sink.close()
    sound(tmp_path)
    urls = [one["WARC-Target-URI"] for one in read(*files(tmp_path)) if one.type == "response"]
    assert urls == ["https://a.example/1", "https://a.example/2"]


def test_a_disk_that_is_full_at_a_files_beginning_leaves_no_file_without_its_warcinfo(tmp_path: Path) -> None:
    import resource  # noqa: PLC0415

    sink = archive(tmp_path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        with pytest.raises(OSError, match="large"):
            asyncio.run(sink.write(visited()))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert not list(tmp_path.glob("*.open"))
    asyncio.run(sink.write(visited()))
    sink.close()
    sound(tmp_path)
    assert next(iter(read(*files(tmp_path)))).type == "warcinfo"


# -- after a crash


@pytest.mark.parametrize("node", ["n1", "n.1-b"])
def test_every_cut_is_repaired_to_the_whole_records_before_it(tmp_path: Path, node: str) -> None:
    written(tmp_path, visited(), visited(url="https://a.example/2"), node=node)
    (file,) = files(tmp_path)
    data = file.read_bytes()
    ends = [*[entry.offset for entry in warc_files.entries(file)][1:], len(data)]
    file.unlink()
    opened = tmp_path / f"{file.name}.open"
    for cut in [*range(0, len(data), 37), *ends, *(end - 1 for end in ends), *(end + 1 for end in ends[:-1])]:
        opened.write_bytes(data[:cut])
        done = warc.repair(tmp_path, node)
        whole = max((end for end in ends if end <= cut), default=0)
        assert not opened.exists()
        assert done == ((file,) if whole else ())
        if whole:
            assert file.read_bytes() == data[:whole]
            assert warc_files.check(file).problems == ()
            file.unlink()


def test_whole_records_behind_damage_are_kept(tmp_path: Path) -> None:
    """A machine that lost its power may have a hole in a file, or a tail of zeros."""
    written(tmp_path, *(visited(url=f"https://a.example/{number}") for number in range(4)))
    (file,) = files(tmp_path)
    data, starts = file.read_bytes(), [entry.offset for entry in warc_files.entries(file)]
    file.unlink()
    hole = bytearray(data + bytes(5_000) + gzip.compress(b"no record", mtime=0))
    hole[starts[4] + 20 : starts[4] + 60] = bytes(40)
    (tmp_path / f"{file.name}.open").write_bytes(hole)
    assert warc.repair(tmp_path, "n1") == (file,)
    assert file.read_bytes() == data[: starts[4]] + data[starts[5] :]
    sound(tmp_path)


def test_only_files_of_the_node_itself_are_repaired(tmp_path: Path) -> None:
    stamp = "20261130225020123-00000"
    others = [f"crawlring-{stamp}-n2.warc.gz.open", f"crawlring-{stamp}-x-n1.warc.gz.open", "notes.open"]
    for name in [*others, f"older_prefix-{stamp}-n1.warc.gz.open"]:
        (tmp_path / name).write_bytes(warc_records.members(visited()))
    archive(tmp_path).close()
    assert sorted(path.name for path in tmp_path.glob("*.open")) == sorted(others)
    assert [file.name for file in files(tmp_path)] == [f"older_prefix-{stamp}-n1.warc.gz"]


WRITER = """
import asyncio, pathlib, random, sys
from tests.node.visited import archive, visited

async def main():
    sink = archive(pathlib.Path(sys.argv[1]), bytes_max=150_000)
    sizes = random.Random(int(sys.argv[2]))
    for number in range(100_000):
        raw = sizes.randbytes(sizes.choice([50, 3_000, 40_000, 300_000]))
        await sink.write(visited(raw, url=f"https://a.example/{number}"))
        print(number, flush=True)  # its commit

asyncio.run(main())
"""


@pytest.mark.parametrize("seed", range(5))
def test_kill_9_at_any_moment_loses_no_page_that_was_committed(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path), str(seed)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        committed = -1
        stop = chance.randrange(1, 60)
        for line in process.stdout:
            committed = int(line)
            if committed == stop:
                time.sleep(chance.random() * 0.01)  # the moment is what is tried here, not waited for
                process.send_signal(signal.SIGKILL)
        process.wait(timeout=20)
    assert process.returncode == -signal.SIGKILL
    archive(tmp_path).close()
    assert list(tmp_path.glob("*.open")) == []
    sound(tmp_path)
    urls = [one["WARC-Target-URI"] for one in read(*files(tmp_path)) if one.type == "response"]
    assert urls[: committed + 1] == [f"https://a.example/{number}" for number in range(committed + 1)]
    assert len(urls) <= committed + 2, "at most what was being written"


# -- the corpus


def test_our_check_agrees_with_warcio_on_its_own_samples() -> None:
    from tests.conformance import warc as samples  # noqa: PLC0415

    corpus.read("warc/LICENSE-warcio")
    for one in samples.CORPORA:
        assert [row.detail for row in one.rows() if not row.passed] == []
