"""What it costs from a page's body to offers that are ready for the store, beside the bare libraries in the same run.

The pages are those of the comparison with other crawlers (`tests.bench.web`: 20 KB, 40 links, half on other hosts).
Each round measures everything once, on the same pages, so that a slow minute of the machine is everybody's. *Bare* is
the least that finds the same links: lexbor over the bytes, each address joined by a short expression or by ada.
Run it as `python -m tests.bench.pages [--rounds 7] [--pages 300] [--json FILE]`; microseconds of CPU a page.
"""

import argparse
import gc
import re
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, cast

import ada_url
from selectolax import lexbor

from node import charsets, fetch, holding, known, links, offering, reading, shapes, steering, traps, turn, visible
from shared import config, metrics, records, sites, urls
from tests.bench import readings, report, web

PORT = 8080
HEADERS = (
    ("Server", "nginx"),
    ("Date", "Tue, 01 Dec 2026 00:00:00 GMT"),
    ("Content-Type", "text/html"),
    ("Content-Length", "20000"),
    ("Last-Modified", "Mon, 30 Nov 2026 00:00:00 GMT"),
    ("Connection", "keep-alive"),
    ("ETag", '"6a1b-5000"'),
    ("Accept-Ranges", "bytes"),
)
PLAIN = re.compile(r"(http://[a-z0-9.:-]+)?((?:/(?!\.)[a-z0-9.-]*)+(?:\?[a-z0-9=&_]*)?)")
AGENT = "crawlring-bench/1.0 (+https://example.org/bot)"


class Bench:
    """The pages, and a node's tools without a store: nothing is sent before a commit."""

    def __init__(self, count: int) -> None:
        its_links = web.links()
        self.bodies = [web.body(page, its_links[page], PORT).encode() for page in range(count)]
        self.urls = [web.url(page % 50, page, PORT) for page in range(count)]
        self.texts = [body.decode() for body in self.bodies]
        settings = config.Config(identity=config.Identity(user_agent=AGENT))
        self.places = sites.Sites()
        self.tools = turn.Tools(
            settings=settings,
            places=self.places,
            score_of=len,
            form=urls.PLAIN,
            steering=steering.Steering(settings),
            watch=traps.Watch(alike_max=settings.limits.alike_max),
            counts=metrics.Metrics(),
            **cast("Any", dict.fromkeys(("node", "fetcher", "store", "owner_of", "epoch", "crawl_log", "sinks"))),
            **cast("Any", dict.fromkeys(("clock_error_ms", "answered", "store_ms", "persist", "on_request"))),
        )
        self.answers = [self._answer(body) for body in self.bodies]
        self.found = [self.page(number).links for number in range(count)]
        for url in self.urls:
            self.places.site_of(url)
        self.digests = [[urls.digest(url) for url in found] for found in self.found]

    def _answer(self, body: bytes) -> fetch.Answer:
        outcome = records.Fetched(status=200, headers=HEADERS, body=body)
        return fetch.Answer(
            outcome=outcome,
            sent=True,
            start_boot_s=0.0,
            start_wall_ms=0,
            end_boot_s=0.1,
            body_bytes=len(body),
            content_type="text/html",
        )

    def bare(self, number: int) -> list[str]:
        """The links of a page by the libraries alone."""
        base = self.urls[number]
        origin = base[: base.index("/", 8)]
        found = []
        for node in lexbor.LexborHTMLParser(self.bodies[number]).css("a[href]"):
            href = node.attributes["href"] or ""
            plain = PLAIN.fullmatch(href)
            if plain is not None:
                found.append((plain[1] or origin) + plain[2])
            else:
                found.append(ada_url.join_url(base, href).partition("#")[0])
        return found

    def page(self, number: int) -> links.Page:
        return links.extract(
            self.bodies[number],
            content_type="text/html",
            url=self.urls[number],
            links_max=5_000,
            token="crawlring-bench",
        )

    def fresh(self, number: int) -> int:
        """From the answer to its offers, none of them known."""
        return self._whole(number)

    def repeated(self, number: int) -> int:
        """The same where every link was offered lately: nothing is left to send."""
        return self._whole(number)

    def know(self, *, all_of_them: bool) -> None:
        self.tools.offered = known.Known()
        for digest in (digest for digests in self.digests for digest in digests if all_of_them):
            self.tools.offered.add(digest)

    def _whole(self, number: int) -> int:
        url, tools = self.urls[number], self.tools
        site = self.places.site_of(url)
        queued = records.QueuedUrl(url=url, priority=5)
        now = turn.Turn(holding.Held(site, holding.Phase.VISITING, record=_record(site)), cast("Any", None))
        found = _run(reading.found(self.answers[number], queued, tools))
        reading.watched(self.answers[number], site, queued, found.page, tools)
        _run(offering.offer(found.targets, now, tools))
        return len(now.offers)

    def steps(self) -> dict[str, Callable[[int], Any]]:
        """Parts of it by themselves; they overlap, and miss what lies between them."""
        limits, places = self.tools.settings.limits, self.places
        scans = [links.scanned(text) for text in self.texts]

        def joined(number: int) -> list[str]:
            page = urls.Page(self.urls[number])
            return [page.canonical(address) for address in scans[number].addresses if address[0] != "#"]

        return {
            "charset and text": lambda n: charsets.text_of(
                self.bodies[n], charsets.encoding_of(self.bodies[n], "text/html")
            ),
            "tags in the text": lambda n: links.scanned(self.texts[n]),
            "addresses to canonical URLs": joined,
            "all of links.extract": self.page,
            "digests": lambda n: [urls.digest(url) for url in self.found[n]],
            "sites": lambda n: [places.site_of(url) for url in self.found[n]],
            "refusals": lambda n: [urls.refusal(url, limits) for url in self.found[n]],
            "shapes of the URL": lambda n: shapes.shapes_of(self.urls[n], places.site_of(self.urls[n])),
            "visible text (sampled)": lambda n: visible.content_of(self.texts[n], self.urls[n], self.found[n]),
        }


