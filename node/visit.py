"""One visit, the straight line: due -> robots -> fetch -> links -> outcome -> commit.

One visit makes at most one page request and one commit. It may make more than one request only for robots.txt, whose
redirects are followed at the site's own pace. It decides nothing about ownership: the permit does, at the socket.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

import msgspec
import xxhash

from node import fetch, guard, links, ownership, politeness, revisit, robots
from node.sinks import jsonl
from shared import clock, config, errors, frontier, logs, metrics, records, sites, urls

ROBOTS_HOPS_MAX = 5  # RFC 9309 2.3.1.2
PARSE_OFF_LOOP_BYTES = 64 * 1024  # larger robots files and pages are parsed in a thread
RULES_KEPT = 4_096  # parsed robots files in memory
OFFERS_KEPT = 200_000  # digests of offers that were answered; links that every page repeats do not travel again


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
    sink: jsonl.JsonlSink | None
    counts: metrics.Metrics
    clock_error_ms: Callable[[], int]
    persist: Callable[[ownership.Held, records.Commit], Awaitable[records.Committed]]
    """Commit, and try again while the store is away and the site is ours."""
    on_request: Callable[[ownership.Held, fetch.Answer, int], None]
    rules: "OrderedDict[tuple[str, str], Robots]" = field(default_factory=OrderedDict)
    offered: "OrderedDict[int, None]" = field(default_factory=OrderedDict)

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
    crawl_delays: dict[str, float | None]
    """By origin, for this tenure; filled before the first request."""
    rest_until_s: float = 0.0

    @property
    def record(self) -> records.SiteRecord:
        assert self.held.record is not None
        return self.held.record

    def crawl_delay_s(self) -> float | None:
        """The largest of the site's origins."""
        return max((delay for delay in self.crawl_delays.values() if delay is not None), default=None)


async def visit(turn: Turn, tools: Tools) -> records.Committed | None:
    """Visit the most urgent URL of the site's head; None where there was nothing to commit."""
    refused: list[tuple[records.QueuedUrl, str]] = []
    await _know_crawl_delays(turn, tools)
    for queued in turn.record.head:
        origin = urls.origin_of(queued.url)
        known = await _rules(turn, tools, origin)
        if known is None:
            if refused:
                break  # what is decided is committed first; robots.txt comes with the next visit
            return await _visit_robots(turn, tools, origin)
        verdict = _verdict(queued, known, tools)
        if verdict is None:
            return await _visit_page(turn, tools, queued, refused)
        refused.append((queued, verdict))
    if not refused:
        return None
    return await tools.persist(turn.held, _unsent(turn, tools, refused))


# --- robots ---------------------------------------------------------------------------------------------------------


async def _rules(turn: Turn, tools: Tools, origin: str) -> Robots | None:
    """The origin's rules while they may be used, from memory or the record; None: ask the origin first."""
    key = (turn.held.site, origin)
    known = tools.rules.get(key)
    if known is None or known.record.expires_ms <= clock.wall_ms():
        record = await tools.store.robots(turn.held.site, origin)
        if record is None or record.expires_ms <= clock.wall_ms():
            return None
        known = await _remember(turn, tools, origin, record)
    tools.rules.move_to_end(key)
    return known


async def _remember(turn: Turn, tools: Tools, origin: str, record: records.RobotsRecord) -> Robots:
    if len(record.body) > PARSE_OFF_LOOP_BYTES:
        rules = await asyncio.to_thread(robots.parse, record, tools.token)
    else:
        rules = robots.parse(record, tools.token)
    known = tools.rules[turn.held.site, origin] = Robots(record, rules)
    turn.crawl_delays[origin] = rules.crawl_delay_s
    while len(tools.rules) > RULES_KEPT:
        tools.rules.popitem(last=False)
    return known


async def _know_crawl_delays(turn: Turn, tools: Tools) -> None:
    """At the first visit of a tenure: the Crawl-delays of all origins of the site, since the largest counts."""
    if turn.crawl_delays:
        return
    turn.crawl_delays[""] = None  # looked, whatever there was
    if not turn.record.last_fetch_ms:
        return
    seen = await tools.store.look(turn.held.site) or {}
    for origin in seen.get("robots", {}):
        record = await tools.store.robots(turn.held.site, origin)
        if record is not None:
            await _remember(turn, tools, origin, record)


