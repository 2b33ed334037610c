"""Offer what an answer names, before its page is committed: an offer that is lost comes again with its page (P2)."""

import asyncio
from collections.abc import Iterable

from node import admission, reading, turn
from shared import logs, records, urls

OFFERS_KEPT = 200_000  # digests of offers that were answered: links that every page repeats do not travel again
OFFERS_PER_CALL = 5_000  # all of a page's links are one call; a sitemap's entries may be ten
BREATH = 200  # targets judged before the loop's other work has a turn: some milliseconds
PRIORITY = 5
SUSPECT_PRIORITY = 2  # links of a pattern whose pages say little: the rest of their site goes first

log = logs.get("node.offering")


async def offer(
    targets: Iterable[reading.Target], now: turn.Turn, tools: turn.Tools, *, priority: int = PRIORITY
) -> None:
    """Offer those targets that may be asked for and were not offered lately."""
    offers: list[records.Offer] = []
    digests: list[int] = []
    for number, target in enumerate(targets, 1):
        if number % BREATH == 0:
            await asyncio.sleep(0)
        # What a sitemap says of a page's last change is news each time it says something else.
        digest = urls.digest(target.url) + (target.changed_ms << 64)
        if digest in tools.offered:
            tools.offered.move_to_end(digest)
            continue
        site = tools.places.site_of(target.url)
        refused = admission.of_link(
            target.url,
            site,
            records.trail_of(target.meta),
            home=now.record,
            limits=tools.settings.limits,
            word=tools.steering,
        )
        if refused is not None:
            tools.counts.links.labels(refused).inc()
            continue
        offers.append(
            records.Offer(
                url=target.url,
                site=site,
                score=tools.score_of(site),
                priority=priority,
                meta=target.meta,
                changed_ms=target.changed_ms if tools.settings.recrawl.enabled else 0,
            )
        )
        digests.append(digest)
        if len(offers) >= OFFERS_PER_CALL:
            await _send(offers, digests, tools)
            offers, digests = [], []
    if offers:
        await _send(offers, digests, tools)


async def _send(offers: list[records.Offer], digests: list[int], tools: turn.Tools) -> None:
    # The page is here: while the store is away, waiting costs its site less than another fetch (P3).
    answers = await tools.answered(
        lambda: tools.store.offer(offers, owner_of=tools.owner_of, pages_max=tools.settings.limits.pages_per_site_max)
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
