"""May this URL be fetched: the origin's robots rules from memory, from the record, or asked for at the origin.

Asking is a request of the site like any other (RFC 9309): guarded, counted, and its redirects at the site's own pace.
A file that has moved to another site is asked for by that site's owner (`answer_for_others`) and read from its record.
"""

import asyncio
from typing import TypeVar

import msgspec

from node import fetch, outcomes, politeness, robots, robots_moves, robots_rules, turn
from shared import agreement, clock, errors, logs, records, urls

LOOKED = ""  # no origin: all answers of the record have been read in this tenure
RULES_KEPT = 4_096  # parsed files in memory
WEIGHT_KEPT = 400_000  # rules in all of them: some 100 MB
LIGHT = 100  # rules; files with more are counted

T = TypeVar("T")
log = logs.get("node.access")


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
    if known.rules.slow:
        for queued in now.record.head:  # remembered for `verdict`, which cannot pause
            if urls.origin_of(queued.url) == origin:
                await _step_by_step(known.rules.judging(queued.url))
    return known


async def know_crawl_delays(now: turn.Turn, tools: turn.Tools) -> None:
    """At the first visit of a tenure: the Crawl-delays of all origins of the site, since the largest counts."""
    if LOOKED in now.held.crawl_delays:
        return
    seen = await tools.store.look(now.held.site) if now.record.last_fetch_ms else None
    for key in (seen or {}).get("robots", {}):
        record = await tools.store.robots(now.held.site, key) if robots_moves.of_origin(key) else None
        if record is not None:
            await _remember(now, tools, key, record)
    now.held.crawl_delays[LOOKED] = None


def verdict(queued: records.QueuedUrl, known: turn.Robots) -> str | None:
    """Why the origin's rules do not let this URL be fetched now; None where they do."""
    return None if known.rules.allowed(queued.url) else robots.refusal(known.record)


async def ask(now: turn.Turn, tools: turn.Tools, origin: str) -> records.Commit | None:
    """Ask the origin for robots.txt; the commit that keeps the answer, or None where nothing was sent.

    A file that is known to have moved to another site is looked up in that site's record instead.
    """
    previous = await tools.store.robots(now.held.site, origin)
    if previous is not None and previous.moved_ms:
        record = await _from_elsewhere(tools, previous)
        known = await _remember(now, tools, origin, record)
        if record.moved_ms:
            # Once more: the offer may have been lost, or not made, since other sites' redirects led here.
            await _offer(tools, record, _hops(now, origin))
        else:
            _tell(now, tools, origin, known)
        return _slower(now, tools, outcomes.unpaced(now, records.Commit(robots=((origin, record),))))
    url = f"{origin}/robots.txt"
    answer, last, followed = await _follow(now, tools, url)
    if isinstance(answer.outcome, records.Refused) and last == url:
        # Not silent but out of bounds (a private address, another protocol's port), and so are all its pages.
        barred = [(one, answer.outcome.reason) for one in now.record.head if urls.origin_of(one.url) == origin]
        return outcomes.unpaced(now, outcomes.of_refusals(tools.settings, barred))
    if turn.own_doing(answer.outcome):
        return outcomes.paced(now, answer, records.Commit()) if answer.sent else None
    record = await _record(now, tools, answer.outcome, last, previous, followed=followed)
    if record.moved_ms:
        await _offer(tools, record, _hops(now, origin))
    known = await _remember(now, tools, origin, record)
    _tell(now, tools, origin, known)
    turn.rest(now, tools.settings, answer, visit="robots")  # once more: only now is its Crawl-delay known (P1)
    return outcomes.paced(now, answer, records.Commit(robots=((origin, record),)))


async def answer_for_others(now: turn.Turn, tools: turn.Tools, queued: records.QueuedUrl) -> records.Commit | None:
    """Ask for a robots.txt that another site's has moved to, and keep the answer in this site's record.

    `queued.role` is robots. The commit leaves the URL in the queue where its origin's own permission came first, or we
    stopped ourselves; None where there is nothing to commit.
    """
    key = robots_moves.key_of(queued.url)
    previous = await tools.store.robots(now.held.site, key)
    if previous is not None and previous.expires_ms > tools.store_ms():
        return outcomes.unpaced(now, records.Commit(done=(queued,)))
    if not robots_moves.of_origin(key):
        return await _answer_at(now, tools, queued, previous)
    change = await ask(now, tools, key)
    if change is None or not change.robots or queued in change.done:
        return change
    return msgspec.structs.replace(change, done=(*change.done, queued))


