"""One site's turn, and the tools a node's visits share; and the one request that all of them make the same way.

Every request is under the permit, and is written to the crawl log whatever it came to (P1's evidence).
"""

import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import msgspec

from node import fetch, guard, known, ownership, politeness, robots, steering, traps
from node.sinks import pages
from shared import agreement, clock, config, frontier, logs, metrics, records, sites, urls

T = TypeVar("T")


class Answered(Protocol):
    """What asks a store until it answers."""

    async def __call__(self, ask: Callable[[], Awaitable[T]]) -> T: ...


async def once(ask: Callable[[], Awaitable[T]]) -> T:
    """Try no more than once."""
    return await ask()


@dataclass(slots=True)
class Tools:
    """What every visit of a node uses."""

    settings: config.Config
    node: str
    fetcher: fetch.Fetcher
    store: frontier.Frontier
    places: sites.Sites
    score_of: Callable[[str], int]
    owner_of: Callable[[str], str | None]
    epoch: Callable[[], int]
    crawl_log: logs.CrawlLog
    sinks: pages.Sink | None
    form: urls.Form
    """The canonical form of every URL that is queued."""
    steering: steering.Steering
    """What may be asked for, as last heard."""
    watch: traps.Watch
    counts: metrics.Metrics
    clock_error_ms: Callable[[], int]
    answered: Answered
    """Ask the store, again and again while it is away."""
    store_ms: Callable[[], int]
    """The store's TIME as this machine knows it: what a record says may have been written by another."""
    persist: Callable[["Turn", records.Commit], Awaitable[records.Committed]]
    """Commit with what the turn found, and try again while the store is away and the site is ours."""
    on_request: Callable[[ownership.Held, fetch.Answer, int], None]
    rules: "OrderedDict[tuple[str, str], Robots]" = field(default_factory=OrderedDict)
    offered: known.Known = field(default_factory=known.Known)
    """Digests of what was offered and answered: links that every page repeats do not travel again."""
    kept: Answered = once
    """Write to the disk, again and again while it takes nothing."""

    @property
    def token(self) -> str:
        return config.product_token(self.settings.identity.user_agent)


@dataclass(frozen=True, slots=True)
class Robots:
    """One origin's rules as parsed, and until when (store's wall time) they may be used."""

    record: records.RobotsRecord
    rules: robots.Rules


@dataclass(slots=True)
class Turn:
    """One site's turn: what it holds, its permit, and what one visit needs to remember between steps."""

    held: ownership.Held
    permit: guard.Permit
    pace: politeness.Pace | None = None
    """What the last request asks for; None before any was sent."""
    offers: list[records.Offer] = field(default_factory=list)
    """What the answer names, to be taken with the commit (P2)."""
    digests: list[int] = field(default_factory=list)
    """Of each of `offers`, as `Tools.offered` knows it."""
    remember: tuple[bytes, records.ContentRef] | None = None
    """Under what the archive's copy of the answer's content is to be known, with the commit."""

    @property
    def record(self) -> records.SiteRecord:
        assert self.held.record is not None
        return self.held.record

    def crawl_delay_s(self) -> float | None:
        """The largest of the site's origins."""
        return max((delay for delay in self.held.crawl_delays.values() if delay is not None), default=None)


def own_doing(outcome: records.Outcome) -> bool:
    """We stopped this request ourselves: it says nothing about the site or the page."""
    return isinstance(outcome, records.Failed) and outcome.reason in politeness.OWN_DOING


def rest(now: Turn, settings: config.Config, answer: fetch.Answer, *, visit: pages.Visit) -> None:
    """Leave the site alone from this moment on, whatever becomes of the answer: a commit may fail, or wait (P1)."""
    outcome = answer.outcome
    if not answer.sent and own_doing(outcome):
        # Another site of the same machine has just been asked: our turn there is kept until then.
        now.held.ready_s = max(now.held.ready_s, answer.end_boot_s + answer.wait_s)
        return
    if isinstance(outcome, records.Failed) and (visit == "robots" or outcome.reason == "dns"):
        # A dead origin is left alone by its robots answer; its sister origins are not to pay for it with a back-off.
        outcome = records.Failed(reason="aborted")
    if isinstance(outcome, records.Redirected) and visit == "robots":
        outcome = msgspec.structs.replace(outcome, headers=())  # the hops of one question: no Retry-After parts them
    now.pace = politeness.after(
        outcome,
        settings=settings.politeness,
        crawl_delay_s=now.crawl_delay_s(),
        duration_s=answer.end_boot_s - answer.start_boot_s,
        backoff=now.record.backoff,
        now_ms=clock.wall_ms(),
        jitter01=random.random(),
    )
    owed_s = max(now.pace.due_in_s, now.record.delay_s)
    now.held.ready_s = max(now.held.ready_s, answer.end_boot_s + owed_s * agreement.SLACK)


async def request(
    now: Turn,
    tools: Tools,
    url: str,
    *,
    visit: pages.Visit,
    etag: str | None = None,
    last_modified: str | None = None,
    bytes_max: int | None = None,
    wanted: Callable[[str | None], bool] | None = None,
) -> fetch.Answer:
    """One request under the permit, written to the crawl log whatever it came to."""
    answer = await tools.fetcher.fetch(
        url, permit=now.permit, etag=etag, last_modified=last_modified, bytes_max=bytes_max, wanted=wanted
    )
    rest(now, tools.settings, answer, visit=visit)
    outcome = answer.outcome
    if not answer.sent:
        return answer
    status = getattr(outcome, "status", None)
    name = str(type(outcome).__struct_config__.tag)
    tools.counts.request(name, status=status)
    held, record = now.held, now.record
    delay_ms = round(max(record.delay_s, tools.settings.politeness.delay_min_s) * 1000)
    line = records.CrawlLine(
        start_ms=answer.start_wall_ms,
        site=held.site,
        url=url,
        node=tools.node,
        epoch=tools.epoch(),
        tenure=held.tenure,
        status=status,
        outcome=name if not isinstance(outcome, records.Failed) else f"failed:{outcome.reason}",
        visit=visit,
        bytes=answer.body_bytes,
        ms=round((answer.end_boot_s - answer.start_boot_s) * 1000),
        delay_ms=delay_ms,
        due_term="takeover" if held.moved else record.due_term or "none",
        clock_error_ms=tools.clock_error_ms(),
    )

    async def write() -> None:
        tools.crawl_log.write(line)

    await tools.kept(write)
    tools.on_request(held, answer, delay_ms)
    if visit == "robots" and tools.sinks is not None:
        page = pages.Visited(url=url, site=held.site, node=tools.node, visit=visit, answer=answer)
        await tools.sinks.write(page)  # an archive shows what was obeyed
    return answer
