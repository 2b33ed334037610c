"""A crawl of real pages by three nodes, one of which loses its lease half way, held against `wget --mirror`.

The pages are Debian's HTML of the manuals of Python and PostgreSQL, as two sites of two hosts each behind nginx,
whose own log is the judge: it names the node of each request by its user agent. Run it as
`python -m tests.cluster.docs_crawl`; it takes about two minutes. Exit status 0 only if all of this holds:

1. Every page that wget reaches from the same start pages, the crawl reaches, and it reaches no other. A page is
   what nginx answered with 200 and text/html.
2. What else wget asked for, and the crawl did not, no link of any page names: wget mirrors what a page needs to
   be shown (images, style sheets, scripts), the crawl follows what leads from page to page (a, area, iframe).
3. No URL is asked for twice, but one a site that the owner which lost its lease was in the middle of.
4. Two requests of a site start at least the delay apart at nginx, across the takeover too.
5. At any time each site has one node: nginx saw its nodes one after another, as the handoff log has them.
6. `crawlring audit` finds no broken promise in the nodes' logs.
7. Title and links of all pages in the JSON Lines are those that Python's html.parser finds in the files.
"""

import argparse
import asyncio
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator import local, nodes, up
from shared import etcd, frontier, keys
from tests.cluster import docs_pages, docs_web

NODES = ("a", "b", "c")
AGENT = "crawlring-docs"
CLUSTER = "docs"
SAMPLE = 10
SHOWN = 10  # differences listed of one kind
LOG_MS = 1  # nginx cuts its times to whole milliseconds
STOP_S = 5.0  # what is in flight at a lost lease may go on this long


@dataclass(frozen=True, slots=True)
class Stage:
    """What runs, and where."""

    data: Path
    where: up.Stores
    nginx: local.Server
    delay_s: float
    limit_s: float

    @property
    def log(self) -> Path:
        return self.data / "nginx" / docs_web.LOG

    def place(self, node: str) -> nodes.Place:
        """Each node calls itself by its own name, so that nginx's log tells them apart."""
        return nodes.Place(
            etcd=self.where.etcd,
            redis=self.where.redis,
            cluster=CLUSTER,
            out=self.data / "out",
            logs=self.data / "logs",
            arguments=(
                f"--user-agent={AGENT}-{node}/1.0 (+https://localhost/docs)",
                f"--delay={self.delay_s}",
                f"--connect-to={self.nginx.address}",
            ),
        )


@dataclass(frozen=True, slots=True)
class Loss:
    """The lease that was revoked."""

    site: str
    node: str
    wall_ms: int


@dataclass(slots=True)
class Verdict:
    """One of the claims above."""

    holds: bool
    text: str

    def __str__(self) -> str:
        return f"[{'ok' if self.holds else 'NO'}] {self.text}"


class Late(Exception):
    """The time is over."""


