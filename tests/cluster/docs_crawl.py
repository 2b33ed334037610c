"""A crawl of over 10,000 real pages by three nodes, held against `wget --mirror`, lxml, sha1sum and warcio; then again.

The pages are Debian's HTML of the manuals of Python, PostgreSQL and OpenJDK, as three sites of seven hosts behind
nginx, whose own log is the judge: it names the node of each request by its user agent. Half way one node loses its
lease. When all is fetched the nodes are drained and started again, and visit every page a second time. Run it as
`python -m tests.cluster.docs_crawl`; it takes about a quarter of an hour. Exit status 0 only if all of this holds:

1. Every page that wget reaches from the same start pages, the crawl reaches, and it reaches no other. A page is
   what nginx answered with 200 and text/html.
2. What else wget asked for, and the crawl did not, no link of any page names: wget mirrors what a page needs to
   be shown (images, style sheets, scripts), the crawl follows what leads from page to page (a, area, iframe).
3. No URL is asked for twice in the first pass, but one a site that the owner which lost its lease was in the middle of.
4. Two requests of a site start at least the delay apart at nginx, across the takeover and the second pass too.
5. At any time each site has one node: nginx saw its nodes one after another, as the handoff log has them.
6. `crawlring audit` finds no broken promise in the nodes' logs.
7. Title, links and charset of all pages in the JSON Lines are those that lxml reads from the files, the payload
   digests those of sha1sum. Pages name many other sites; no host out of scope was asked.
8. `warcio check` finds the WARC files whole; they hold each answer of the crawl logs once, with its request and
   metadata, duplicates and 304s as revisits, and the payload digests of sha1sum.
9. In the second pass every URL is asked for once, and all that was answered by 200 before is a 304.
"""

import argparse
import contextlib
import datetime as dt
import io
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from coordinator import local, up
from tests.cluster import docs_archive, docs_judge, docs_pages, docs_run, docs_web


class Both(io.TextIOBase):
    """Prints, and keeps what was printed."""

    def __init__(self, screen: IO[str]) -> None:
        self.kept: list[str] = []
        self._screen = screen

    def write(self, text: str) -> int:
        self.kept.append(text)
        return self._screen.write(text)

    def flush(self) -> None:
        self._screen.flush()


def main(argv: Sequence[str] | None = None) -> int:
    """Crawl, mirror, compare."""
    args = _arguments(argv)
    if packages := docs_web.missing():
        print(f"this needs Debian's packages: apt-get install -y {' '.join(packages)}", file=sys.stderr)
        return 2
    said, began = Both(sys.stdout), dt.datetime.now(dt.UTC)
    with tempfile.TemporaryDirectory(prefix="crawlring-docs-") as temporary, contextlib.redirect_stdout(said):
        status = _crawl((args.data or Path(temporary)).resolve(), args)
    if args.markdown:
        args.markdown.write_text(_markdown("".join(said.kept), args, began))
    return status


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.docs_crawl", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--delay", type=float, default=0.01, metavar="S", help="of each site (default 0.01)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="an empty folder to keep all logs in")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write what came of it there")
    parser.add_argument(
        "--interval",
        type=float,
        default=600.0,
        metavar="S",
        help="after which a page is visited again; the first pass must take less (default 600)",
    )
    return parser.parse_args(argv)


def _crawl(data: Path, args: argparse.Namespace) -> int:
    nginx = docs_web.server(data / "nginx")
    with local.lock(data), up.stores(data) as where, local.running(nginx):
        stage = docs_run.Stage(data, where, nginx, args.delay, args.interval)
        try:
            passes = docs_run.both_passes(stage)
        except docs_run.Ended as end:
            print(f"[NO] {end}")
            return 1
        began_s = time.monotonic()
        docs_web.wget(docs_web.rooms(data / "mirror"), nginx.address)
        stage.tell(f"wget --mirror took {time.monotonic() - began_s:.0f} s")
        verdicts = list(_verdicts(stage, passes))
        stage.tell("judged")
    print("\n" + "\n".join(str(verdict) for verdict in verdicts))
    return 0 if all(verdict.holds for verdict in verdicts) else 1