def _verdict(queued: records.QueuedUrl, known: Robots, tools: Tools) -> str | None:
    """Why this URL may not be fetched now; None where it may."""
    limits = tools.settings.limits
    trap = urls.refusal(
        queued.url,
        url_bytes_max=limits.url_bytes_max,
        path_depth_max=limits.path_depth_max,
        path_repeats_max=limits.path_repeats_max,
    )
    if trap is not None:
        return trap
    if known.rules.allowed(queued.url):
        return None
    return "robots_unreachable" if known.record.verdict == "disallow" else "robots"


async def _visit_robots(turn: Turn, tools: Tools, origin: str) -> records.Committed | None:
    """Ask for robots.txt as a request of the site, its redirects within the site at the site's pace."""
    previous = await tools.store.robots(turn.held.site, origin)
    url = f"{origin}/robots.txt"
    answer = await _request(turn, tools, url, visit="robots", bytes_max=tools.settings.limits.robots_bytes_max)
    for _ in range(ROBOTS_HOPS_MAX):
        target = _robots_target(answer.outcome, url, turn, tools)
        if target is None:
            break
        url = target
        due_s = answer.end_boot_s + _pace(answer, turn, tools).due_in_s * clock.SLACK
        turn.held.ready_s = max(turn.held.ready_s, due_s)
        while (wait_s := turn.held.ready_s - clock.boot_s()) > 0:
            await asyncio.sleep(wait_s)
        answer = await _request(turn, tools, url, visit="robots", bytes_max=tools.settings.limits.robots_bytes_max)
    if not answer.sent and _own_doing(answer.outcome):
        return None
    record = robots.record_of(
        _unless_elsewhere(answer.outcome, url, turn, tools),
        previous,
        now_ms=clock.wall_ms(),
        robots_ttl_s=tools.settings.politeness.robots_ttl_s,
        robots_error_ttl_s=tools.settings.politeness.robots_error_ttl_s,
        robots_bytes_max=tools.settings.limits.robots_bytes_max,
    )
    await _remember(turn, tools, origin, record)
    change = _paced(turn, tools, answer, records.Commit(robots=((origin, record),)))
    return await tools.persist(turn.held, change)


def _robots_target(outcome: records.Outcome, url: str, turn: Turn, tools: Tools) -> str | None:
    """Where a robots.txt has moved to, if that is within the site."""
    if not isinstance(outcome, records.Redirected):
        return None
    try:
        target = urls.canonical(outcome.location, url)
    except errors.InvalidUrl:
        return None
    return target if tools.places.site_of(target) == turn.held.site else None


def _unless_elsewhere(outcome: records.Outcome, url: str, turn: Turn, tools: Tools) -> records.Outcome:
    """A robots.txt that moved to another site is not contacted from here: it counts as unreachable for now."""
    if isinstance(outcome, records.Redirected) and _robots_target(outcome, url, turn, tools) is None:
        return records.Failed(reason="robots_elsewhere", detail=outcome.location[:200])
    return outcome


# --- pages ----------------------------------------------------------------------------------------------------------


async def _visit_page(
    turn: Turn, tools: Tools, queued: records.QueuedUrl, refused: list[tuple[records.QueuedUrl, str]]
) -> records.Committed | None:
    page = queued.page
    kind = "first" if page is None or not page.last_check_ms else "recrawl"
    if page is not None and page.attempts:
        kind = "retry"
    answer = await _request(
        turn,
        tools,
        queued.url,
        visit=kind,
        etag=page.etag if page else None,
        last_modified=page.last_modified if page else None,
    )
    if _own_doing(answer.outcome):
        if not answer.sent and not refused:
            return None
        return await tools.persist(turn.held, _paced(turn, tools, answer, _refusals(turn, tools, refused)))
    found = await _found_in(answer, queued.url, tools)
    await _offer(_links(answer.outcome, queued.url, found, tools), tools)
    content = _content(answer.outcome)
    _write_page(queued, answer, found, content, turn, tools)
    after = revisit.page_after(page, answer.outcome, content=content, now_ms=clock.wall_ms())
    change = _outcome(turn, tools, queued, answer, after, refused)
    return await tools.persist(turn.held, change)


