"""What one visit teaches about a page and its validators, and what happens to its URL; pure.

When it is looked at again is worked out in `recrawl`, from the change rate of `rates`.
"""

import dataclasses
from typing import Final

import msgspec

from node import politeness, rates, recrawl
from shared import records

PAUSES_MORE: Final = 8  # a URL may be answered by 429 or 503 this often beyond attempts_max: with 60 s doubling, 3 days
VALIDATOR_CHARS_MAX: Final = 512  # a longer one costs more in the record than it saves
DOUBTS_MAX: Final = 3  # a page whose validators were found wrong so often in a row has none that are worth a condition
PROOF_ANSWERS: Final = 20  # 304s in a row that are believed: then the content is asked for, and compared
PROOF_S: Final = 30 * 86_400.0  # or so much time in 304s, so that a slow page's lie is found too
GIVEN_UP: Final = 3  # recrawls without an answer, after attempts_max, until a page that was there is given up
TEMPORARY: Final = frozenset({"robots_unreachable", "robots_elsewhere", "backoff"})  # refusals that time may lift


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


@dataclasses.dataclass(frozen=True, slots=True)
class Capture:
    """Where the archive has a body: the WARC-Date of its record, and the body's SHA-1 in Base32."""

    time_ms: int
    payload: str


def conditions(page: records.PageRecord) -> tuple[str | None, str | None]:
    """The ETag and the Last-Modified to ask this page with, byte for byte as they came; (None, None): ask in full.

    In full too where validators proved worthless, and now and then where they are believed: a server whose 304s lie is
    found out by the content.
    """
    if page.doubts >= DOUBTS_MAX or page.unproved >= PROOF_ANSWERS:
        return None, None
    return page.etag, page.last_modified


def page_after(
    page: records.PageRecord | None,
    outcome: records.Outcome,
    *,
    content: int | None,
    now_ms: int,
    capture: Capture | None = None,
) -> records.PageRecord:
    """The page's record after a visit that asked with its `conditions`; `content` is a 2xx body's digest, or None,
    `capture` is where that body was archived.
    """
    known = page or records.PageRecord()
    match outcome:
        case records.Refused():
            return known
        case records.Failed(reason=reason):
            return known if reason in politeness.OWN_DOING else _unanswered(known, 0)
        case records.NotModified():
            return _not_modified(known, now_ms=now_ms)
        case records.Redirected(status=status):
            return _seen(known, status, content=None, now_ms=now_ms)
        case records.Fetched(status=status) if status in politeness.UNREADY or status >= 500:
            return _unanswered(known, status)
    after = _answered(known, outcome, content=content, now_ms=now_ms)
    kept = capture if capture is not None and (after.etag or after.last_modified) else Capture(0, "")
    return msgspec.structs.replace(after, captured_ms=kept.time_ms, payload=kept.payload)


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
    """What happens to the URL; `attempts` counts this visit too, `pause_s` is the site's new due.

    `again_s` is when a page that was there is wanted again (`wanted_s`), None for one that is not to be visited again.
    A page that was there is given up later than one that never was: an outage must not end its recrawls.
    """
    match outcome:
        case records.Refused(reason=reason):
            return Later(max(pause_s, backoff_min_s)) if reason in TEMPORARY else SetAside(reason)
        case records.Failed(reason=reason) if reason in politeness.OWN_DOING:
            return Keep()
        case records.Failed(reason=reason):
            why, limit = reason, attempts_max
        case records.Fetched(status=status) if status in politeness.PAUSES:
            why, limit = f"status_{status}", attempts_max + PAUSES_MORE
        case records.NotModified(status=status) if attempts:
            why, limit = f"status_{status}", attempts_max
        case records.Fetched(status=status) if status in politeness.UNREADY or status >= 500:
            why, limit = f"status_{status}", attempts_max
        case _:
            return Done(again_s)
    if attempts >= limit:
        return SetAside(why) if again_s is None or attempts >= limit + GIVEN_UP else Done(again_s)
    growing_s = backoff_min_s * 2 ** min(max(attempts - 1, 0), 32)
    return Later(max(pause_s, min(growing_s, backoff_cap_s)))


def header(headers: tuple[tuple[str, str], ...], name: str) -> str | None:
    """The first value of a header, by its lower-case name."""
    return next((value for key, value in headers if key.lower() == name), None)