def main(argv: Sequence[str] | None = None) -> int:
    """Crawl, mirror, compare."""
    args = _arguments(argv)
    if packages := docs_web.missing():
        print(f"this needs Debian's packages: apt-get install -y {' '.join(packages)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="crawlring-docs-") as temporary:
        data = (args.data or Path(temporary)).resolve()
        nginx = docs_web.server(data / "nginx")
        with local.lock(data), up.stores(data) as where, local.running(nginx):
            print(f"nginx {nginx.address}")
            stage = Stage(data, where, nginx, args.delay, args.limit)
            crews = {node: nodes.Crew(stage.place(node)) for node in NODES}
            try:
                loss = asyncio.run(_crawl(stage, crews))
            except Late as late:
                print(f"[NO] {late}")
                return 1
            finally:
                for crew in crews.values():
                    crew.kill()
            ours = docs_web.answers(stage.log, AGENT)
            files = {url: docs_pages.read(docs_web.file_of(url), url) for url in sorted(ours.pages)}
            verdicts = [
                *_compared(stage, ours, files),
                *_judged(stage, docs_web.by_site(ours), loss),
                _audited(stage),
                _read(stage, files),
            ]
    print("\n" + "\n".join(str(verdict) for verdict in verdicts))
    return 0 if all(verdict.holds for verdict in verdicts) else 1


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.docs_crawl", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--delay", type=float, default=0.03, metavar="S", help="of each site (default 0.03)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="an empty folder to keep all logs in")
    parser.add_argument("--limit", type=float, default=300.0, metavar="S", help="of the crawl (default 300)")
    return parser.parse_args(argv)


# --- the crawl ------------------------------------------------------------------------------------------------------


async def _crawl(stage: Stage, crews: dict[str, nodes.Crew]) -> Loss:
    """Start by hand, seed, take a lease away half way, wait until nothing is pending, drain."""
    began_s = time.monotonic()
    for node, crew in crews.items():
        crew.start(node)
        print(f"crawlring {' '.join(nodes.node_command(crew.place, node)[4:])}")
    store = await frontier.Frontier.open(stage.where.redis, CLUSTER)
    try:
        await _until(stage, began_s, "three members", lambda: len(_status(stage)["nodes"]) == len(NODES))
        print(_command(stage, "seed", "-", stdin="".join(f"{site.start}\n" for site in docs_web.SITES)).stdout.strip())
        larger = max(docs_web.SITES, key=_pages_on_disk)
        half = _pages_on_disk(larger) // 2
        await _until(stage, began_s, f"{half} pages of {larger.name}", lambda: _pages_seen(stage, larger) >= half)
        loss = await asyncio.to_thread(_revoke, stage, larger)
        print(
            f"{time.monotonic() - began_s:.0f} s: {half} pages of {larger.name} are done; revoked {loss.node}'s lease"
        )
        await _finished(stage, store, began_s)
        print(f"{time.monotonic() - began_s:.0f} s: nothing of the two sites is pending; draining")
    finally:
        await store.close()
    for crew in crews.values():
        crew.drain()
    await _until(stage, began_s, "the drain", lambda: not any(crew.alive() for crew in crews.values()))
    return loss


def _revoke(stage: Stage, site: docs_web.Site) -> Loss:
    owner = json.loads(_command(stage, "owner", site.start, "--json").stdout)["node"]
    store = etcd.Etcd(stage.where.etcd)
    try:
        lease = store.look(keys.EtcdKeys(CLUSTER)).members[owner].lease
        now_ms = time.time_ns() // 1_000_000
        assert store.revoke(lease)
    finally:
        store.close()
    return Loss(site.name, owner, now_ms)


async def _finished(stage: Stage, store: frontier.Frontier, began_s: float) -> None:
    """Until nothing of the two sites is pending or to be tried again.

    All other sites that the pages name are sent to nginx too, which answers 421 to http and nothing to https; the
    crawl gives their queues up with ever longer pauses, and this program does not wait for that.
    """
    while True:
        looks = [await store.look(site.name) for site in docs_web.SITES]
        if all(look is not None and not look["pending"] and not look["later"] for look in looks):
            return
        left = ", ".join(
            f"{site.name} {look and look['pending']}" for site, look in zip(docs_web.SITES, looks, strict=True)
        )
        if time.monotonic() - began_s > stage.limit_s:
            raise Late(f"after {stage.limit_s:.0f} s still pending: {left}")
        await asyncio.sleep(0.5)


async def _until(stage: Stage, began_s: float, what: str, condition: Callable[[], bool]) -> None:
    while not await asyncio.to_thread(condition):
        if time.monotonic() - began_s > stage.limit_s:
            raise Late(f"after {stage.limit_s:.0f} s: still waiting for {what}")
        await asyncio.sleep(0.2)


def _status(stage: Stage) -> dict[str, list[object]]:
    found: dict[str, list[object]] = json.loads(_command(stage, "status", "--json").stdout)
    return found


def _command(stage: Stage, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """`crawlring ...` against this cluster."""
    where = (f"--etcd={stage.where.etcd}", f"--redis={stage.where.redis}", f"--cluster={CLUSTER}")
    return subprocess.run(
        [sys.executable, "-P", "-m", "coordinator.cli", *arguments, *where],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=nodes.packages(),
    )


def _pages_on_disk(site: docs_web.Site) -> int:
    return sum(1 for _ in site.root.rglob("*.html"))


def _pages_seen(stage: Stage, site: docs_web.Site) -> int:
    return sum(one.is_page and one.site == site.name for one in docs_web.answers(stage.log, AGENT))


# --- against wget ---------------------------------------------------------------------------------------------------


def _compared(stage: Stage, ours: docs_web.Answers, files: dict[str, docs_pages.Read]) -> list[Verdict]:
    began_s = time.monotonic()
    docs_web.wget(docs_web.rooms(stage.data / "mirror"), stage.nginx.address)
    theirs = docs_web.answers(stage.log, docs_web.WGET_AGENT)
    print(f"wget --mirror: {len(theirs)} requests in {time.monotonic() - began_s:.0f} s")
    _show_counts(ours, theirs)
    unseen, extra = theirs.pages - ours.pages, ours.pages - theirs.pages
    rest = {one.url for one in theirs} - {one.url for one in ours} - unseen
    named = rest & {link for read in files.values() for link in read.links}
    _listed("pages that wget reached and the crawl did not", unseen)
    _listed("pages that the crawl reached and wget did not", extra)
    _listed("what is no page, wget asked for it, and the crawl did not", rest)
    _listed("among it, what a link names", named)
    counted = ", ".join(
        f"{sum(docs_web.HOSTS[url.split('/')[2]] is site for url in theirs.pages)} of {site.name}"
        for site in docs_web.SITES
    )
    return [
        Verdict(bool(theirs.pages) and not unseen, f"every page that wget reached ({counted}); {len(unseen)} missing"),
        Verdict(not extra, f"no page that wget did not reach; {len(extra)} more"),
        Verdict(not named, f"of {len(rest)} other URLs that wget alone asked for, a link names {len(named)}"),
    ]


def _show_counts(ours: docs_web.Answers, theirs: docs_web.Answers) -> None:
    print(f"\n{'host':<24}{'':>14}{'requests':>10}{'pages':>8}{'moved':>8}{'404':>6}{'no page':>9}")
    for host in docs_web.HOSTS:
        for name, answers in (("the crawl", ours), ("wget", theirs)):
            here = [one for one in answers if one.host == host]
            pages = sum(url.split("/")[2] == host for url in answers.pages)
            others = sum(url.split("/")[2] == host for url in answers.others)
            count = Counter(one.status for one in here)
            print(f"{host:<24}{name:>14}{len(here):>10}{pages:>8}{count[301]:>8}{count[404]:>6}{others:>9}")


def _listed(title: str, urls: set[str]) -> None:
    if urls:
        print(f"{title}: {len(urls)}")
        print("\n".join(f"  {url}" for url in sorted(urls)[:SHOWN]))


# --- nginx's log ----------------------------------------------------------------------------------------------------


def _judged(stage: Stage, by_site: dict[str, list[docs_web.Request]], loss: Loss) -> list[Verdict]:
    return [
        _repeats(by_site, loss),
        *(_gaps(site, requests, stage.delay_s) for site, requests in by_site.items()),
        *(_owners(stage, site, requests, loss) for site, requests in by_site.items()),
    ]


def _repeats(by_site: dict[str, list[docs_web.Request]], loss: Loss) -> Verdict:
    """The revocation explains a repeat of its owner's last request of a site, if that began within its time."""
    explained, unexplained = set[str](), set[str]()
    for requests in by_site.values():
        lasts = {
            before.url
            for before, after in itertools.pairwise(requests)
            if node_of(before) == loss.node != node_of(after)
            and loss.wall_ms - STOP_S * 1000 <= before.start_ms <= loss.wall_ms + STOP_S * 1000
        }
        for url, times in Counter(one.url for one in requests).items():
            if times == 2 and url in lasts:
                explained.add(url)
            elif times > 1:
                unexplained.add(url)
    _listed("asked for twice, cut short by the revocation", explained)
    _listed("asked for twice, for no reason that this program knows", unexplained)
    return Verdict(
        not unexplained, f"none twice but {len(explained)} cut short by the revocation; {len(unexplained)} are"
    )


def _gaps(site: str, requests: list[docs_web.Request], delay_s: float) -> Verdict:
    owed_ms = round(delay_s * 1000)
    pairs = list(itertools.pairwise(requests))
    smallest_ms = min((after.start_ms - before.start_ms for before, after in pairs), default=-1)
    moves = [
        f"{node_of(before)} to {node_of(after)} {after.start_ms - before.start_ms:,} ms"
        for before, after in pairs
        if node_of(before) != node_of(after)
    ]
    text = f"{site}: the smallest of {len(pairs):,} gaps is {smallest_ms} ms of {owed_ms} ms; at moves: "
    return Verdict(smallest_ms >= owed_ms - LOG_MS, text + (", ".join(moves) or "none"))


def _owners(stage: Stage, site: str, requests: list[docs_web.Request], loss: Loss) -> Verdict:
    """Runs of requests by one node, each begun by a move in the handoff log; the lost lease's site must have moved."""
    runs = [(node, len(list(run))) for node, run in itertools.groupby(requests, node_of)]
    lines = _command(stage, "handoffs", "--site", site, "--json").stdout.splitlines()
    moves = iter([line["to"] for raw in lines if (line := json.loads(raw))["kind"] == "moved"])
    in_order = all(node in moves for node, _ in runs[1:])  # `in` takes from the iterator what it has passed
    moved = site != loss.site or any(
        before == loss.node != after for (before, _), (after, _) in itertools.pairwise(runs)
    )
    path = ", then ".join(f"{node} {count:,}" for node, count in runs)
    return Verdict(moved and in_order, f"{site}: one node at a time, as the handoff log has it: {path}")


def node_of(request: docs_web.Request) -> str:
    """By the user agent."""
    return request.agent.removeprefix(f"{AGENT}-").partition("/")[0]


# --- the nodes' logs and pages --------------------------------------------------------------------------------------


def _audited(stage: Stage) -> Verdict:
    done = _command(stage, "audit", str(stage.data / "out"), "--json")
    if done.returncode not in (0, 1):
        return Verdict(holds=False, text=f"audit: {done.stderr.strip()}")
    found = json.loads(done.stdout)
    text = ", ".join(f"{found[name]} {name}" for name in ("requests", "sites", "handoffs", "repeats"))
    return Verdict(done.returncode == 0, f"audit: {len(found['violations'])} violations in {text}")


def _read(stage: Stage, files: dict[str, docs_pages.Read]) -> Verdict:
    """All pages are compared, a sample spread over them is shown."""
    lines = {str(line["url"]): line for line in _page_lines(stage.data / "out")}
    sample = sorted(files)[len(files) // SAMPLE // 2 :: max(1, len(files) // SAMPLE)][:SAMPLE]
    wrong = [url for url, file in files.items() if url not in lines or not _equal(lines[url], file)]
    print(f"\n{'links':>6}{'file':>6}  what the JSON Lines say, beside what html.parser reads from the file")
    for url in [*sample, *(one for one in wrong[:SHOWN] if one in lines)]:
        line, file = lines[url], files[url]
        title = repr(line["title"]) + ("" if line["title"] == file.title else f", file {file.title!r}")
        verdict = "NOT EQUAL" if url in wrong else "equal"
        print(f"{len(line['links']):>6}{len(file.links):>6}  {verdict}  {url}\n{'':>14}{title}")
        links = {docs_pages.same(link) for link in line["links"]}
        for mark, some in (("+", links - file.links), ("-", file.links - links)):
            print("".join(f"{'':>14}{mark} {link}\n" for link in sorted(some)[:3]), end="")
    return Verdict(
        bool(files) and not wrong,
        f"title and links of {len(files):,} pages in the JSON Lines; {len(wrong)} differ or have no line",
    )


def _equal(line: dict[str, Any], file: docs_pages.Read) -> bool:
    links = {docs_pages.same(link) for link in line["links"]}
    return line["title"] == file.title and links == file.links and len(links) == len(line["links"])


def _page_lines(out: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(out.glob("pages-*.jsonl")):
        with file.open() as opened:
            yield from (line for raw in opened if (line := json.loads(raw))["status"] == 200)


if __name__ == "__main__":
    sys.exit(main())
