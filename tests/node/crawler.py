"""A local web that keeps its own log, and a node's visits driven as the runner drives them, with authority always there."""

import asyncio
import contextlib
import dataclasses
import itertools
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from node import addresses, dns, fetch, guard, ownership, schedule, steering, traps, turn, visit
from node.sinks import chosen, jsonl
from shared import agreement, audit, clock, config, errors, frontier, logs, metrics, records, ring, sites, urls
from tests.node import origins

SITE = "example.com"
DELAY_S = 0.1
T = TypeVar("T")
PLACES = sites.Sites()


@dataclasses.dataclass
class Arrival:
    """One request as the origin saw it; boot seconds."""

    url: str
    headers: dict[str, str]
    start_s: float
    end_s: float


Script = Callable[[origins.Visitor], Awaitable[None]]
Answer = bytes | Script


class Web:
    """All hosts at one address: `pages` says what each URL answers in turn, the last one for ever."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[Answer, ...]] = {}
        self.log: list[Arrival] = []
        self.origin = origins.Origin(self._serve)
        self._busy = 0

    def put(self, url: str, *answers: Answer) -> None:
        self.pages[full(url)] = answers

    @property
    def urls(self) -> list[str]:
        """What was asked for, in order."""
        return [arrival.url for arrival in self.log]

    def asked(self, url: str) -> list[Arrival]:
        return [arrival for arrival in self.log if arrival.url == full(url)]

    async def _serve(self, visitor: origins.Visitor) -> None:
        now_s = clock.boot_s()
        first, *lines = self.origin.requests[visitor.number - 1].decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines if line)
        url = f"http://{headers['host']}{first.split()[1]}"
        arrival = Arrival(url, headers, now_s, now_s)
        self.log.append(arrival)
        assert not self._busy, "two requests at one time"
        answers = self.pages.get(url, (reply(status="404 Not Found"),))
        answer = answers[min(len(self.asked(url)), len(answers)) - 1]
        self._busy += 1
        try:
            if isinstance(answer, bytes):
                await visitor.send(answer)
            else:
                await answer(visitor)
            arrival.end_s = clock.boot_s()
        finally:
            self._busy -= 1

    def gaps_s(self, site: str = SITE) -> list[float]:
        """From the end of each answer to the start of the site's next request."""
        log = [arrival for arrival in self.log if PLACES.site_of(arrival.url) == site]
        return [after.start_s - before.end_s for before, after in itertools.pairwise(log)]

    def judge(self) -> None:
        """P1 by the origin's own clock: no two requests of a site closer than the smallest delay."""
        for site in {PLACES.site_of(arrival.url) for arrival in self.log}:
            assert min(self.gaps_s(site), default=DELAY_S) >= DELAY_S


def full(url: str) -> str:
    """`/path` is of the site's own host."""
    return f"http://{SITE}{url}" if url.startswith("/") else url