def _outcome(
    turn: Turn,
    tools: Tools,
    queued: records.QueuedUrl,
    answer: fetch.Answer,
    after: records.PageRecord,
    refused: list[tuple[records.QueuedUrl, str]],
) -> records.Commit:
    """All that the visit changes, as one commit."""
    pace = _pace(answer, turn, tools)
    recrawl, polite = tools.settings.recrawl, tools.settings.politeness
    again_s = None
    if recrawl.enabled:
        again_s = revisit.interval_s(
            after, minimum=recrawl.interval_min_s, maximum=recrawl.interval_max_s, start=recrawl.interval_start_s
        )
    what = revisit.plan(
        answer.outcome,
        attempts=after.attempts,
        pause_s=pace.due_in_s,
        attempts_max=tools.settings.limits.attempts_max,
        backoff_min_s=polite.backoff_min_s,
        backoff_cap_s=polite.backoff_cap_s,
        again_s=again_s,
    )
    base = _refusals(turn, tools, refused)
    change = msgspec.structs.replace(base, done=(*base.done, queued), pages=((queued.url, after),), visits=1)
    match what:
        case revisit.Done(again_s=seconds) if seconds is not None:
            change = msgspec.structs.replace(change, later=(*change.later, (queued.url, seconds, queued.priority)))
        case revisit.Later(seconds=seconds):
            change = msgspec.structs.replace(change, later=(*change.later, (queued.url, seconds, queued.priority)))
        case revisit.SetAside(reason=reason):
            change = msgspec.structs.replace(change, set_aside=(*change.set_aside, (queued.url, reason)))
        case _:
            pass
    return _paced(turn, tools, answer, change)


def _links(outcome: records.Outcome, url: str, found: links.Page | None, tools: Tools) -> Iterable[str]:
    """Where the answer points: a redirect's target is offered like any link, never followed."""
    if isinstance(outcome, records.Redirected):
        try:
            return [urls.canonical(outcome.location, url)]
        except errors.InvalidUrl:
            return []
    return found.links if found is not None and not found.nofollow else []


async def _found_in(answer: fetch.Answer, url: str, tools: Tools) -> links.Page | None:
    outcome = answer.outcome
    if not isinstance(outcome, records.Fetched) or not 200 <= outcome.status < 300:
        return None
    arguments = {
        "content_type": answer.content_type,
        "url": url,
        "links_max": tools.settings.limits.links_per_page_max,
        "token": tools.token,
    }
    if len(outcome.body) > PARSE_OFF_LOOP_BYTES:
        return await asyncio.to_thread(links.extract, outcome.body, **arguments)  # type: ignore[arg-type]
    return links.extract(outcome.body, **arguments)  # type: ignore[arg-type]


async def _offer(found: Iterable[str], tools: Tools) -> None:
    """Offer what was found, before the page is committed: a lost offer comes again with its page (P2)."""
    limits = tools.settings.limits
    offers: list[records.Offer] = []
    digests: list[int] = []
    for url in found:
        digest = urls.digest(url)
        if digest in tools.offered:
            tools.offered.move_to_end(digest)
            continue
        if urls.refusal(
            url,
            url_bytes_max=limits.url_bytes_max,
            path_depth_max=limits.path_depth_max,
            path_repeats_max=limits.path_repeats_max,
        ):
            continue
        site = tools.places.site_of(url)
        offers.append(records.Offer(url=url, site=site, score=tools.score_of(site)))
        digests.append(digest)
    if not offers:
        return
    answers = await tools.store.offer(offers, owner_of=tools.owner_of, pages_max=limits.pages_per_site_max)
    for verdict in answers:
        tools.counts.links.labels(verdict).inc()
    tools.offered.update(dict.fromkeys(digests))
    while len(tools.offered) > OFFERS_KEPT:
        tools.offered.popitem(last=False)


def _content(outcome: records.Outcome) -> int | None:
    """63-bit digest of a 2xx body."""
    if isinstance(outcome, records.Fetched) and 200 <= outcome.status < 300:
        return xxhash.xxh3_64_intdigest(outcome.body) >> 1
    return None


def _write_page(
    queued: records.QueuedUrl,
    answer: fetch.Answer,
    found: links.Page | None,
    content: int | None,
    turn: Turn,
    tools: Tools,
) -> None:
    """Hand the page to the sink before its commit (P2)."""
    outcome = answer.outcome
    if tools.sink is None or not isinstance(outcome, records.Fetched | records.NotModified | records.Redirected):
        return
    body = outcome.body if isinstance(outcome, records.Fetched) else b""
    tools.sink.write(
        jsonl.PageLine(
            url=queued.url,
            site=turn.held.site,
            node=tools.node,
            fetched_ms=answer.start_wall_ms,
            status=outcome.status,
            title=found.title if found else None,
            links=found.links if found else (),
            content_type=answer.content_type,
            charset=found.charset if found else None,
            bytes=len(body),
            content=f"{content:016x}" if content is not None else None,
            truncated=outcome.truncated if isinstance(outcome, records.Fetched) else None,
            redirect=outcome.location if isinstance(outcome, records.Redirected) else None,
            etag=revisit.header(outcome.headers, "etag"),
            last_modified=revisit.header(outcome.headers, "last-modified"),
            nofollow=found.nofollow if found else False,
            noindex=found.noindex if found else False,
            bad_links=found.bad_links if found else 0,
        )
    )


