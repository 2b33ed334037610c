"""What one answer changes of a site, as one commit: the URL, the page's record, the site's pace.

It reads no clock but for how long ago the request started, and asks nobody anything.
"""

import msgspec

from node import fetch, revisit, turn
from shared import clock, config, records

Refusals = list[tuple[records.QueuedUrl, str]]
"""URLs that may not be asked for, and why."""


def of_page(
    now: turn.Turn,
    settings: config.Config,
    queued: records.QueuedUrl,
    answer: fetch.Answer,
    *,
    after: records.PageRecord,
    refused: Refusals,
) -> records.Commit:
    """All that a page's answer changes; `after` is the page's record, `refused` what was passed over on the way."""
    base = of_refusals(settings, refused)
    change = msgspec.structs.replace(base, done=(*base.done, queued), pages=((queued.url, after),), visits=1)
    match _plan(now, settings, answer, after):
        case revisit.Done(again_s=None):
            pass
        case revisit.Done(again_s=seconds) | revisit.Later(seconds=seconds):
            change = msgspec.structs.replace(change, later=(*change.later, (queued.url, seconds, queued.priority)))
        case revisit.SetAside(reason=reason):
            change = msgspec.structs.replace(change, set_aside=(*change.set_aside, (queued.url, reason)))
    return paced(now, answer, change)


def of_refusals(settings: config.Config, refused: Refusals) -> records.Commit:
    """URLs that may not be asked for: set aside for good, or moved to later where the reason passes (P2)."""
    later = []
    aside = []
    polite = settings.politeness
    for queued, reason in refused:
        what = revisit.plan(
            records.Refused(reason=reason),
            attempts=0,
            pause_s=polite.robots_error_ttl_s,
            attempts_max=settings.limits.attempts_max,
            backoff_min_s=polite.backoff_min_s,
            backoff_cap_s=polite.backoff_cap_s,
        )
        if isinstance(what, revisit.Later):
            later.append((queued.url, what.seconds, queued.priority))
        else:
            aside.append((queued.url, reason))
    return records.Commit(done=tuple(queued for queued, _ in refused), later=tuple(later), set_aside=tuple(aside))


def paced(now: turn.Turn, answer: fetch.Answer, change: records.Commit) -> records.Commit:
    """Put the site's new delay and due into a commit; what we stopped ourselves before it was sent changes neither."""
    if now.pace is None:
        return unpaced(now, change)
    ago_ms = max(0, round((clock.boot_s() - answer.start_boot_s) * 1000))
    return msgspec.structs.replace(
        change,
        due_in_s=now.pace.due_in_s,
        due_term=now.pace.due_term,
        delay_s=now.pace.delay_s,
        delay_term=now.pace.delay_term,
        backoff=now.pace.backoff,
        fetched_ms_ago=ago_ms if answer.sent else None,
    )


def unasked(now: turn.Turn, settings: config.Config, refused: Refusals) -> records.Commit:
    """A visit that found nothing to ask for; what passes is not looked at again and again without a pause."""
    change = unpaced(now, of_refusals(settings, refused))
    if not change.later:
        return change
    return msgspec.structs.replace(change, due_in_s=max(now.record.delay_s, settings.politeness.delay_min_s))


def unpaced(now: turn.Turn, change: records.Commit) -> records.Commit:
    """The pace as the record has it: for a commit of a visit that asked nothing of the site."""
    record = now.record
    return msgspec.structs.replace(
        change,
        due_term=record.due_term,
        delay_s=record.delay_s,
        delay_term=record.delay_term,
        backoff=record.backoff,
    )


def _plan(now: turn.Turn, settings: config.Config, answer: fetch.Answer, after: records.PageRecord) -> revisit.Plan:
    recrawl, polite = settings.recrawl, settings.politeness
    again_s = None
    if recrawl.enabled:
        again_s = revisit.interval_s(
            after, minimum=recrawl.interval_min_s, maximum=recrawl.interval_max_s, start=recrawl.interval_start_s
        )
    return revisit.plan(
        answer.outcome,
        attempts=after.attempts,
        pause_s=now.pace.due_in_s if now.pace else 0.0,
        attempts_max=settings.limits.attempts_max,
        backoff_min_s=polite.backoff_min_s,
        backoff_cap_s=polite.backoff_cap_s,
        again_s=again_s,
    )
