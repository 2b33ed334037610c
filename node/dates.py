"""The moment that a sitemap's or a feed's date means: W3C-DTF and RFC 822, as they are really written; pure.

Source: W3C NOTE-datetime; RFC 822 section 5 with the four-digit years of RFC 1123.
"""

import datetime as dt
import re
from typing import Final

DATE_CHARS_MAX: Final = 64
YEAR_MIN: Final = 1990  # no page is older; what says so is a default value of somebody's database

_W3C = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:(?:[Tt]|\s{1,4})(\d{1,2}):(\d{2})(?::(\d{2})(?:[.,]\d{1,9})?)?"
    r"\s{0,4}([Zz]|UTC|GMT|[+-]\d{2}:?\d{2})?)?)?)?",
    re.ASCII,
)
_RFC822 = re.compile(
    r"(?:[A-Za-z]{3,9},?\s{1,4})?(\d{1,2})[\s-]([A-Za-z]{3})[A-Za-z]{0,6}[\s-](\d{4}|\d{2})\s{1,4}"
    r"(\d{1,2}):(\d{2})(?::(\d{2}))?\s{0,4}([+-]\d{4}|[A-Za-z]{1,4})",
    re.ASCII,
)
_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_ZONES: Final = {"UT": 0, "UTC": 0, "GMT": 0, "Z": 0} | {
    f"{letter}{kind}T": hours + (kind == "D")
    for letter, hours in (("E", -5), ("C", -6), ("M", -7), ("P", -8))
    for kind in ("S", "D")
}


def milliseconds(text: str, *, now_ms: int) -> int:
    """When something changed at the latest, in milliseconds UTC; 0 for what is no date, or one that is to come.

    A day (month, year) without a time counts to its end, but not beyond now: else a change in its afternoon would
    hide behind a visit in its morning. A W3C time without a zone is taken as UTC; an RFC 822 time needs one.
    """
    text = text.strip()
    if len(text) > DATE_CHARS_MAX:
        return 0
    try:
        start, end = _w3c(text) or _rfc822(text) or (None, None)
    except (ValueError, OverflowError):  # the thirtieth of February
        return 0
    if start is None or end is None or start.year < YEAR_MIN:
        return 0
    start_ms, end_ms = (round(moment.timestamp() * 1000) for moment in (start, end))
    return min(end_ms, now_ms) if start_ms <= now_ms else 0


def _w3c(text: str) -> tuple[dt.datetime, dt.datetime] | None:
    found = _W3C.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, zone = found.groups()
    start = dt.datetime(int(year), int(month or 1), int(day or 1), tzinfo=dt.UTC)
    if hour is not None:
        moment = start.replace(hour=int(hour), minute=int(minute), second=min(int(second or 0), 59))
        moment -= _offset(zone or "Z")
        return moment, moment
    if day is not None:
        return start, start + dt.timedelta(days=1)
    if month is not None:
        return start, (start + dt.timedelta(days=31)).replace(day=1)
    return start, start.replace(year=start.year + 1)


def _rfc822(text: str) -> tuple[dt.datetime, dt.datetime] | None:
    found = _RFC822.fullmatch(text)
    if found is None:
        return None
    day, name, year, hour, minute, second, zone = found.groups()
    month = _MONTHS.get(name.lower())
    if month is None or (zone[0] not in "+-" and zone.upper() not in _ZONES):
        return None
    full_year = int(year) if len(year) == 4 else int(year) + (2000 if int(year) < 70 else 1900)
    moment = dt.datetime(
        full_year, month, int(day), int(hour), int(minute), min(int(second or 0), 59), tzinfo=dt.UTC
    ) - _offset(zone)
    return moment, moment


def _offset(zone: str) -> dt.timedelta:
    if zone[0] not in "+-":
        return dt.timedelta(hours=_ZONES[zone.upper()])
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return dt.timedelta(minutes=-minutes if zone[0] == "-" else minutes)