def reply(body: bytes = b"", *, status: str = "200 OK", kind: str = "text/html", **headers: str) -> bytes:
    """One whole answer; `retry_after="1"` is the header Retry-After."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", f"Content-Type: {kind}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def linking(*targets: str, head: str = "", **headers: str) -> bytes:
    body = f"<title>t</title>{head}" + "".join(f'<a href="{target}">x</a>' for target in targets)
    return reply(body.encode(), **headers)


def moved(location: str, status: str = "301 Moved Permanently") -> bytes:
    return reply(status=status, location=location)


def robots_txt(*lines: str) -> bytes:
    return reply("\n".join(["User-agent: *", *lines]).encode(), kind="text/plain")


async def hang_up(visitor: origins.Visitor) -> None:
    """Close without an answer."""
    visitor.writer.close()


class Crawler:
    """One node: real ownership, schedule, fetcher and store; visits run one after another."""

    def __init__(
        self,
        settings: config.Config,
        *,
        store: frontier.Frontier,
        fetcher: fetch.Fetcher,
        epoch: int,
        elsewhere: dict[str, str],
    ) -> None:
        self.settings, self.store, self.fetcher, self.epoch = settings, store, fetcher, epoch
        self.me = settings.node.id
        self.due = schedule.Schedule()
        self.steering = steering.Steering(settings)
        self.records: list[records.SiteRecord] = []
        """The record as the store answered each commit."""
        self.commits: list[records.Commit] = []
        self.late: list[float] = []
        self.on_start: Callable[[ownership.Held], None] = lambda _: None
        self.before_commit: Callable[[], Awaitable[None]] | None = None
        self.effects: list[ownership.Effect] = []
        self._claims: list[ownership.Claim] = []
        out = Path(settings.node.out)
        self.log_path, self.sink_path = out / f"crawl-{self.me}-{epoch}.jsonl", out / f"pages-{self.me}-{epoch}.jsonl"
        self.owned = ownership.Ownership(self.me, silence_s=60.0, delay_min_s=settings.politeness.delay_min_s)
        self._adopt(epoch, elsewhere, whole=False)
        self.tools = turn.Tools(
            settings=settings,
            node=self.me,
            fetcher=fetcher,
            store=store,
            places=PLACES,
            score_of=score_of,
            owner_of=self.owned.owner_of,
            epoch=lambda: self.epoch,
            crawl_log=logs.CrawlLog(self.log_path),
            sinks=chosen.open_sinks(settings, f"{self.me}-{epoch}"),
            form=urls.Form.of(settings.sites),
            steering=self.steering,
            watch=traps.Watch(alike_max=settings.limits.alike_max),
            counts=metrics.Metrics(),
            clock_error_ms=lambda: 1,
            store_ms=clock.wall_ms,
            answered=self._answered,
            persist=self._persist,
            on_request=self._on_request,
        )

    # -- what a test does

    async def seed(self, *urls: str, priority: int = 5) -> None:
        offers = [
            records.Offer(url=url, site=PLACES.site_of(url), score=score_of(PLACES.site_of(url)), priority=priority)
            for url in map(full, urls)
        ]
        await self.store.offer(offers, owner_of=self.owned.owner_of, pages_max=1_000)

    async def run(self, until: Callable[[], bool] | None = None, *, within_s: float = 8.0) -> None:
        """Visit whatever is due until the condition holds, looked at between visits; else until nothing is left."""
        deadline_s = clock.boot_s() + within_s
        while True:
            hints = await self._answered(lambda: self.store.inbox(self.me, at_most=1_000))
            self._apply(self.owned.found(hints))
            await self._answered(lambda hints=hints: self.store.empty_inbox(self.me, len(hints)))  # type: ignore[misc]
            await self._claim()
            if until() if until is not None else not len(self.due):
                return
            assert clock.boot_s() < deadline_s, "the condition never came true"
            site = self.due.take(clock.boot_s())
            if site is None:
                await asyncio.sleep(0.003)
            else:
                await self._start(site)

    async def look(self, site: str = SITE) -> dict[str, Any]:
        found = await self.store.look(site)
        assert found is not None
        return found

    def take_over(self, site: str = SITE) -> None:
        """The site is there already: find it, as a read of the gained arcs does."""
        self._apply(self.owned.found([site]))

    def lose(self, site: str = SITE) -> None:
        """A newer view gives the site to another node."""
        self._adopt(self.epoch + 1, {site: "other"}, whole=True)

    def lines(self) -> list[records.CrawlLine]:
        decode = msgspec.json.Decoder(records.CrawlLine).decode
        return [decode(line) for line in self.log_path.read_bytes().splitlines()]

    def pages(self) -> dict[str, jsonl.PageLine]:
        """The sink's newest line of each URL."""
        found = [msgspec.json.decode(line, type=jsonl.PageLine) for line in self.sink_path.read_bytes().splitlines()]
        return {line.url: line for line in found}

    # -- what the runner does

    def _adopt(self, epoch: int, elsewhere: dict[str, str], *, whole: bool) -> None:
        others = {node: records.Member(incarnation=9, weight=1.0, address="") for node in elsewhere.values()}
        members = {self.me: records.Member(incarnation=1, weight=1.0, address=""), **others}
        view = records.View(members=members, overrides={SITE: self.me, **elsewhere}, fingerprint={"ring": "xxh3-64/8"})
        now_s = clock.boot_s()
        self._apply(self.owned.adopted(now_s, agreement.Adopt(((epoch, view),), whole, 1)))
        self._apply(self.owned.settled(now_s, agreement.Settle(epoch, {})))

    def _apply(self, effects: Iterable[ownership.Effect]) -> None:
        for effect in effects:
            self.effects.append(effect)
            match effect:
                case ownership.Ready():
                    self.due.put(effect.site, effect.at_s, priority=effect.priority)
                case ownership.Claim():
                    self._claims.append(effect)

    async def _claim(self) -> None:
        while self._claims:
            asked = self._claims.pop(0)
            for site in asked.sites:
                epoch = self.owned.claim_epoch(site)
                if epoch is None:
                    continue
                answers = await self._answered(lambda site=site, epoch=epoch: self._ask_claim(site, epoch))  # type: ignore[misc]
                self._apply(self.owned.claimed(clock.boot_s(), site, epoch, answers[0]))

    async def _ask_claim(self, site: str, epoch: int) -> list[records.SiteRecord | None]:
        return await self.store.claim([site], self.me, epoch, delay_s=self.settings.politeness.delay_min_s)

    async def _answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask the store again and again while it is away."""
        while True:
            try:
                return await ask()
            except errors.StoreUnavailable:
                await asyncio.sleep(0.05)

    async def _start(self, site: str) -> None:
        held = self.owned.sites.get(site)
        if held is not None and held.record and not held.record.head:
            self._apply(self.owned.found([site]))
            return
        held = self.owned.start(clock.boot_s(), site)
        if held is None:
            return
        self.on_start(held)
        now = turn.Turn(held, self._permit(held))
        answer = None
        with contextlib.suppress(errors.StoreUnavailable):
            answer = await visit.visit(now, self.tools)
        self._apply(self.owned.finished(clock.boot_s(), held, answer))

    def _permit(self, held: ownership.Held) -> guard.Permit:
        def may_send() -> str | None:
            return None if self.owned.owns(held.site, held.tenure) else "not_owner"

        def may_start() -> str | None:
            return may_send() or (None if clock.boot_s() >= held.ready_s else "not_due")

        return guard.Permit(held.site, may_start, may_send, clock.boot_s, self.late.append)

    async def _persist(self, now: turn.Turn, change: records.Commit) -> records.Committed:
        held = now.held
        held.n += 1
        if self.before_commit is not None:
            await self.before_commit()
        answer = await self._answered(
            lambda: self.store.commit(
                held.site,
                self.me,
                held.tenure,
                held.n,
                change,
                offers=now.offers,
                remember=now.remember,
                owner_of=self.owned.owner_of,
                pages_max=1_000,
            )
        )
        self.commits.append(change)
        self.records.append(answer.record)
        return answer

    def _on_request(self, held: ownership.Held, _answer: fetch.Answer, _delay_ms: int) -> None:
        held.moved = False


def score_of(site: str) -> int:
    return ring.score_of("xxh3-64", site)


def settings_of(out: Path, node: str = "n1", **tables: dict[str, Any]) -> config.Config:
    """Small times, so that a test of ten requests takes a second."""
    # Durations do not count, so that a busy machine changes no delay.
    polite = {"delay_min_s": DELAY_S, "duration_factor": 0, "backoff_min_s": 0.2, "robots_error_ttl_s": 0.5}
    tree = {
        "identity": {"user_agent": origins.AGENT},
        "politeness": polite | tables.pop("politeness", {}),
        "node": {"id": node, "out": str(out)},
    }
    return msgspec.convert(tree | tables, config.Config)


@contextlib.asynccontextmanager
async def crawling(
    url: str,
    web: Web,
    out: Path,
    *,
    node: str = "n1",
    epoch: int = 10,
    resolver: dns.Resolver | None = None,
    elsewhere: dict[str, str] | None = None,
    trust: ssl.SSLContext | None = None,
    tls_faults: Literal["refuse", "record"] = "refuse",
    crowd: addresses.Addresses | None = None,
    **tables: dict[str, Any],
) -> AsyncIterator[Crawler]:
    """A node with fresh memory on the store; what it did is judged at the end (P1, P3, P4)."""
    settings = settings_of(out, node, **tables)
    store = await frontier.Frontier.open(url, "visits", durability=settings.durability)
    made = fetch.Fetcher(
        user_agent=settings.identity.user_agent,
        limits=settings.limits,
        resolver=resolver or dns.Resolver(connect_to=f"127.0.0.1:{web.origin.port}"),
        idle_max=8,
        tls=trust,
        tls_faults=tls_faults,
        crowd=crowd,
    )
    await made.start()
    crawler = Crawler(settings, store=store, fetcher=made, epoch=epoch, elsewhere=elsewhere or {})
    try:
        yield crawler
        judge(out)
        web.judge()
        assert crawler.late == []
    finally:
        crawler.tools.crawl_log.close()
        assert crawler.tools.sinks is not None
        crawler.tools.sinks.close()
        await made.close()
        await store.close()


def judge(out: Path) -> audit.Findings:
    """The crawl logs so far keep P1, P3 and P4."""
    decode = msgspec.json.Decoder(records.CrawlLine).decode
    lines = [decode(line) for path in out.glob("crawl-*.jsonl") for line in path.read_bytes().splitlines()]
    found = audit.examine(lines, [], clock_errors_ms={line.node: line.clock_error_ms for line in lines})
    assert found.violations == ()
    assert found.smallest_gap_ratio is None or found.smallest_gap_ratio >= 1
    return found
