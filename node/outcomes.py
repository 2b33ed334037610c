"""What one answer changes of a site, as one commit: the URL, the page's record, the site's pace.

It reads no clock but for how long ago the request started, and asks nobody anything.
"""

import msgspec

from node import fetch, recrawl, revisit, robots_moves, traps, turn
from shared import clock, config, records

READ_AHEAD = 8  # URLs that a commit hands out where some were refused: more may be
NEXT = 2  # where none was

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
    aside: str | None = None,
) -> records.Commit:
    """All that a page's answer changes; `after` is the page's record, `refused` what was passed over on the way,
    `aside` a reason to set the URL aside that is not the answer's own.
    """
    base = of_refusals(settings, refused)
    found = msgspec.structs.replace(after, priority=queued.priority, depth=queued.depth, role=queued.role)
    again_s, price = _again(now, settings, queued, after)
    change = msgspec.structs.replace(
        base,
        done=(*base.done, queued),
        pages=((queued.url, found),),
        visits=1,
        ahead=READ_AHEAD if refused else NEXT,
        bytes=answer.body_bytes,
        price=price,
    )
    pause_s = now.pace.due_in_s if now.pace else 0.0
    plan: revisit.Plan = (
        revisit.SetAside(aside)
        if aside
        else _plan(settings, answer, attempts=after.attempts, pause_s=pause_s, again_s=again_s)
    )
    match plan:
        case revisit.Done(again_s=seconds) if seconds is not None:
            change = msgspec.structs.replace(change, fresh=((queued.url, seconds),))
        case revisit.Later(seconds=seconds):
            again = records.Later(queued.url, seconds, queued.priority, queued.meta)
            change = msgspec.structs.replace(change, later=(*change.later, again))
        case revisit.SetAside(reason=reason):
            change = msgspec.structs.replace(change, set_aside=(*change.set_aside, (queued.url, reason)))
    return paced(now, answer, change)


def with_slots(change: records.Commit, record: records.SiteRecord, settings: config.Config) -> records.Commit:
    """How often the site's recrawl slots come; every commit says it, since the setting is its owner's."""
    if not settings.recrawl.enabled:
        return change
    gap_s = _slot_gap_s(record, settings)
    return msgspec.structs.replace(change, fresh_gap_s=gap_s, fresh_min_s=settings.recrawl.interval_min_s)


def with_endless(change: records.Commit, record: records.SiteRecord, pattern: str | None) -> records.Commit:
    """A pattern of URLs that was found to have no end, kept with the site; the oldest is forgotten beyond a number."""
    if pattern is None or pattern in record.endless:
        return change
    return msgspec.structs.replace(change, endless=traps.with_endless(record.endless, pattern))


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
            waits = reason == "robots_elsewhere"
            wait_s = robots_moves.again_s(polite.robots_error_ttl_s) if waits else what.seconds
            later.append(records.Later(queued.url, wait_s, queued.priority, queued.meta))
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


def _plan(
    settings: config.Config, answer: fetch.Answer, *, attempts: int, pause_s: float, again_s: float | None
) -> revisit.Plan:
    polite = settings.politeness
    return revisit.plan(
        answer.outcome,
        attempts=attempts,
        pause_s=pause_s,
        attempts_max=settings.limits.attempts_max,
        backoff_min_s=polite.backoff_min_s,
        backoff_cap_s=polite.backoff_cap_s,
        again_s=again_s,
    )


def _again(
    now: turn.Turn, settings: config.Config, queued: records.QueuedUrl, after: records.PageRecord
) -> tuple[float | None, float]:
    """When the page is wanted again, in seconds, and the site's price after this visit."""
    if not settings.recrawl.enabled:
        return None, now.record.price
    weight = recrawl.importance(queued.priority, queued.depth)
    pass_s = now.record.page_records * _slot_gap_s(now.record, settings)
    price = recrawl.price_of_visit(
        now.record.price,
        queued.page,
        now_ms=after.last_check_ms,
        importance=weight,
        page_records=now.record.page_records,
        settings=settings.recrawl,
        pass_s=pass_s,
    )
    again_s = recrawl.wanted_s(after, price=price, importance=weight, settings=settings.recrawl, pass_s=pass_s)
    return again_s, price


def _slot_gap_s(record: records.SiteRecord, settings: config.Config) -> float:
    delay_s = max(record.delay_s, settings.politeness.delay_min_s)
    return recrawl.slot_gap_s(record.page_records, delay_s, settings.recrawl)
