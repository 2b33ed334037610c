"""The archive of a whole crawl, with a node killed and sites moved, read by programs that are not ours.

Every answer that a node logged is in the archive once; what it refers to, it holds; a page that was fetched,
unchanged, the same as another's and cut short is seen as such; no page that was committed is missing (P2).
"""

import base64
import contextlib
import datetime as dt
import hashlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from warcio import archiveiterator

from coordinator import nodes
from shared import clock, records
from tests.cluster import archive_handler, archive_web, claims, harness

pytestmark = pytest.mark.cluster

SITES, PAGES = 10, 6
DELAY_S = 0.15
OFTEN = {
    **harness.QUICK,
    "CRAWLRING_RECRAWL__INTERVAL_MIN_S": "1",
    "CRAWLRING_RECRAWL__INTERVAL_START_S": "1",
    "CRAWLRING_RECRAWL__INTERVAL_MAX_S": "4",
    "CRAWLRING_RECRAWL__VISITS_PER_PAGE_DAY": "100000",
    "CRAWLRING_ARCHIVE__WARC_BYTES_MAX": "60000",  # a few files a node
}
HANDLER = f"{archive_handler.__name__}:{archive_handler.note.__name__}"
OPTIONS = ("--warc", "--recrawl", f"--handler={HANDLER}")
IN_FLIGHT_MS = 3_000  # before its death a killed node may have logged what it had not archived yet
NOBODY = records.Member(incarnation=0, weight=1.0, address="")


Key = tuple[str, str]
"""URL and WARC-Date: of one request."""


@dataclass(frozen=True)
class Entry:
    """One record as warcio reads it."""

    type: str
    url: str
    date: str
    id: str
    beside: str | None
    status: int | None
    payload: str | None
    profile: str | None
    refers_to: Key
    truncated: str | None
    block: bytes
    file: str

    @property
    def kind(self) -> str:
        """Its profile's last word; "" for what is no revisit."""
        return (self.profile or "").rpartition("/")[2]

    @property
    def node(self) -> str:
        return self.file.split(".")[0].rpartition("-")[2]


@dataclass
class Archive:
    """All files of a folder."""

    files: list[Path]
    entries: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        for path in self.files:
            with path.open("rb") as file:
                for record in archiveiterator.ArchiveIterator(file, check_digests="raise"):
                    self.entries.append(_entry(record, path))

    @property
    def answers(self) -> list[Entry]:
        return [one for one in self.entries if one.type in {"response", "revisit"}]

    @property
    def keys(self) -> set[Key]:
        assert len({(one.url, one.date) for one in self.answers}) == len(self.answers), "no request is there twice"
        return {(one.url, one.date) for one in self.answers}

    @property
    def pages(self) -> dict[Key, Entry]:
        """Answers but of robots.txt."""
        return {(one.url, one.date): one for one in self.answers if not one.url.endswith("/robots.txt")}

    def of(self, kind: str) -> list[Entry]:
        return [one for one in self.answers if one.kind == kind]


def _entry(record: Any, path: Path) -> Entry:
    said = record.rec_headers
    block = record.raw_stream.read()
    http = record.http_headers if record.rec_type in {"response", "revisit"} else None
    return Entry(
        record.rec_type,
        said.get_header("WARC-Target-URI"),
        said.get_header("WARC-Date"),
        said.get_header("WARC-Record-ID"),
        said.get_header("WARC-Concurrent-To"),
        int(http.get_statuscode()) if http else None,
        said.get_header("WARC-Payload-Digest"),
        said.get_header("WARC-Profile"),
        (said.get_header("WARC-Refers-To-Target-URI") or "", said.get_header("WARC-Refers-To-Date") or ""),
        said.get_header("WARC-Truncated"),
        block,
        path.name,
    )


@contextlib.contextmanager
def crawling(folder: Path, etcd: str, redis: str, name: str) -> Iterator[harness.Cluster]:
    """A cluster without nodes yet, and the web of `archive_web`; nothing is left of either at the exit."""
    server = archive_web.process(folder / "web", sites=SITES, pages=PAGES)
    server.start()
    environ = {**OFTEN, archive_handler.FOLDER: str(folder)}
    graph = archive_web.build(sites=SITES, pages=PAGES)
    cluster = harness.Cluster(folder, etcd, redis, name, graph, server, DELAY_S, environ, OPTIONS)
    try:
        yield cluster
    finally:
        for child in cluster.started:
            child.kill()
        server.kill()


