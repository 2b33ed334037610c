"""Why a URL may not be asked for, whatever its robots.txt says: scope, budgets, traps.

Judged before an offer and again before the request: a rule, or the end of a budget, may have come in between.
"""

from node import steering, traps
from shared import config, records, urls

ENDLESS = "endless"


def of_queued(
    queued: records.QueuedUrl, record: records.SiteRecord, *, limits: config.Limits, word: steering.Steering
) -> str | None:
    """The reason under which a pending URL is set aside; None where it may be asked for, as far as is known here."""
    return (
        urls.refusal(queued.url, limits)
        or (ENDLESS if traps.is_endless(queued.url, record.site, record.endless) else None)
        or word.refusal(queued, record)
    )


def of_link(
    url: str,
    site: str,
    trail: records.Trail,
    *,
    home: records.SiteRecord,
    limits: config.Limits,
    word: steering.Steering,
) -> str | None:
    """Why a URL that an answer names is not offered; `home` is the record of the answer's own site."""
    trap = urls.refusal(url, limits)
    if trap is not None:
        return trap
    if site == home.site and traps.is_endless(url, site, home.endless):
        return ENDLESS
    return word.scope.verdict(url, site, trail.depth, hops=trail.hops)