async def _answer_at(
    now: turn.Turn, tools: turn.Tools, queued: records.QueuedUrl, previous: records.RobotsRecord | None
) -> records.Commit | None:
    """The same of a URL that is no origin's own /robots.txt: it is under that origin's rules like any other."""
    origin = urls.origin_of(queued.url)
    known = await rules(now, tools, origin)
    if known is None:
        return await ask(now, tools, origin)
    refused = verdict(queued, known)
    if refused is not None and known.record.verdict == "disallow":
        return outcomes.unasked(now, tools.settings, [(queued, refused)])
    if refused is not None:
        record = _unanswered(tools, previous)
        barred = outcomes.of_refusals(tools.settings, [(queued, refused)])
        return outcomes.unpaced(now, msgspec.structs.replace(barred, robots=((queued.url, record),)))
    answer, last, followed = await _follow(now, tools, queued.url)
    if turn.own_doing(answer.outcome):
        return outcomes.paced(now, answer, records.Commit()) if answer.sent else None
    record = await _record(now, tools, answer.outcome, last, previous, followed=followed)
    if record.moved_ms:
        await _offer(tools, record, queued.hops)
    return outcomes.paced(now, answer, records.Commit(done=(queued,), robots=((queued.url, record),)))


async def _follow(now: turn.Turn, tools: turn.Tools, url: str) -> tuple[fetch.Answer, str, int]:
    """The last answer of a chain of redirects within the site, its URL, and how many there were.

    A chain that is put off on its way (another site of the same address is asked first) goes on from there the next
    time: begun anew it would be put off anew, and never end.
    """
    at, followed = now.held.following.pop(url, (url, 0))
    while True:
        answer = await _request(now, tools, at)
        if followed and not answer.sent and turn.own_doing(answer.outcome):
            now.held.following[url] = at, followed
            return answer, at, followed
        target = _target(answer.outcome, at)
        if target is None or followed >= robots_moves.HOPS_MAX or tools.places.site_of(target) != now.held.site:
            return answer, at, followed
        at, followed = target, followed + 1
        await _wait_due(now)


async def _request(now: turn.Turn, tools: turn.Tools, url: str) -> fetch.Answer:
    return await turn.request(now, tools, url, visit="robots", bytes_max=tools.settings.limits.robots_bytes_max)


async def _wait_due(now: turn.Turn) -> None:
    """Between two hops the site is left alone as between any two requests (P1)."""
    while (wait_s := now.held.ready_s - clock.boot_s()) > 0:
        await asyncio.sleep(wait_s)


def _target(outcome: records.Outcome, url: str) -> str | None:
    """Where a robots.txt has moved to."""
    if not isinstance(outcome, records.Redirected):
        return None
    return fetch.redirect_target(url, outcome.location)[0]


async def _record(
    now: turn.Turn,
    tools: turn.Tools,
    outcome: records.Outcome,
    url: str,
    previous: records.RobotsRecord | None,
    *,
    followed: int,
) -> records.RobotsRecord:
    """What is kept of the answer that a chain of redirects within the site ended with, at `url`."""
    polite, limits = tools.settings.politeness, tools.settings.limits
    target = _target(outcome, url)
    if isinstance(outcome, records.Redirected):
        if target is None or urls.refusal(target, limits):
            outcome = records.Failed(reason="bad_redirect", detail=outcome.location[:200])
        elif tools.places.site_of(target) != now.held.site and followed < robots_moves.HOPS_MAX:
            record = robots_moves.moved(
                target,
                hops=followed + 1,
                status=outcome.status,
                previous=previous,
                now_ms=tools.store_ms(),
                robots_error_ttl_s=polite.robots_error_ttl_s,
            )
            return await _from_elsewhere(tools, record)  # its answer may be there already
    return robots.record_of(
        outcome,
        previous,
        now_ms=tools.store_ms(),
        robots_ttl_s=polite.robots_ttl_s,
        robots_error_ttl_s=polite.robots_error_ttl_s,
        robots_bytes_max=limits.robots_bytes_max,
        robots_forbidden=polite.robots_forbidden,
    )


def _hops(now: turn.Turn, origin: str) -> int:
    """How many redirects of other sites led to this origin's file; 0 where the origin has URLs of its own."""
    head = [queued for queued in now.record.head if urls.origin_of(queued.url) == origin]
    return min((queued.hops if queued.role == "robots" else 0 for queued in head), default=0)