def _not_modified(known: records.PageRecord, *, now_ms: int) -> records.PageRecord:
    unasked = conditions(known) == (None, None)
    if unasked and known.content is None:
        return _unanswered(known, 304)  # nothing is known that could stand
    if unasked:  # the answer to no question: it tells nothing of the content
        return _unread(known, 304, now_ms=now_ms)
    waited_s = max(now_ms - known.last_check_ms, 0) / 1000
    unproved = known.unproved + 1 + int(PROOF_ANSWERS * min(waited_s / PROOF_S, 1.0))
    return msgspec.structs.replace(_checked(known, now_ms=now_ms, changed=False), unproved=unproved, gone=0)


def _answered(
    known: records.PageRecord, outcome: records.Fetched, *, content: int | None, now_ms: int
) -> records.PageRecord:
    if not 200 <= outcome.status < 300:
        seen = _seen(known, outcome.status, content=None, now_ms=now_ms)
        return msgspec.structs.replace(seen, gone=known.gone + 1) if outcome.status in {404, 410} else seen
    if outcome.truncated in {None, "size"}:
        return _fetched(known, outcome, content=content, now_ms=now_ms)
    # A torn body says nothing about change, and its validators would make the torn copy permanent.
    return msgspec.structs.replace(_unread(known, outcome.status, now_ms=now_ms), etag=None, last_modified=None)


def _unread(known: records.PageRecord, status: int, *, now_ms: int) -> records.PageRecord:
    """An answer from which nothing is learnt of the content: the interval goes on until one that tells."""
    return msgspec.structs.replace(known, status=status, attempts=0, last_check_ms=known.last_check_ms or now_ms)


def _fetched(
    known: records.PageRecord, outcome: records.Fetched, *, content: int | None, now_ms: int
) -> records.PageRecord:
    etag = _validator(header(outcome.headers, "etag"))
    modified = _validator(header(outcome.headers, "last-modified"))
    doubts = _doubts(known, etag, modified, content=content)
    seen = msgspec.structs.replace(_seen(known, outcome.status, content=content, now_ms=now_ms), doubts=doubts)
    if doubts >= DOUBTS_MAX:
        return seen
    same = known.last_check_ms > 0 and known.content == content
    wrong = doubts > known.doubts  # one that changed while the content did not would only ever earn full answers
    return msgspec.structs.replace(
        seen,
        etag=None if wrong and (not same or known.etag not in {None, etag}) else etag,
        last_modified=None if wrong and (not same or known.last_modified not in {None, modified}) else modified,
    )


def _doubts(known: records.PageRecord, etag: str | None, modified: str | None, *, content: int | None) -> int:
    """How much speaks against the page's validators after a whole 2xx answer with these.

    A validator that changed while the content did not speaks against them. So does content that changed behind a row of
    304s, found by asking in full: without doubt where the validator is the same as before. A change that a condition
    told of speaks for them.
    """
    if known.doubts >= DOUBTS_MAX or not known.last_check_ms or (known.etag is None and known.last_modified is None):
        return known.doubts
    moved = known.etag not in {None, etag} or known.last_modified not in {None, modified}
    if known.content == content:
        return known.doubts + int(moved)
    if known.unproved < PROOF_ANSWERS:
        return 0 if moved else known.doubts
    return known.doubts + 1 if moved else DOUBTS_MAX


def _seen(known: records.PageRecord, status: int, *, content: int | None, now_ms: int) -> records.PageRecord:
    """A whole answer of this status: its validators are for the caller to set."""
    checked = _checked(known, now_ms=now_ms, changed=known.content != content)
    return msgspec.structs.replace(
        checked,
        etag=None,
        last_modified=None,
        content=content,
        status=status,
        unproved=0,
        gone=0,
        captured_ms=0,
        payload="",
    )


def _checked(known: records.PageRecord, *, now_ms: int, changed: bool) -> records.PageRecord:
    if not known.last_check_ms:
        return msgspec.structs.replace(known, last_check_ms=now_ms, attempts=0)
    # The store's clock may step back; a page was never watched for less than nothing.
    waited_s = max(now_ms - known.last_check_ms, 0) / 1000
    return msgspec.structs.replace(
        known,
        checks=known.checks + 1,
        changes=known.changes + int(changed),
        observed_s=known.observed_s + waited_s,
        intervals=rates.seen(recrawl.history_of(known), waited_s=waited_s, changed=changed),
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