# --- one request, and what it means for the site's pace -------------------------------------------------------------


async def _request(
    turn: Turn,
    tools: Tools,
    url: str,
    *,
    visit: str,
    etag: str | None = None,
    last_modified: str | None = None,
    bytes_max: int | None = None,
) -> fetch.Answer:
    """One request under the permit, written to the crawl log whatever it came to."""
    answer = await tools.fetcher.fetch(
        url, permit=turn.permit, etag=etag, last_modified=last_modified, bytes_max=bytes_max
    )
    outcome = answer.outcome
    status = getattr(outcome, "status", None)
    name = str(type(outcome).__struct_config__.tag)
    tools.counts.request(name, status=status)
    if not answer.sent:
        return answer
    held, record = turn.held, turn.record
    delay_ms = round(max(record.delay_s, tools.settings.politeness.delay_min_s) * 1000)
    tools.crawl_log.write(
        records.CrawlLine(
            start_ms=answer.start_wall_ms,
            site=held.site,
            url=url,
            node=tools.node,
            epoch=tools.epoch(),
            tenure=held.tenure,
            status=status,
            outcome=name if not isinstance(outcome, records.Failed) else f"failed:{outcome.reason}",
            visit=visit,  # type: ignore[arg-type]
            bytes=answer.body_bytes,
            ms=round((answer.end_boot_s - answer.start_boot_s) * 1000),
            delay_ms=delay_ms,
            due_term="takeover" if held.moved else record.due_term or "none",
            clock_error_ms=tools.clock_error_ms(),
        )
    )
    tools.on_request(held, answer, delay_ms)
    return answer


def _own_doing(outcome: records.Outcome) -> bool:
    return isinstance(outcome, records.Failed) and outcome.reason in politeness.OWN_DOING


def _pace(answer: fetch.Answer, turn: Turn, tools: Tools) -> politeness.Pace:
    return politeness.after(
        answer.outcome,
        settings=tools.settings.politeness,
        crawl_delay_s=turn.crawl_delay_s(),
        duration_s=answer.end_boot_s - answer.start_boot_s,
        backoff=turn.record.backoff,
        now_ms=clock.wall_ms(),
        jitter01=random.random(),
    )


def _paced(turn: Turn, tools: Tools, answer: fetch.Answer, change: records.Commit) -> records.Commit:
    """Put the site's new delay and due into a commit; what we stopped ourselves before it was sent changes neither."""
    if not answer.sent and _own_doing(answer.outcome):
        return msgspec.structs.replace(change, **_unchanged(turn))
    pace = _pace(answer, turn, tools)
    turn.rest_until_s = answer.end_boot_s + pace.due_in_s
    return msgspec.structs.replace(
        change,
        due_in_s=pace.due_in_s,
        due_term=pace.due_term,
        delay_s=pace.delay_s,
        delay_term=pace.delay_term,
        backoff=pace.backoff,
        fetched_ms_ago=max(0, round((clock.boot_s() - answer.start_boot_s) * 1000)) if answer.sent else None,
    )


def _unsent(turn: Turn, tools: Tools, refused: list[tuple[records.QueuedUrl, str]]) -> records.Commit:
    return msgspec.structs.replace(_refusals(turn, tools, refused), **_unchanged(turn))


def _unchanged(turn: Turn) -> dict[str, object]:
    """The pace as the record has it, for a commit that sent nothing."""
    record = turn.record
    return {
        "due_in_s": 0.0,
        "due_term": record.due_term,
        "delay_s": record.delay_s,
        "delay_term": record.delay_term,
        "backoff": record.backoff,
    }


def _refusals(turn: Turn, tools: Tools, refused: list[tuple[records.QueuedUrl, str]]) -> records.Commit:
    """URLs that may not be asked for: set aside for good, or moved to later where the reason passes (P2)."""
    later = []
    aside = []
    for queued, reason in refused:
        what = revisit.plan(
            records.Refused(reason=reason),
            attempts=0,
            pause_s=tools.settings.politeness.robots_error_ttl_s,
            attempts_max=tools.settings.limits.attempts_max,
            backoff_min_s=tools.settings.politeness.backoff_min_s,
            backoff_cap_s=tools.settings.politeness.backoff_cap_s,
        )
        if isinstance(what, revisit.Later):
            later.append((queued.url, what.seconds, queued.priority))
        else:
            aside.append((queued.url, reason))
    return records.Commit(done=tuple(queued for queued, _ in refused), later=tuple(later), set_aside=tuple(aside))
