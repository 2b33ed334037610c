"""The lines of a robots.txt that are for us: rules, Crawl-delay, sitemaps; pure, and in small steps.

Source: RFC 9309 section 2.2, with the leniency that real files need.
"""

import codecs
import io
import re
from collections.abc import Iterator
from typing import Final

from node import robots_rules

SITEMAPS_MAX: Final = 100  # of one file; the rest is dropped
DELAY_S_MAX: Final = 1e12  # what a delay beyond all numbers counts as
LINE_CHARS_MAX: Final = 4_096  # the rest of a line is dropped: no path is as long

_AGENT = frozenset({"user-agent", "useragent", "user agent", "useg-agent"})
_ALLOW = frozenset({"allow"})
_DISALLOW = frozenset({"disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw", "desallow"})
_DELAY = frozenset({"crawl-delay", "crawldelay", "crawl delay"})
_SITEMAP = frozenset({"sitemap", "http", "https"})  # or the URL alone, where its name says what it is
_OURS = _AGENT | _ALLOW | _DISALLOW | _DELAY | _SITEMAP
# A field and its value stand apart by a colon; files that forgot the colon are understood too.
_FIELD = re.compile(r"\s*([A-Za-z][A-Za-z-]*(?: (?:agent|delay))?)(?:\s*:|\s)\s*(.*)", re.DOTALL | re.IGNORECASE)
_EVERYBODY = re.compile(r"\*(?![A-Za-z0-9_-])")
_MARKUP = re.compile(r"</?(?:br|p|div|pre)\s*/?>", re.IGNORECASE)
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
_URL = frozenset({"http", "https"})
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class Group:
    """The merged rules and the largest Crawl-delay of the groups for one kind of reader."""

    def __init__(self) -> None:
        self.rules: list[tuple[int, bool, str]] = []
        """(line, allow, pattern as written)."""
        self.delay_s: float | None = None


def reading(body: bytes, token: str) -> robots_rules.Steps[tuple[Group, tuple[str, ...]]]:
    """The group that is ours, and all sitemaps as written: a Sitemap line is of no group (RFC 9309 2.2.4)."""
    file = _File(token.lower())
    spent = 0
    for number, line in _lines(body):
        spent += robots_rules.LINE_COST + len(line)
        if spent > robots_rules.SLICE_CHARS:
            yield
            spent = 0
        match = _FIELD.fullmatch(_without_markup(line.partition("#")[0].rstrip())) if line else None
        if match is not None and (field := match[1].lower()) in _OURS:
            value = match[2].strip()
            file.take(number, field, f"{field}:{value}" if field in _URL else value)
    return file.group(), tuple(file.sitemaps)


class _File:
    """What has been read of a file: the groups that name the token, those of everybody, the sitemaps.

    Only allow and disallow end a run of user-agent lines (RFC 9309 2.2.4: other records do not end a group).
    """

    def __init__(self, token: str) -> None:
        self.sitemaps: dict[str, None] = {}
        self._token = token
        self._named, self._everybody = Group(), Group()
        self._name_seen = self._in_agents = False
        self._open: list[Group] = []

    def group(self) -> Group:
        """The one that is ours."""
        return self._named if self._name_seen else self._everybody

    def take(self, number: int, field: str, value: str) -> None:
        """One line's field and value."""
        if field in _AGENT:
            self._agent(value)
        elif field in _DELAY:
            for group in self._open:
                group.delay_s = max(_seconds(value), group.delay_s, key=lambda known: -1.0 if known is None else known)
        elif field in _SITEMAP:
            if len(self.sitemaps) < SITEMAPS_MAX and value and (field not in _URL or "sitemap" in value.lower()):
                self.sitemaps[value] = None
        else:
            self._in_agents = False
            for group in self._open if value else ():
                group.rules.append((number, field in _ALLOW, value))

    def _agent(self, value: str) -> None:
        if not self._in_agents:
            self._open = []
        self._in_agents = True
        group = None
        if _EVERYBODY.match(value):
            group = self._everybody
        elif _names(value, self._token):
            group, self._name_seen = self._named, True
        if group is not None and group not in self._open:
            self._open.append(group)


def _lines(body: bytes) -> Iterator[tuple[int, str]]:
    """All lines and their numbers, without NULs, decoded as they are asked for; they end in LF, CR or both.

    What is too long comes in parts, all of them empty but the first.
    """
    encoding = "utf-8"
    for mark, name in _BOMS:
        if body.startswith(mark):
            body, encoding = body[len(mark) :], name
            break
    # What is not UTF-8 keeps its bytes, so that a Latin-1 path still matches its own escapes.
    faults = "surrogateescape" if encoding == "utf-8" else "replace"
    text = io.TextIOWrapper(io.BytesIO(body), encoding, faults, newline=None)
    number, begins = 1, True
    while line := text.readline(LINE_CHARS_MAX):
        ends = line.endswith("\n")
        yield number, line.rstrip("\n").replace("\x00", "") if begins else ""
        number, begins = number + ends, ends


def _without_markup(line: str) -> str:
    """A line without the tags at its end: some servers send robots.txt as a web page, its lines broken by markup.

    From the end, each tag looked at once: a search for the run of tags takes hours on a line of 500 KB of them.
    """
    end = len(line)
    while end and line[end - 1] == ">":
        begin = line.rfind("<", 0, end)
        if begin < 0 or _MARKUP.fullmatch(line, begin, end) is None:
            break
        end = begin
        while end and line[end - 1].isspace():
            end -= 1
    return line[:end]


def _names(value: str, token: str) -> bool:
    """Whether a user-agent value means this token: all of it, or its first word ("Name/1.0 (comment)")."""
    value = value.lower().replace("*", "")
    first = _TOKEN.match(value)
    return token in {value, value.partition("/")[0].rstrip(), first[0] if first else ""}


def _seconds(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        return None
    if seconds == float("inf") and value[:1].isdigit():
        return DELAY_S_MAX  # 1e400: a number all the same
    return seconds if 0 <= seconds < float("inf") else None
