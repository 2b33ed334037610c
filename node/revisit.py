"""What one visit teaches about a page, what happens to its URL, and when to look again; pure.

The change rate is that of `records.change_rate` (Cho and Garcia-Molina, TOIT 3(3), 2003).
"""

import dataclasses
from typing import Final

import msgspec

from node import politeness
from shared import records

PAUSES_MORE: Final = 8  # a URL may be answered by 429 or 503 this often beyond attempts_max: with 60 s doubling, 3 days
VALIDATOR_CHARS_MAX: Final = 512  # a longer one costs more in the record than it saves
TEMPORARY: Final = frozenset({"robots_unreachable", "backoff"})  # refusals that time may lift
_DAY_S: Final = 86_400.0


@dataclasses.dataclass(frozen=True, slots=True)
class Done:
    """The URL leaves the queue; looked at again after `again_s` seconds, if that is set."""

    again_s: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Later:
    """The URL waits this long, then it is tried again."""

    seconds: float


@dataclasses.dataclass(frozen=True, slots=True)
class SetAside:
    """The URL is given up for this reason, which is recorded (P2)."""

    reason: str


@dataclasses.dataclass(frozen=True, slots=True)
class Keep:
    """We stopped ourselves: the URL stays where it is in the queue."""


Plan = Done | Later | SetAside | Keep


def page_after(
    page: records.PageRecord | None, outcome: records.Outcome, *, content: int | None, now_ms: int
) -> records.PageRecord:
    """The page's record after a visit; `content` is the digest of a 2xx body, None for every other answer."""
    known = page or records.PageRecord()
    match outcome:
        case records.Refused():
            return known
        case records.Failed(reason=reason):
            return known if reason in politeness.OWN_DOING else _unanswered(known, 0)
        case records.NotModified():
            return _checked(known, now_ms=now_ms, changed=False)
        case records.Redirected(status=status):
            return _seen(known, status, content=None, now_ms=now_ms)
        case records.Fetched(status=status) if status == 429 or status >= 500:
            return _unanswered(known, status)
    return _answered(known, outcome, content=content, now_ms=now_ms)


def interval_s(page: records.PageRecord, *, minimum: float, maximum: float, start: float) -> float:
    """Seconds until the next visit: the mean time between changes, within bounds.

    Never longer than the page has been watched so far: one quiet visit does not put it off for a month.
    """
    rate = records.change_rate(page.checks, page.changes, page.observed_s)
    if rate is None:
        return min(max(start, minimum), maximum)
    between_changes_s = _DAY_S / rate if rate > 0 else maximum
    return min(max(min(between_changes_s, max(page.observed_s, start)), minimum), maximum)


def plan(
    outcome: records.Outcome,
    *,
    attempts: int,
    pause_s: float,
    attempts_max: int,
    backoff_min_s: float,
    backoff_cap_s: float,
    again_s: float | None = None,
) -> Plan:
    """What happens to the URL; `attempts` counts this visit too, `pause_s` is the site's new due."""
    match outcome:
        case records.Refused(reason=reason):
            return Later(max(pause_s, backoff_min_s)) if reason in TEMPORARY else SetAside(reason)
        case records.Failed(reason=reason) if reason in politeness.OWN_DOING:
            return Keep()
        case records.Failed(reason=reason):
            why, limit = reason, attempts_max
        case records.Fetched(status=status) if status in {429, 503}:
            why, limit = f"status_{status}", attempts_max + PAUSES_MORE
        case records.Fetched(status=status) if status >= 500:
            why, limit = f"status_{status}", attempts_max
        case _:
            return Done(again_s)
    if attempts >= limit:
        return SetAside(why)
    growing_s = backoff_min_s * 2 ** min(max(attempts - 1, 0), 32)
    return Later(max(pause_s, min(growing_s, backoff_cap_s)))


def header(headers: tuple[tuple[str, str], ...], name: str) -> str | None:
    """The first value of a header, by its lower-case name."""
    return next((value for key, value in headers if key.lower() == name), None)


def _answered(
    known: records.PageRecord, outcome: records.Fetched, *, content: int | None, now_ms: int
) -> records.PageRecord:
    if not 200 <= outcome.status < 300:
        return _seen(known, outcome.status, content=None, now_ms=now_ms)
    if outcome.truncated in {None, "size"}:
        return _fetched(known, outcome, content=content, now_ms=now_ms)
    # A torn body says nothing about change, and its validators would make the torn copy permanent.
    torn = msgspec.structs.replace(known, etag=None, last_modified=None, status=outcome.status, attempts=0)
    return torn if known.last_check_ms else msgspec.structs.replace(torn, last_check_ms=now_ms)


def _fetched(
    known: records.PageRecord, outcome: records.Fetched, *, content: int | None, now_ms: int
) -> records.PageRecord:
    etag = _validator(header(outcome.headers, "etag"))
    modified = _validator(header(outcome.headers, "last-modified"))
    same = known.last_check_ms > 0 and known.content == content
    seen = _seen(known, outcome.status, content=content, now_ms=now_ms)
    return msgspec.structs.replace(
        seen,
        # A validator that changed while the content did not would only ever earn full answers.
        etag=None if same and known.etag not in {None, etag} else etag,
        last_modified=None if same and known.last_modified not in {None, modified} else modified,
    )


def _seen(known: records.PageRecord, status: int, *, content: int | None, now_ms: int) -> records.PageRecord:
    """A whole answer of this status: its validators are for the caller to set."""
    checked = _checked(known, now_ms=now_ms, changed=known.content != content)
    return msgspec.structs.replace(checked, etag=None, last_modified=None, content=content, status=status)


def _checked(known: records.PageRecord, *, now_ms: int, changed: bool) -> records.PageRecord:
    if not known.last_check_ms:
        return msgspec.structs.replace(known, last_check_ms=now_ms, attempts=0)
    return msgspec.structs.replace(
        known,
        checks=known.checks + 1,
        changes=known.changes + int(changed),
        # The store's clock may step back; a page was never watched for less than nothing.
        observed_s=known.observed_s + max(now_ms - known.last_check_ms, 0) / 1000,
        last_check_ms=max(now_ms, known.last_check_ms),
        attempts=0,
    )


def _unanswered(known: records.PageRecord, status: int) -> records.PageRecord:
    return msgspec.structs.replace(known, status=status or known.status, attempts=known.attempts + 1)


def _validator(value: str | None) -> str | None:
    if value is None:
        return None
    value = value.strip()
    return value if value and len(value) <= VALIDATOR_CHARS_MAX and value.isprintable() else None
