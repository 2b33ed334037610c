"""Offer what an answer names, before its page is committed or with it: a lost offer comes again with its page (P2)."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence

from node import admission, turn
from shared import frontier, logs, records, urls

OFFERS_PER_CALL = 5_000  # of a sitemap's entries, which go ahead of the commit
BREATH = 200  # targets judged before the loop's other work has a turn: some milliseconds
PRIORITY = 5
SUSPECT_PRIORITY = 2  # links of a pattern whose pages say little: the rest of their site goes first
DIGEST_MAX = (1 << 63) - 1
ODD = 0x9E3779B97F4A7C15  # spreads a moment over 64 bits (the golden ratio, as of Knuth 6.4)

log = logs.get("node.offering")


async def offer(
    targets: Iterable[tuple[str, str, int]], now: turn.Turn, tools: turn.Tools, *, priority: int = PRIORITY
) -> None:
    """Offer those targets (`reading.Target`) that may be asked for and were not offered lately.

    As many as a commit takes stay with the turn and travel with its commit; the others are offered now.
    """
    refusals: Counter[str] = Counter()
    trails: dict[str, records.Trail] = {}
    recrawls = tools.settings.recrawl.enabled
    number = 0
    for url, meta, changed_ms in targets:
        number += 1
        if number % BREATH == 0:
            await asyncio.sleep(0)
        digest = urls.digest(url)
        if changed_ms:
            # What a sitemap says of a page's last change is news each time it says something else.
            digest = (digest + changed_ms * ODD) & DIGEST_MAX
        if digest in tools.offered:
            continue
        site = tools.places.site_of(url)
        trail = trails.get(meta)
        if trail is None:
            trail = trails[meta] = records.trail_of(meta)
        refused = admission.of_link(
            url, site, trail, home=now.record, limits=tools.settings.limits, word=tools.steering
        )
        if refused is not None:
            refusals[refused] += 1
            continue
        now.offers.append(
            records.Offer(
                url=url,
                site=site,
                score=tools.score_of(site),
                priority=priority,
                meta=meta,
                changed_ms=changed_ms if recrawls else 0,
            )
        )
        now.digests.append(digest)
        if len(now.offers) >= OFFERS_PER_CALL:
            await ahead(now, tools)
    for reason, count in refusals.items():
        tools.counts.links.labels(reason).inc(count)
    if len(now.offers) > frontier.OFFERS_PER_CALL:
        await ahead(now, tools)


async def ahead(now: turn.Turn, tools: turn.Tools) -> None:
    """Offer now what would have travelled with the commit."""
    # The page is here: while the store is away, waiting costs its site less than another fetch (P3).
    offers, digests, now.offers, now.digests = now.offers, now.digests, [], []
    verdicts = await tools.answered(
        lambda: tools.store.offer(offers, owner_of=tools.owner_of, pages_max=tools.settings.limits.pages_per_site_max)
    )
    heard(offers, digests, verdicts, tools)


def heard(offers: Sequence[records.Offer], digests: Sequence[int], verdicts: Sequence[str], tools: turn.Tools) -> None:
    """What the store said of each offer: counted, and remembered unless it took none of that site."""
    for verdict, count in Counter(verdicts).items():
        tools.counts.links.labels(verdict).inc(count)
    if "damaged" in verdicts:
        for site in {one.site for one, verdict in zip(offers, verdicts, strict=True) if verdict == "damaged"}:
            log.error("offer.damaged", site=site)  # what a page says of one site must not hold up the others (P2)
    for digest, verdict in zip(digests, verdicts, strict=True):
        if verdict != "damaged":
            tools.offered.add(digest)
