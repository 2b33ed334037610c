"""Runs made up by hand: a web of two sites, and what one wants the logs to say of it."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from coordinator import small_web
from shared import records
from tests.torture import evidence, forest

SITES, PAGES, SEED = 2, 5, 4  # five pages: too few for a forbidden one
START_S = 1_000.0
WALL_S = 1_700_000_000.0  # of boot time 0


@dataclass
class Story:
    """What happened, in seconds since the start; requests come in the order of the calls."""

    delay_s: float = 1.0
    ends_s: float = 300.0
    requests: list[dict[str, Any]] = field(default_factory=list)
    crawl: list[records.CrawlLine] = field(default_factory=list)
    handoffs: list[records.Handoff] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    run: dict[str, Any] = field(default_factory=dict)
    """Fields of run.json that differ."""

    def __post_init__(self) -> None:
        self.web = forest.grow(SITES, PAGES, SEED)
        self.one, self.other = self.web.sites

    @property
    def pages(self) -> list[str]:
        """Of the first site, those that a crawler may ask for."""
        return [page.url for page in self.one.pages if page.kind is not small_web.Kind.PRIVATE]

    def asks(
        self,
        at_s: float,
        url: str,
        node: str = "n1",
        *,
        outcome: str | None = "fetched",
        status: int = 200,
        tenure: int = 1,
        ms: int = 10,
        skew_ms: int = 0,
        delay_ms: int | None = None,
    ) -> None:
        """A request, and its crawl line unless the outcome is None: then its node did not live to write one."""
        boot_s = START_S + at_s
        wall_ms = round((WALL_S + boot_s) * 1000)
        site = url.split("/")[2].removeprefix("www.")
        self.requests.append(
            {
                "boot_s": boot_s,
                "late_ms": 0,
                "wall_ms": wall_ms,
                "site": site,
                "url": url,
                "status": status,
                "conditional": False,
                "node": node,
            }
        )
        if outcome is None:
            return
        self.crawl.append(
            records.CrawlLine(
                start_ms=wall_ms + skew_ms,
                site=site,
                url=url,
                node=node,
                epoch=tenure,
                tenure=tenure,
                status=status if outcome in {"fetched", "not_modified", "redirected"} else None,
                outcome=outcome,
                visit="robots" if url.endswith("/robots.txt") else "first",
                bytes=100,
                ms=ms,
                delay_ms=round(self.delay_s * 1000) if delay_ms is None else delay_ms,
                due_term="minimum",
                clock_error_ms=2,
            )
        )

    def crawled(self, *, node: str = "n1", tenure: int = 1, but: tuple[str, ...] = ()) -> None:
        """Every page once, 1.1 delays apart, all sites side by side."""
        for site in self.web.sites:
            urls = [page.url for page in site.pages if page.kind is not small_web.Kind.PRIVATE and page.url not in but]
            for i, url in enumerate(urls):
                self.asks(1 + i * 1.1 * self.web.delay_s(site, self.delay_s), url, node, tenure=tenure)
        self.in_order()

    def last_s(self, site: str) -> float:
        return max(float(one["boot_s"]) for one in self.requests if one["site"] == site) - START_S

    def in_order(self) -> None:
        self.requests.sort(key=lambda one: one["boot_s"])
        self.crawl.sort(key=lambda one: one.start_ms)

    def moves(
        self,
        at_s: float,
        site: str,
        frm: str | None,
        to: str,
        *,
        epoch: int,
        pending: int = 5,
        cause: str = "lease_lost",
        due_s: float | None = None,
    ) -> None:
        time_ms = round((WALL_S + START_S + at_s) * 1000)
        self.handoffs.append(
            records.Handoff(
                kind="moved",
                time_ms=time_ms,
                epoch=epoch,
                node=to,
                site=site,
                cause=cause,
                from_node=frm,
                to=to,
                settled_by="time",
                pending=pending,
                delay_ms=round(self.delay_s * 1000),
                due_ms=None if due_s is None else round((WALL_S + START_S + due_s) * 1000),
            )
        )

    def view(self, at_s: float, epoch: int) -> None:
        time_ms = round((WALL_S + START_S + at_s) * 1000)
        self.handoffs.append(records.Handoff(kind="epoch", time_ms=time_ms, epoch=epoch, node="n1"))

    def fault(self, at_s: float, kind: str, *victims: str, name: str = "", lasts_s: float = 0.0) -> None:
        self.faults.append(
            {
                "at_s": START_S + at_s,
                "wall_ms": round((WALL_S + START_S + at_s) * 1000),
                "until_s": START_S + at_s + lasts_s,
                "healed_wall_ms": round((WALL_S + START_S + at_s + lasts_s) * 1000),
                "name": name or kind,
                "class": kind,
                "victims": list(victims),
                "detail": "",
            }
        )

    def sample(self, at_s: float, node: str, rss_mb: float, *, pid: int = 1) -> None:
        self.samples.append({"boot_s": START_S + at_s, "node": node, "rss_mb": rss_mb, "pid": pid})

    def write(self, folder: Path) -> Path:
        """As a run leaves it."""
        (folder / "web").mkdir()
        (folder / "out").mkdir()
        _write(folder / "web" / "requests.jsonl", self.requests)
        for node in {line.node for line in self.crawl}:
            _write(folder / "out" / f"crawl-{node}.jsonl", [one for one in self.crawl if one.node == node])
        _write(folder / "handoffs.jsonl", self.handoffs)
        _write(folder / "faults.jsonl", self.faults)
        _write(folder / "samples.jsonl", self.samples)
        (folder / "run.json").write_text(json.dumps(self._run()))
        return folder

    def told(self) -> evidence.Evidence:
        """The same without files."""
        return evidence.Evidence(
            run=msgspec.convert(self._run(), evidence.Run),
            web=self.web,
            requests=[msgspec.convert(one, evidence.Request) for one in self.requests],
            crawl=self.crawl,
            handoffs=self.handoffs,
            faults=[msgspec.convert(one, evidence.Fault) for one in self.faults],
            samples=[msgspec.convert(one, evidence.Sample) for one in self.samples],
            raw_requests=[msgspec.json.encode(one) for one in self.requests],
        )

    def _run(self) -> dict[str, Any]:
        last_s = max((fault["until_s"] for fault in self.faults), default=START_S)
        return {
            "seed": SEED,
            "minutes": 5,
            "store": "single",
            "sites": SITES,
            "pages": PAGES,
            "delay_s": self.delay_s,
            "ttl_s": 4,
            "view_lease_s": 2.5,
            "wire_s": 2.25,
            "started_s": START_S,
            "calm_s": last_s,
            "ended_s": START_S + self.ends_s,
            "done": True,
            **self.run,
        }


def _write(path: Path, lines: list[Any]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