def _record(site: str) -> records.SiteRecord:
    counts = ("owner_epoch", "n", "pending", "later", "due_ms", "backoff", "seen", "validators")
    figures: dict[str, Any] = dict.fromkeys((*counts, "checks", "changes", "answered_ms", "pages"), 0)
    figures |= dict.fromkeys(("due_in_s", "delay_s", "observed_s"), 0.0) | dict.fromkeys(("due_term", "delay_term"), "")
    return records.SiteRecord(site=site, owner=None, later_in_s=None, last_fetch_ms=None, head=(), **figures)


def _run(step: Coroutine[Any, Any, Any]) -> Any:
    """The answer of a coroutine that has nothing to wait for."""
    try:
        while True:
            step.send(None)
    except StopIteration as end:
        return end.value


def measure(rounds: int, count: int) -> dict[str, list[float]]:
    """Microseconds of CPU a page, by what was measured and by round."""
    bench = Bench(count)
    gc.collect()
    gc.freeze()  # the pages are no part of what is measured
    parts: dict[str, Callable[[int], Any]] = {
        "bare": bench.bare,
        "ours, links new": bench.fresh,
        "ours, links known": bench.repeated,
        **bench.steps(),
    }
    taken: dict[str, list[float]] = {name: [] for name in parts}
    for number in range(rounds + 1):
        for name, part in parts.items():
            bench.know(all_of_them=part == bench.repeated)
            began_s = time.process_time()
            for page in range(count):
                part(page)
            if number:  # the first warms the caches
                taken[name].append((time.process_time() - began_s) / count * 1e6)
    return taken


def main() -> None:
    """Measure, print, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pages", type=int, default=300)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    readings.pin_self(0)
    taken = measure(asked.rounds, asked.pages)
    machine = readings.machine()
    rows, cells = [], []
    for name, figures in taken.items():
        ratio = report.spread(ours / bare for ours, bare in zip(figures, taken["bare"], strict=True))
        spread = report.spread(figures)
        cells.append((name, str(spread), str(ratio)))
        rows.append({"name": name, "us": list(figures), "ratio": ratio.median})
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    print(report.table(("of a page", "CPU us", "of bare"), cells))
    if asked.json is not None:
        report.write_json(asked.json, "pages", rows, machine)


if __name__ == "__main__":
    main()