def test_an_archive_of_nodes_killed_and_sites_moved_is_whole_to_other_readers(
    tmp_path: Path, etcd: str, valkey: str, cluster: str
) -> None:
    out = tmp_path / "out"
    with crawling(tmp_path, etcd, valkey, cluster) as run:
        run.start_all("n1", "n2")
        run.seed()
        run.until(lambda: run.part_done(0.5) and list(out.glob("*-n1.warc.gz.open")), 40, "n1 writes its archive")
        run.nodes["n1"].child.signal(signal.SIGKILL)
        run.nodes["n1"].child.wait(5)
        killed = stamp(clock.wall_ms())
        committed = {site: look["pages"] for site, look in run.sites().items()}
        looked = stamp(clock.wall_ms())
        left_open = list(out.glob("*-n1.warc.gz.open"))
        assert left_open and sum(committed.values()) > SITES
        incarnation = run.members().get("n1", NOBODY).incarnation
        run.start("n1")
        run.until(lambda: run.members().get("n1", NOBODY).incarnation not in {0, incarnation}, 20, "n1 is back")
        assert not any(path.exists() for path in left_open), "repaired at the start, before it is a member"
        run.start_all("n3")
        run.until(lambda: run.by("n3"), 20, "sites moved to n3")
        run.until(lambda: not run.ledger.missing(), 40, "every page is asked for")
        run.drain("n2")
        before = run.ledger.not_modified
        run.until(lambda: run.ledger.not_modified >= before + 3 * SITES, 40, "pages are unchanged after the moves")
        asides = [look.get("set_aside", {}) for look in run.sites().values()]
        run.drain()
        claims.gaps_kept(run)
        claims.audited(run)
        logged = run.crawl_lines()
    assert all(aside.get("handler") == 1 for aside in asides), asides
    files = sorted(out.glob("*.warc.gz"))
    assert not list(out.glob("*.open")), "every file has its name"
    checked(files)
    archive = Archive(files)
    answered = {(line.url, stamp(line.start_ms)) for line in logged if line.status is not None}
    nothing_but(answered, archive.keys, killed=killed)
    pages_are_the_json_lines(archive, json_lines(out, "pages"), killed=killed)
    pages_are_what_the_handler_got(archive, json_lines(tmp_path, "handled"), killed=killed)
    beside_each_answer_its_request(archive)
    what_is_referred_to_is_there(archive)
    each_kind_is_seen(archive)
    indexed(archive, files)
    for site, visits in committed.items():
        early = [url for url, date in archive.pages if f"//{site}/" in url and date <= looked]
        assert len(early) >= visits, f"{site}: {visits} page visits were committed, {len(early)} are archived"
    print(f"{len(files)} files, {len(archive.answers)} answers, {len(archive.of('server-not-modified'))} not modified")


def nothing_but(expected: set[Key], found: set[Key], *, killed: str) -> None:
    """The same requests on both sides, but for what a killed node had logged and not come to archive."""
    assert not found - expected, sorted(found - expected)[:5]
    lost = expected - found
    since = stamp(round(dt.datetime.fromisoformat(killed).timestamp() * 1000) - IN_FLIGHT_MS)
    assert all(since <= date <= killed for _, date in lost), sorted(lost)[:5]
    assert len(lost) <= SITES, "one request of a site at a time"


def checked(files: list[Path]) -> None:
    """`warcio check` and our own find nothing."""
    assert len(files) > 3
    for program in (["-m", "warcio.cli", "check"], ["-P", "-m", "coordinator.cli", "warc", "check"]):
        line = [sys.executable, *program, *map(str, files)]
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False, env=nodes.packages())
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def pages_are_the_json_lines(archive: Archive, lines: list[dict[str, Any]], *, killed: str) -> None:
    """Status, digest, duplicate and truncation of each page are in both, and the same."""
    by_key = {(line["url"], stamp(line["fetched_ms"])): line for line in lines}
    assert len(by_key) == len(lines)
    nothing_but(set(by_key), set(archive.pages), killed=killed)
    for key, entry in archive.pages.items():
        line = by_key[key]
        assert entry.status == line["status"], line
        assert (entry.kind == "server-not-modified") == (line["status"] == 304), line
        assert (entry.kind == "identical-payload-digest") == (line["duplicate_of"] is not None), line
        assert line["duplicate_of"] in {None, entry.refers_to[0]}, line
        assert (entry.truncated == "disconnect") == (line["truncated"] == "connection"), line
        assert line["status"] != 200 or entry.payload == line["payload"], line