def _verdicts(stage: docs_run.Stage, passes: docs_judge.Passes) -> Iterator[docs_judge.Verdict]:
    ours, theirs = stage.answers(), docs_web.answers(stage.log, docs_web.WGET_AGENT)
    first, again = ours.between(0, passes.again_ms), ours.between(passes.again_ms, float("inf"))
    _show_passes(first, again, passes)
    files = {url: docs_pages.read(docs_web.file_of(url), url) for url in sorted(first.pages)}
    yield from docs_judge.against_wget(first, theirs, files)
    yield docs_judge.repeats(docs_web.by_site(first), passes.loss)
    for site, requests in docs_web.by_site(ours).items():
        yield docs_judge.gaps(site, requests, stage.delay_s)
        yield docs_judge.owners(site, requests, _moved_to(stage, site), passes.loss)
    yield _audited(stage)
    yield docs_judge.scope(docs_web.requests(stage.log))
    lines = list(stage.lines("pages"))
    told = {line["url"]: line for line in lines if line["status"] == 200}
    yield docs_judge.reading(files, told)
    of_file = docs_pages.digests(docs_web.file_of(url) for url in first.pages | first.others)
    digests = {url: of_file[docs_web.file_of(url)] for url in first.pages | first.others}
    yield docs_judge.payloads(digests, told)
    warcs = sorted(stage.out.glob("*.warc.gz"))
    yield docs_archive.checked(warcs, stage.out)
    yield from docs_archive.against_logs(list(docs_archive.entries(warcs)), stage.lines("crawl"), lines, digests)
    yield from docs_judge.second_pass(first, again, (one for one in lines if one["fetched_ms"] >= passes.again_ms))


def _show_passes(first: docs_web.Answers, again: docs_web.Answers, passes: docs_judge.Passes) -> None:
    for name, asked, took_ms in (
        ("first", first, passes.ended_ms - passes.began_ms),
        ("second", again, passes.last_ms - passes.again_ms),
    ):
        busy_s = (asked[-1].start_ms - asked[0].start_ms) / 1000 if asked else 0.0
        print(
            f"{name} pass: {len(asked):,} requests within {took_ms / 1000:.0f} s, from the first to the last "
            f"{busy_s:.0f} s, {len(asked) / max(busy_s, 0.001):.0f} a second"
        )


def _moved_to(stage: docs_run.Stage, site: str) -> list[str]:
    lines = map(json.loads, stage.command("handoffs", "--site", site, "--json").stdout.splitlines())
    return [line["to"] for line in lines if line["kind"] == "moved"]


def _audited(stage: docs_run.Stage) -> docs_judge.Verdict:
    done = stage.command("audit", str(stage.out), "--json")
    if done.returncode not in (0, 1):
        return docs_judge.Verdict(holds=False, text=f"audit: {done.stderr.strip()}")
    found = json.loads(done.stdout)
    text = ", ".join(f"{found[name]} {name}" for name in ("requests", "sites", "handoffs", "repeats"))
    return docs_judge.Verdict(done.returncode == 0, f"audit: {len(found['violations'])} violations in {text}")


def _markdown(said: str, args: argparse.Namespace, began: dt.datetime) -> str:
    """What was printed, with what it was made on."""
    first = subprocess.run([docs_web.WGET, "--version"], capture_output=True, text=True, check=False).stdout
    nginx = subprocess.run([docs_web.NGINX, "-v"], capture_output=True, text=True, check=False).stderr
    claims = __doc__.partition("Exit status 0 only if all of this holds:")[2].strip()
    return f"""# Real pages

`make docs-crawl` crawls Debian's packages {", ".join(site.package for site in docs_web.SITES)} with three nodes, twice,
and judges what came of it by other programs. This page is its output; it is written by
`python -m tests.cluster.docs_crawl --markdown docs/real-pages.md`.

{claims}

All but one page of these packages say that they are UTF-8: charsets are judged, but these pages cannot tell much of
them; the tests of `node/charsets.py` do. What redirects or is missing has nothing to be conditional with: the second
pass asks for it as the first did, and it costs its few bytes again.

Made on {began:%Y-%m-%d} with a delay of {args.delay} s a site and {args.interval:.0f} s until a page
is visited again, on {os.cpu_count()} cores that nginx, the stores, the three nodes and the judge share; Python {platform.python_version()}, {nginx.strip().rpartition(": ")[2]},
{first.partition(",")[0].partition(" built")[0].strip()}.

```text
{said.strip()}
```
"""


if __name__ == "__main__":
    sys.exit(main())
