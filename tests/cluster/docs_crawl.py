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
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coordinator import local, nodes, up
from shared import etcd, frontier, keys
from tests.cluster import docs_judge, docs_pages, docs_web

NODES = ("a", "b", "c")
CLUSTER = "docs"


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
                f"--user-agent={docs_judge.AGENT}-{node}/1.0 (+https://localhost/docs)",
                f"--delay={self.delay_s}",
                f"--connect-to={self.nginx.address}",
            ),
        )


class Ended(Exception):
    """The crawl has failed: the time is over, or a node has died."""


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
            except Ended as end:
                print(f"[NO] {end}")
                return 1
            finally:
                for crew in crews.values():
                    crew.kill()
            began_s = time.monotonic()
            docs_web.wget(docs_web.rooms(data / "mirror"), nginx.address)
            print(f"wget --mirror took {time.monotonic() - began_s:.0f} s")
            verdicts = list(_verdicts(stage, loss))
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


async def _crawl(stage: Stage, crews: dict[str, nodes.Crew]) -> docs_judge.Loss:
    """Start by hand, seed, take a lease away half way, wait until nothing is pending, drain."""
    began_s = time.monotonic()
    for node, crew in crews.items():
        crew.start(node)
        print(f"CRAWLRING_REDIS={crew.place.redis} crawlring {' '.join(nodes.node_command(crew.place, node)[4:])}")
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
    _told_ends(crews, "before it was told to")
    for crew in crews.values():
        crew.drain()
    await _until(stage, began_s, "the drain", lambda: not any(crew.alive() for crew in crews.values()))
    _told_ends(crews, "at the drain")
    return loss


def _revoke(stage: Stage, site: docs_web.Site) -> docs_judge.Loss:
    owner = json.loads(_command(stage, "owner", site.start, "--json").stdout)["node"]
    store = etcd.Etcd(stage.where.etcd)
    try:
        lease = store.look(keys.EtcdKeys(CLUSTER)).members[owner].lease
        now_ms = time.time_ns() // 1_000_000
        assert store.revoke(lease)
    finally:
        store.close()
    return docs_judge.Loss(site.name, owner, now_ms)


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
            raise Ended(f"after {stage.limit_s:.0f} s still pending: {left}")
        await asyncio.sleep(0.5)


def _told_ends(crews: dict[str, nodes.Crew], when: str) -> None:
    """A node that ended otherwise than by a drain is a fault, even where the others went on without it."""
    for node, crew in crews.items():
        for end in crew.ended():
            if end.status or when.startswith("before"):
                words = "\n".join(crew.log(node).read_text().splitlines()[-5:])
                raise Ended(f"node {node} {end.how} {when}:\n{words}")


async def _until(stage: Stage, began_s: float, what: str, condition: Callable[[], bool]) -> None:
    while not await asyncio.to_thread(condition):
        if time.monotonic() - began_s > stage.limit_s:
            raise Ended(f"after {stage.limit_s:.0f} s: still waiting for {what}")
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
    return sum(one.is_page and one.site == site.name for one in docs_web.answers(stage.log, docs_judge.AGENT))


# --- the verdicts ---------------------------------------------------------------------------------------------------


def _verdicts(stage: Stage, loss: docs_judge.Loss) -> Iterator[docs_judge.Verdict]:
    ours, theirs = docs_web.answers(stage.log, docs_judge.AGENT), docs_web.answers(stage.log, docs_web.WGET_AGENT)
    files = {url: docs_pages.read(docs_web.file_of(url), url) for url in sorted(ours.pages)}
    yield from docs_judge.against_wget(ours, theirs, files)
    by_site = docs_web.by_site(ours)
    yield docs_judge.repeats(by_site, loss)
    for site, requests in by_site.items():
        yield docs_judge.gaps(site, requests, stage.delay_s)
        yield docs_judge.owners(site, requests, _moved_to(stage, site), loss)
    yield _audited(stage)
    yield docs_judge.reading(files, {line["url"]: line for line in _page_lines(stage.data / "out")})


def _moved_to(stage: Stage, site: str) -> list[str]:
    lines = map(json.loads, _command(stage, "handoffs", "--site", site, "--json").stdout.splitlines())
    return [line["to"] for line in lines if line["kind"] == "moved"]


def _audited(stage: Stage) -> docs_judge.Verdict:
    done = _command(stage, "audit", str(stage.data / "out"), "--json")
    if done.returncode not in (0, 1):
        return docs_judge.Verdict(holds=False, text=f"audit: {done.stderr.strip()}")
    found = json.loads(done.stdout)
    text = ", ".join(f"{found[name]} {name}" for name in ("requests", "sites", "handoffs", "repeats"))
    return docs_judge.Verdict(done.returncode == 0, f"audit: {len(found['violations'])} violations in {text}")


def _page_lines(out: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(out.glob("pages-*.jsonl")):
        with file.open() as opened:
            yield from (line for raw in opened if (line := json.loads(raw))["status"] == 200)


if __name__ == "__main__":
    sys.exit(main())
