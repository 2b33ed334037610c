"""How long a site is left alone after a request: a pure table of delays, pauses and their terms.

Knows no clock: seconds come in, seconds go out. Retry-After follows RFC 9110 section 10.2.3.
"""

import dataclasses
import datetime as dt
import email.utils
from typing import Final, Protocol

from shared import records

OWN_DOING: Final = frozenset({"guard", "aborted", "late", "crowded"})  # we stopped ourselves: not the site's doing
PAUSES: Final = frozenset({429, 503, 999})
UNREADY: Final = frozenset({408, 425, 429})  # 4xx that say nothing of what was asked for: too slow, early, many
GONE: Final = frozenset({404, 410})  # their Retry-After is of a page that is not there, and says nothing of the site
_LEVEL_MAX: Final = 32  # doubling further only overflows; every cap is reached long before


class Settings(Protocol):
    """The numbers of the configuration's politeness table that are needed here."""

    @property
    def delay_min_s(self) -> float: ...
    @property
    def delay_cap_s(self) -> float: ...
    @property
    def duration_factor(self) -> float: ...
    @property
    def jitter(self) -> float: ...
    @property
    def backoff_min_s(self) -> float: ...
    @property
    def backoff_cap_s(self) -> float: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """What the site's record says after one request; seconds count from the end of the request."""

    delay_s: float
    delay_term: str
    """minimum, crawl_delay, crawl_delay_capped or duration."""
    due_in_s: float
    """Never below `delay_s`."""
    due_term: str
    """The delay's term, or retry_after or backoff."""
    backoff: int
    """Consecutive answers that asked for a pause, or failures; 0 after a good answer."""


def after(
    outcome: records.Outcome,
    *,
    settings: Settings,
    crawl_delay_s: float | None,
    duration_s: float,
    backoff: int,
    now_ms: int,
    jitter01: float,
) -> Pace:
    """The pace after a request that was sent; `jitter01` is random in [0, 1), `backoff` the level so far."""
    if isinstance(outcome, records.Failed) and outcome.reason in OWN_DOING:
        duration_s = 0.0  # ours: a process that was frozen measures how long it slept
    delay_s, delay_term = delay(settings, crawl_delay_s=crawl_delay_s, duration_s=duration_s)
    level = _level(outcome, backoff)
    pause_s, pause_term = _pause(outcome, level, settings=settings, now_ms=now_ms)
    due_in_s, due_term = (pause_s, pause_term) if pause_s > delay_s else (delay_s, delay_term)
    # Jitter only adds (P1): what was promised to the site is a floor.
    due_in_s *= 1 + settings.jitter * max(jitter01, 0.0)
    return Pace(delay_s=delay_s, delay_term=delay_term, due_in_s=due_in_s, due_term=due_term, backoff=level)


def delay(settings: Settings, *, crawl_delay_s: float | None, duration_s: float) -> tuple[float, str]:
    """The largest of minimum, Crawl-delay and the last fetch's duration, capped, and the term that set it."""
    found = (settings.delay_min_s, "minimum")
    if crawl_delay_s is not None and crawl_delay_s > found[0]:
        cut = crawl_delay_s > settings.delay_cap_s
        found = (settings.delay_cap_s, "crawl_delay_capped") if cut else (crawl_delay_s, "crawl_delay")
    by_duration_s = min(settings.duration_factor * duration_s, settings.delay_cap_s)
    return (by_duration_s, "duration") if by_duration_s > found[0] else found


def retry_after_s(value: str, *, now_ms: int) -> float | None:
    """Seconds that a Retry-After asks for; None for what is malformed, negative or past."""
    value = value.strip(" \t")
    if value.isascii() and value.isdigit():
        return float(value[:12])  # longer numbers mean "very long" as well; the caller caps
    fields = email.utils.parsedate_tz(value) if any(letter.isalpha() for letter in value) else None
    if fields is None:
        return None
    try:
        # A date without a zone is read as UTC, as RFC 9110 says of all its forms.
        zone = dt.timezone(dt.timedelta(seconds=fields[9] or 0))
        leap = fields[5] == 60  # a second that RFC 9110 allows and that this calendar does not know
        until_s = dt.datetime(*fields[:5], fields[5] - leap, tzinfo=zone).timestamp() + leap
    except (ValueError, OverflowError):
        return None
    wait_s = until_s - now_ms / 1000
    return wait_s if wait_s >= 0 else None


def asks_for_pause(outcome: records.Outcome) -> bool:
    """Whether the answer says that we are too much: 429, 503, and 999, by which some sites refuse crawlers."""
    return isinstance(outcome, records.Fetched) and outcome.status in PAUSES


def _level(outcome: records.Outcome, backoff: int) -> int:
    if asks_for_pause(outcome):
        return min(backoff + 1, _LEVEL_MAX)
    match outcome:
        case records.Failed(reason=reason):
            return backoff if reason in OWN_DOING else min(backoff + 1, _LEVEL_MAX)
        case records.Refused():
            return backoff
        case records.Fetched(truncated="time"):
            return min(backoff + 1, _LEVEL_MAX)
        case records.Fetched(status=status, truncated=truncated):
            # A 500 or a torn answer is no all-clear, and no request for a pause either.
            return backoff if status >= 500 or truncated == "connection" else 0
    return 0


def _pause(outcome: records.Outcome, level: int, *, settings: Settings, now_ms: int) -> tuple[float, str]:
    if isinstance(outcome, records.Redirected) or (
        isinstance(outcome, records.Fetched) and outcome.status >= 400 and outcome.status not in GONE
    ):
        # Of a redirect and of 503 by RFC 9110, of 413 and 429 by theirs; 403 and 5xx bring it as well.
        asked_s = _asked_s(outcome.headers, now_ms=now_ms)
        if asked_s is not None:
            return min(asked_s, settings.backoff_cap_s), "retry_after"
    if asks_for_pause(outcome):
        return _doubled(settings, level - 1), "backoff"
    # One lost connection is weather; the second in a row may mean that we are too much.
    if isinstance(outcome, records.Failed) and outcome.reason not in OWN_DOING and level >= 2:
        return _doubled(settings, level - 2), "backoff"
    return 0.0, ""


def _asked_s(headers: tuple[tuple[str, str], ...], *, now_ms: int) -> float | None:
    asked = [
        seconds
        for name, value in headers
        if name.lower() == "retry-after" and (seconds := retry_after_s(value, now_ms=now_ms)) is not None
    ]
    return max(asked, default=None)


def _doubled(settings: Settings, times: int) -> float:
    return float(min(settings.backoff_min_s * 2**times, settings.backoff_cap_s))