async def _offer(tools: turn.Tools, record: records.RobotsRecord, hops: int) -> None:
    """Have the other site's owner ask: before the commit that keeps the move, so that a lost offer is made again."""
    hops += record.moved_hops
    if hops > robots_moves.HOPS_MAX:
        return  # whoever came here from so far takes it for unavailable, and does not wait
    site = tools.places.site_of(record.moved_to)
    offer = records.Offer(
        url=record.moved_to,
        site=site,
        score=tools.score_of(site),
        priority=robots_moves.priority(record.moved_to, site),
        again=True,
        meta=records.trail("robots", hops=hops),
    )
    pages_max = tools.settings.limits.pages_per_site_max
    await tools.answered(lambda: tools.store.offer([offer], owner_of=tools.owner_of, pages_max=pages_max))


async def _from_elsewhere(tools: turn.Tools, mine: records.RobotsRecord) -> records.RobotsRecord:
    """A record that waits for another site's answer, after a look at that site's record, and at those it leads to."""
    polite = tools.settings.politeness
    target, hops, theirs = mine.moved_to, mine.moved_hops, None
    now_ms = tools.store_ms()
    while hops <= robots_moves.HOPS_MAX:
        theirs = await _theirs(tools, target)
        if theirs is None or not robots_moves.goes_on(theirs, now_ms=now_ms, robots_ttl_s=polite.robots_ttl_s):
            break
        target, hops = theirs.moved_to, hops + max(1, theirs.moved_hops)
    return robots_moves.taken_over(
        mine,
        theirs,
        hops=hops,
        now_ms=now_ms,
        robots_ttl_s=polite.robots_ttl_s,
        robots_error_ttl_s=polite.robots_error_ttl_s,
    )


async def _theirs(tools: turn.Tools, target: str) -> records.RobotsRecord | None:
    """What the site of a file has of it; nothing where its record cannot be read, which is no damage of ours.

    The redirect is here: while the store is away, waiting costs its site less than another request (P3).
    """
    site, key = tools.places.site_of(target), robots_moves.key_of(target)
    try:
        return await tools.answered(lambda: tools.store.robots(site, key))
    except errors.DamagedSite:
        return None


def _unanswered(tools: turn.Tools, previous: records.RobotsRecord | None) -> records.RobotsRecord:
    """The record of a file that we may not ask for."""
    now_ms = tools.store_ms()
    again_ms = now_ms + int(tools.settings.politeness.robots_error_ttl_s * 1000)
    return robots.unreachable(previous, status=0, now_ms=now_ms, again_ms=again_ms)


async def _remember(now: turn.Turn, tools: turn.Tools, origin: str, record: records.RobotsRecord) -> turn.Robots:
    parsed = await _step_by_step(robots.parsing(record, tools.token, origin=origin))
    known = turn.Robots(msgspec.structs.replace(record, body=b""), parsed)  # the body would be held for nothing
    tools.rules[now.held.site, origin] = known
    now.held.crawl_delays[origin] = parsed.crawl_delay_s
    weight = sum(one.rules.weight for one in tools.rules.values()) if parsed.weight > LIGHT else 0
    while len(tools.rules) > 1 and (len(tools.rules) > RULES_KEPT or weight > WEIGHT_KEPT):
        weight -= tools.rules.popitem(last=False)[1].rules.weight
    return known


def _slower(now: turn.Turn, tools: turn.Tools, change: records.Commit) -> records.Commit:
    """Rules that came without a request may ask for a longer delay: it counts from now (P1)."""
    delay_s, term = politeness.delay(tools.settings.politeness, crawl_delay_s=now.crawl_delay_s(), duration_s=0.0)
    if delay_s <= now.record.delay_s:
        return change
    now.held.ready_s = max(now.held.ready_s, clock.boot_s() + delay_s * agreement.SLACK)
    return msgspec.structs.replace(change, delay_s=delay_s, delay_term=term, due_in_s=delay_s, due_term=term)


async def _step_by_step(steps: robots_rules.Steps[T]) -> T:
    """All steps of a work, the loop's other work between them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        await asyncio.sleep(0)


def _tell(now: turn.Turn, tools: turn.Tools, origin: str, known: turn.Robots) -> None:
    """Count what an answer came to, and write down what an operator may wonder about."""
    record = known.record
    answer = robots.named(record)
    tools.counts.robots.labels(answer).inc()
    if record.status in robots.FORBIDDEN:
        log.info("robots.forbidden", site=now.held.site, origin=origin, status=record.status, verdict=record.verdict)
    if record.moved_ms:
        log.info("robots.elsewhere", site=now.held.site, origin=origin, target=record.moved_to)
    asked_s, cap_s = known.rules.crawl_delay_s, tools.settings.politeness.delay_cap_s
    if asked_s is not None and asked_s > cap_s:
        tools.counts.crawl_delays_capped.inc()
        log.warning("robots.crawl_delay_capped", site=now.held.site, origin=origin, asked_s=asked_s, cap_s=cap_s)
