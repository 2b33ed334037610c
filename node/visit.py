"""One visit, the straight line: due -> robots -> fetch -> links -> outcome -> commit.

One visit makes at most one page request and one commit. It decides nothing about ownership or authority: the permit
does, at the socket.
"""

import asyncio
import dataclasses
from collections.abc import Iterable

import xxhash

from node import access, fetch, links, outcomes, revisit, turn
from node.sinks import jsonl
from shared import errors, logs, records, urls

PARSE_OFF_LOOP_BYTES = 64 * 1024  # larger pages are parsed in a thread
TENURES_MAX = 3  # that a page may end without a commit: it must not take one node after another with it
OFFERS_KEPT = 200_000  # digests of offers that were answered: links that every page repeats do not travel again

log = logs.get("node.visit")


async def visit(now: turn.Turn, tools: turn.Tools) -> records.Committed | None:
    """Visit the most urgent URL of the site's head; None where there was nothing to commit."""
    refused: outcomes.Refusals = []
    await access.know_crawl_delays(now, tools)
    for queued in now.record.head:
        origin = urls.origin_of(queued.url)
        known = await access.rules(now, tools, origin)
        if known is None and refused:
            break  # what is decided is committed first; robots.txt comes with the next visit
        if known is None:
            return await _persist(now, tools, await access.ask(now, tools, origin))
        reason = access.verdict(queued, known, tools)
        poison = reason is None and await _ends_tenures(now, tools, queued.url)
        if reason is None and not poison:
            return await _persist(now, tools, await _fetch_page(now, tools, queued, refused))
        refused.append((queued, reason or "three_tenures"))
        if poison:
            break  # committed before the next page is asked for: that one may end this tenure too
    change = outcomes.unasked(now, tools.settings, refused) if refused else None
    return await _persist(now, tools, change)


async def _persist(now: turn.Turn, tools: turn.Tools, change: records.Commit | None) -> records.Committed | None:
    return None if change is None else await tools.persist(now.held, change)


async def _ends_tenures(now: turn.Turn, tools: turn.Tools, url: str) -> bool:
    """Have three tenures in a row ended at this page without a commit? Asked only where the last one ended without."""
    if now.held.n or not now.record.barren:
        return False
    if now.permit.may_start() is not None:
        return False  # nothing will be sent, so there is nothing to note
    ended = await tools.store.attempt(now.held.site, tools.node, now.held.tenure, url)
    if ended >= TENURES_MAX:
        log.warning("page.ends_tenures", site=now.held.site, url=url, tenures=ended)
    return ended >= TENURES_MAX


async def _fetch_page(
    now: turn.Turn, tools: turn.Tools, queued: records.QueuedUrl, refused: outcomes.Refusals
) -> records.Commit | None:
    """Fetch, offer the links, hand the page to the sink: all before the commit that is returned (P2)."""
    page = queued.page or records.PageRecord()
    answer = await turn.request(
        now, tools, queued.url, visit=_kind(page), etag=page.etag, last_modified=page.last_modified
    )
    if turn.own_doing(answer.outcome):
        if not answer.sent and not refused:
            return None
        return outcomes.paced(now, answer, outcomes.of_refusals(tools.settings, refused))
    found = await _found_in(answer, queued.url, tools)
    await _offer(_links(answer.outcome, queued.url, found), tools)
    content = _content(answer.outcome)
    _write_page(now, tools, answer, found=found, url=queued.url, content=content)
    if tools.sink is not None and tools.settings.durability == "strict":
        await asyncio.to_thread(tools.sink.sync)  # after the commit nobody fetches this page again (P2)
    after = revisit.page_after(queued.page, answer.outcome, content=content, now_ms=tools.store_ms())
    return outcomes.of_page(now, tools.settings, queued, answer, after=after, refused=refused)


def _kind(page: records.PageRecord) -> turn.Visit:
    if page.attempts:
        return "retry"
    return "recrawl" if page.last_check_ms else "first"


def _links(outcome: records.Outcome, url: str, found: links.Page | None) -> Iterable[str]:
    """Where the answer points: a redirect's target is offered like any link, never followed."""
    if isinstance(outcome, records.Redirected):
        try:
            return [urls.canonical(outcome.location, url)]
        except errors.InvalidUrl:
            return []
    return found.links if found is not None and not found.nofollow else []


async def _found_in(answer: fetch.Answer, url: str, tools: turn.Tools) -> links.Page | None:
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
        found = await asyncio.to_thread(links.extract, outcome.body, **arguments)  # type: ignore[arg-type]
    else:
        found = links.extract(outcome.body, **arguments)  # type: ignore[arg-type]
    said = tuple(value for name, value in outcome.headers if name.lower() == "x-robots-tag")
    if not said:
        return found
    noindex, nofollow = links.robots_directives(said, tools.token)
    return dataclasses.replace(found, noindex=found.noindex or noindex, nofollow=found.nofollow or nofollow)


async def _offer(found: Iterable[str], tools: turn.Tools) -> None:
    """Offer what was found, before the page is committed: a lost offer comes again with its page (P2)."""
    limits = tools.settings.limits
    offers: list[records.Offer] = []
    digests: list[int] = []
    dropped = frozenset(tools.settings.sites.drop_params)
    for link in found:
        url = urls.canonical(link, drop_params=dropped) if dropped else link
        digest = urls.digest(url)
        if digest in tools.offered:
            tools.offered.move_to_end(digest)
            continue
        if urls.refusal(url, limits):
            continue
        site = tools.places.site_of(url)
        offers.append(records.Offer(url=url, site=site, score=tools.score_of(site)))
        digests.append(digest)
    if not offers:
        return
    # The page is here: while the store is away, waiting costs its site less than another fetch (P3).
    answers = await tools.answered(
        lambda: tools.store.offer(offers, owner_of=tools.owner_of, pages_max=limits.pages_per_site_max)
    )
    for verdict in answers:
        tools.counts.links.labels(verdict).inc()
    for site in {offer.site for offer, verdict in zip(offers, answers, strict=True) if verdict == "damaged"}:
        log.error("offer.damaged", site=site)  # what a page says of one site must not hold up the others (P2)
    tools.offered.update(
        (digest, None) for digest, verdict in zip(digests, answers, strict=True) if verdict != "damaged"
    )
    while len(tools.offered) > OFFERS_KEPT:
        tools.offered.popitem(last=False)


def _content(outcome: records.Outcome) -> int | None:
    """63-bit digest of a 2xx body."""
    if isinstance(outcome, records.Fetched) and 200 <= outcome.status < 300:
        return xxhash.xxh3_64_intdigest(outcome.body) >> 1
    return None


def _write_page(
    now: turn.Turn,
    tools: turn.Tools,
    answer: fetch.Answer,
    *,
    found: links.Page | None,
    url: str,
    content: int | None,
) -> None:
    """Hand the page to the sink before its commit (P2)."""
    outcome = answer.outcome
    if tools.sink is None or not isinstance(outcome, records.Fetched | records.NotModified | records.Redirected):
        return
    body = outcome.body if isinstance(outcome, records.Fetched) else b""
    tools.sink.write(
        jsonl.PageLine(
            url=url,
            site=now.held.site,
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
