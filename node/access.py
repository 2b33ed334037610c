"""May this URL be fetched: the origin's robots rules from memory, from the record, or asked for at the origin.

Asking is a request of the site like any other (RFC 9309): guarded, counted, and its redirects at the site's own pace.
"""

import asyncio

from node import fetch, outcomes, robots, turn
from shared import clock, errors, records, urls

HOPS_MAX = 5  # RFC 9309 2.3.1.2
PARSE_OFF_LOOP_BYTES = 64 * 1024  # larger files are parsed in a thread
LOOKED = ""  # no origin: all answers of the record have been read in this tenure
RULES_KEPT = 4_096  # parsed files in memory


async def rules(now: turn.Turn, tools: turn.Tools, origin: str) -> turn.Robots | None:
    """The origin's rules while they may be used, from memory or the record; None: ask the origin first."""
    key = (now.held.site, origin)
    known = tools.rules.get(key)
    if known is None or known.record.expires_ms <= tools.store_ms():
        record = await tools.store.robots(now.held.site, origin)
        if record is None or record.expires_ms <= tools.store_ms():
            return None
        known = await _remember(now, tools, origin, record)
    tools.rules.move_to_end(key)
    return known


async def know_crawl_delays(now: turn.Turn, tools: turn.Tools) -> None:
    """At the first visit of a tenure: the Crawl-delays of all origins of the site, since the largest counts."""
    if LOOKED in now.held.crawl_delays:
        return
    seen = await tools.store.look(now.held.site) if now.record.last_fetch_ms else None
    for origin in (seen or {}).get("robots", {}):
        record = await tools.store.robots(now.held.site, origin)
        if record is not None:
            await _remember(now, tools, origin, record)
    now.held.crawl_delays[LOOKED] = None


def verdict(queued: records.QueuedUrl, known: turn.Robots, tools: turn.Tools) -> str | None:
    """Why this URL may not be fetched now; None where it may."""
    limits = tools.settings.limits
    trap = urls.refusal(queued.url, limits)
    if trap is not None:
        return trap
    if known.rules.allowed(queued.url):
        return None
    return "robots_unreachable" if known.record.verdict == "disallow" else "robots"


async def ask(now: turn.Turn, tools: turn.Tools, origin: str) -> records.Commit | None:
    """Ask the origin for robots.txt; the commit that keeps the answer, or None where nothing was sent."""
    previous = await tools.store.robots(now.held.site, origin)
    url = f"{origin}/robots.txt"
    answer = await _request(now, tools, url)
    if isinstance(answer.outcome, records.Refused):
        # Not silent but out of bounds (a private address, another protocol's port), and so are all its pages.
        barred = [(one, answer.outcome.reason) for one in now.record.head if urls.origin_of(one.url) == origin]
        return outcomes.unpaced(now, outcomes.of_refusals(tools.settings, barred))
    for _ in range(HOPS_MAX):
        target = _target(answer.outcome, url, now, tools)
        if target is None:
            break
        url = target
        await _wait_due(now)
        answer = await _request(now, tools, url)
    if turn.own_doing(answer.outcome):
        return outcomes.paced(now, answer, records.Commit()) if answer.sent else None
    record = robots.record_of(
        _unless_elsewhere(answer.outcome, url, now, tools),
        previous,
        now_ms=tools.store_ms(),
        robots_ttl_s=tools.settings.politeness.robots_ttl_s,
        robots_error_ttl_s=tools.settings.politeness.robots_error_ttl_s,
        robots_bytes_max=tools.settings.limits.robots_bytes_max,
    )
    await _remember(now, tools, origin, record)
    turn.rest(now, tools.settings, answer, visit="robots")  # once more: only now is its Crawl-delay known (P1)
    return outcomes.paced(now, answer, records.Commit(robots=((origin, record),)))


async def _request(now: turn.Turn, tools: turn.Tools, url: str) -> fetch.Answer:
    return await turn.request(now, tools, url, visit="robots", bytes_max=tools.settings.limits.robots_bytes_max)


async def _wait_due(now: turn.Turn) -> None:
    """Between two hops the site is left alone as between any two requests (P1)."""
    while (wait_s := now.held.ready_s - clock.boot_s()) > 0:
        await asyncio.sleep(wait_s)


async def _remember(now: turn.Turn, tools: turn.Tools, origin: str, record: records.RobotsRecord) -> turn.Robots:
    if len(record.body) > PARSE_OFF_LOOP_BYTES:
        parsed = await asyncio.to_thread(robots.parse, record, tools.token)
    else:
        parsed = robots.parse(record, tools.token)
    known = tools.rules[now.held.site, origin] = turn.Robots(record, parsed)
    now.held.crawl_delays[origin] = parsed.crawl_delay_s
    while len(tools.rules) > RULES_KEPT:
        tools.rules.popitem(last=False)
    return known


def _target(outcome: records.Outcome, url: str, now: turn.Turn, tools: turn.Tools) -> str | None:
    """Where a robots.txt has moved to, if that is within the site."""
    if not isinstance(outcome, records.Redirected):
        return None
    try:
        target = urls.canonical(outcome.location, url)
    except errors.InvalidUrl:
        return None
    return target if tools.places.site_of(target) == now.held.site else None


def _unless_elsewhere(outcome: records.Outcome, url: str, now: turn.Turn, tools: turn.Tools) -> records.Outcome:
    """A robots.txt that moved to another site is not contacted from here: it counts as unreachable for now."""
    if isinstance(outcome, records.Redirected) and _target(outcome, url, now, tools) is None:
        return records.Failed(reason="robots_elsewhere", detail=outcome.location[:200])
    return outcome