def pages_are_what_the_handler_got(archive: Archive, lines: list[dict[str, Any]], *, killed: str) -> None:
    by_key = {(line["url"], stamp(line["fetched_ms"])): line for line in lines}
    liked = {key: entry for key, entry in archive.pages.items() if not key[0].endswith(archive_web.FAULT)}
    nothing_but(set(liked), set(by_key), killed=killed)
    for key, line in by_key.items():
        if line["status"] == 200:
            assert liked[key].payload == labelled(bytes.fromhex(line["body"])), line


def beside_each_answer_its_request(archive: Archive) -> None:
    """Each answer has one request and one metadata record of its moment, in its file."""
    for kind in ("request", "metadata"):
        beside = [(one.url, one.date, one.file, one.beside) for one in archive.entries if one.type == kind]
        assert sorted(beside) == sorted((one.url, one.date, one.file, one.id) for one in archive.answers)


def what_is_referred_to_is_there(archive: Archive) -> None:
    """Every revisit names, to the millisecond, an answer in the archive with its payload: in one step or two a body."""
    answers = {(one.url, one.date): one for one in archive.answers}
    elsewhere = 0
    for one in archive.answers:
        if one.type != "revisit":
            continue
        named = answers[one.refers_to]
        assert named.payload == one.payload, (one, named)
        assert named.type == "response" or named.kind == "identical-payload-digest", (one, named)
        assert one.kind != "identical-payload-digest" or named.type == "response", (one, named)
        assert one.kind != "server-not-modified" or named.url == one.url, (one, named)
        elsewhere += one.kind == "server-not-modified" and one.node != named.node
    assert elsewhere, "a page's record moves with its site: its next owner knows what it was archived as"


def each_kind_is_seen(archive: Archive) -> None:
    """Fetched, unchanged, duplicated, cut short, moved and gone: each as what it is."""

    def of(path: str) -> list[Entry]:
        return [one for (url, _), one in archive.pages.items() if path in url]

    assert all(one.type == "response" and one.status == 200 for one in of(archive_web.CHANGING))
    assert len({one.payload for one in of(archive_web.CHANGING)}) == len(of(archive_web.CHANGING)), (
        "each is another body"
    )
    plain = of(archive_web.PLAIN)
    assert {(one.type, one.status) for one in plain} == {("response", 200), ("revisit", 304)}
    assert all(one.block == b"" for one in plain if one.type == "revisit")
    shared = of(archive_web.SHARED)
    assert {one.payload for one in shared} == {digest(archive_web.SHARED_BODY)}
    copies = {one.url for one in shared if one.kind == "identical-payload-digest" and one.refers_to[0] != one.url}
    assert len(copies) > SITES / 2, "one body on many sites"
    cut = of(archive_web.CUT)
    assert cut and all(
        (one.type, one.truncated, one.block) == ("response", "disconnect", archive_web.CUT_BODY) for one in cut
    )
    assert {one.status for one in of(archive_web.MOVED)} == {302}
    assert {one.status for one in of("/gone")} == {404}


def indexed(archive: Archive, files: list[Path]) -> None:
    """cdxj-indexer has a line for each answer, revisits as such, with the digest by which a replay finds the body."""
    pytest.importorskip("cdxj_indexer")
    program = "from cdxj_indexer.main import main; main()"
    line = [sys.executable, "-c", program, *map(str, files)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True)
    lines = [json.loads(line.split(" ", 2)[2]) for line in done.stdout.splitlines()]
    found = sorted((one["url"], one["mime"] == "warc/revisit", one["digest"].removeprefix("sha1:")) for one in lines)
    assert found == sorted(
        (one.url, one.type == "revisit", (one.payload or "").removeprefix("sha1:")) for one in archive.answers
    )


def stamp(time_ms: int) -> str:
    """As a WARC-Date."""
    moment = dt.datetime.fromtimestamp(time_ms / 1000, dt.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def labelled(sha1: bytes) -> str:
    return f"sha1:{base64.b32encode(sha1).decode()}"


def digest(body: bytes) -> str:
    return labelled(hashlib.sha1(body).digest())


def json_lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    """Of all nodes."""
    return [
        json.loads(line) for path in sorted(folder.glob(f"{kind}-*.jsonl")) for line in path.read_text().splitlines()
    ]
