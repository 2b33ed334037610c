"""One visit, the straight line: due -> scope -> robots -> fetch -> links -> sink -> outcome -> commit.

One visit makes at most one page request and one commit. It decides nothing about ownership or authority: the permit
does, at the socket.
"""

import xxhash

from node import access, admission, keeping, offering, outcomes, reading, revisit, turn
from node.sinks import pages
from shared import logs, records, urls

TENURES_MAX = 3  # that a page may end without a commit: it must not take one node after another with it

log = logs.get("node.visit")


async def visit(now: turn.Turn, tools: turn.Tools) -> records.Committed | None:
    """Visit the most urgent URL of the site's head; None where there was nothing to commit."""
    refused: outcomes.Refusals = []
    await access.know_crawl_delays(now, tools)
    for queued in now.record.head:
        reason = admission.of_queued(queued, now.record, limits=tools.settings.limits, word=tools.steering)
        if reason is not None:
            refused.append((queued, reason))
            continue
        origin = urls.origin_of(queued.url)
        known = await access.rules(now, tools, origin)
        if known is None and refused:
            break  # what is decided is committed first; robots.txt comes with the next visit
        if known is None:
            return await _persist(now, tools, await _ask_robots(now, tools, origin))
        if queued.role == "robots":
            if refused:
                break
            return await _persist(now, tools, await access.answer_for_others(now, tools, queued))
        reason = access.verdict(queued, known)
        poison = reason is None and await _ends_tenures(now, tools, queued)
        if reason is None and not poison:
            return await _persist(now, tools, await _fetch_page(now, tools, queued, refused))
        refused.append((queued, reason or "three_tenures"))
        if poison:
            break  # committed before the next page is asked for: that one may end this tenure too
    change = outcomes.unasked(now, tools.settings, refused) if refused else None
    return await _persist(now, tools, change)


async def _persist(now: turn.Turn, tools: turn.Tools, change: records.Commit | None) -> records.Committed | None:
    if change is None:
        if now.offers:
            await offering.ahead(now, tools)
        return None
    answer = await tools.persist(now, outcomes.with_slots(change, now.record, tools.settings))
    offering.heard(now.offers, now.digests, answer.verdicts, tools)
    return answer


async def _ask_robots(now: turn.Turn, tools: turn.Tools, origin: str) -> records.Commit | None:
    """Ask for robots.txt, and offer the sitemaps that it names, before its answer is committed (P2)."""
    change = await access.ask(now, tools, origin)
    known = tools.rules.get((now.held.site, origin))
    if change is not None and known is not None and tools.settings.sites.sitemaps:
        role = records.trail("sitemap")
        await offering.offer((reading.Target(url, role) for url in known.rules.sitemaps), now, tools)
    return change


async def _ends_tenures(now: turn.Turn, tools: turn.Tools, queued: records.QueuedUrl) -> bool:
    """Have three tenures in a row ended at this page without a commit? Asked only where the last one ended without."""
    if now.held.n or not now.record.barren:
        return False
    if now.permit.may_start() is not None:
        return False  # nothing will be sent, so there is nothing to note
    ended = await tools.store.attempt(now.held.site, tools.node, now.held.tenure, queued.url)
    if ended >= TENURES_MAX:
        log.warning("page.ends_tenures", site=now.held.site, url=queued.url, tenures=ended)
    return ended >= TENURES_MAX


async def _fetch_page(
    now: turn.Turn, tools: turn.Tools, queued: records.QueuedUrl, refused: outcomes.Refusals
) -> records.Commit | None:
    """Fetch, offer the links, hand the page to the sinks: all before the commit that is returned (P2)."""
    queued = keeping.archived(queued, tools)
    page = queued.page or records.PageRecord()
    kind = _kind(page)
    etag, last_modified = revisit.conditions(page)
    rules = tools.steering.scope
    answer = await turn.request(
        now,
        tools,
        queued.url,
        visit=kind,
        etag=etag,
        last_modified=last_modified,
        bytes_max=tools.settings.limits.sitemap_bytes_max if queued.role == "sitemap" else None,
        wanted=None if rules.all_types or queued.role == "sitemap" else rules.wanted,
    )
    if turn.own_doing(answer.outcome):
        if not answer.sent and not refused:
            return None
        return outcomes.paced(now, answer, outcomes.of_refusals(tools.settings, refused))
    found = await reading.found(answer, queued, tools)
    content = _content(answer.outcome)
    seen = reading.watched(answer, now.held.site, queued, found.page, tools)
    if seen.word == "endless":
        log.warning("site.endless", site=now.held.site, url=queued.url, shape=seen.shape)
    priority = offering.PRIORITY if seen.word == "fine" else offering.SUSPECT_PRIORITY
    await offering.offer(found.targets, now, tools, priority=priority)
    kept = await keeping.keep(now, tools, queued, answer, page=found.page, content=content, visit=kind)
    after = revisit.page_after(
        queued.page, answer.outcome, content=content, now_ms=tools.store_ms(), capture=kept.capture
    )
    change = outcomes.of_page(
        now, tools.settings, queued, answer, after=after, refused=refused, aside=found.refused or kept.aside
    )
    return outcomes.with_endless(change, now.record, seen.pattern if seen.word == "endless" else None)


def _kind(page: records.PageRecord) -> pages.Visit:
    if page.attempts:
        return "retry"
    return "recrawl" if page.last_check_ms else "first"


def _content(outcome: records.Outcome) -> int | None:
    """63-bit digest of a 2xx body that was read."""
    if isinstance(outcome, records.Fetched) and 200 <= outcome.status < 300 and outcome.truncated != "type":
        return xxhash.xxh3_64_intdigest(outcome.body) >> 1
    return None
