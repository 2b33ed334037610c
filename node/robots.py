"""What an origin's robots.txt lets us fetch, and what an answer to it is worth; knows no clock, no network.

Source: RFC 9309. Groups are read here, by section 2.2 and with the leniency that real files need; protego
matches paths against the rules of the one merged group that is ours.
"""

import re
import urllib.parse
from typing import Final

import protego

from shared import records

GOOD_S: Final = 30 * 86_400.0  # RFC 9309 2.3.1.4 names 30 days as the "reasonably long period" of a cached copy
VERDICTS_MAX: Final = 4_096  # remembered per file: a file of 5,000 wildcard rules costs 14 ms a question

_AGENT = frozenset({"user-agent", "useragent", "user agent", "useg-agent"})
_ALLOW = frozenset({"allow"})
_DISALLOW = frozenset({"disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw", "desallow"})
_DELAY = frozenset({"crawl-delay", "crawldelay", "crawl delay"})
_OURS = _AGENT | _ALLOW | _DISALLOW | _DELAY
_LINE_END = re.compile(r"\r\n|\r|\n")
# A field and its value stand apart by a colon; files that forgot the colon are understood too.
_FIELD = re.compile(r"\s*([A-Za-z][A-Za-z-]*(?: (?:agent|delay))?)(?:\s*:|\s)\s*(.*)", re.DOTALL | re.IGNORECASE)
_EVERYBODY = re.compile(r"\*(?![A-Za-z0-9_-])")
_MARKUP = re.compile(r"</?(?:br|p|div|pre)\s*/?>", re.IGNORECASE)
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
_BREAKS_LINE = re.compile(r"[^\x21-\x7e]")
_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))


class Rules:
    """The verdicts of one origin for our product token; remembers a bounded number of them."""

    __slots__ = ("_blanket", "_parser", "_verdicts", "crawl_delay_s")

    def __init__(
        self,
        *,
        blanket: bool | None = None,
        parser: protego.Protego | None = None,
        crawl_delay_s: float | None = None,
    ) -> None:
        self._blanket = blanket
        self._parser = parser
        self._verdicts: dict[str, bool] = {}
        self.crawl_delay_s = crawl_delay_s
        """Seconds asked for by Crawl-delay; None without one."""

    def allowed(self, url: str) -> bool:
        """Whether this URL (absolute, or a path) may be fetched; /robots.txt always may (RFC 9309 2.2.2)."""
        path = path_of(url)
        if path == "/robots.txt" or path.startswith("/robots.txt?"):
            return True
        if self._blanket is not None or self._parser is None:
            return self._blanket is not False
        verdict = self._verdicts.get(path)
        if verdict is None:
            # With a host in front, so that a path of two leading slashes is not taken for one.
            verdict = bool(self._parser.can_fetch(f"http://host{path}", "*"))
            if len(self._verdicts) >= VERDICTS_MAX:
                self._verdicts.clear()
            self._verdicts[path] = verdict
        return verdict


def parse(record: records.RobotsRecord, token: str) -> Rules:
    """The rules of a stored answer for a product token.

    Work grows with the body: a large one is for a thread of its own.
    """
    if record.verdict == "allow":
        return Rules(blanket=True)
    if record.verdict == "disallow":
        return Rules(blanket=False)
    rules, delays = _ours(_lines(record.body), token.lower())
    crawl_delay_s = max(delays, default=None)
    if not rules:
        return Rules(blanket=True, crawl_delay_s=crawl_delay_s)
    text = "\n".join(["User-agent: *", *(f"{field}: {_one_line(pattern)}" for field, pattern in rules)])
    return Rules(parser=protego.Protego.parse(text), crawl_delay_s=crawl_delay_s)


def record_of(
    outcome: records.Outcome,
    previous: records.RobotsRecord | None,
    *,
    now_ms: int,
    robots_ttl_s: float,
    robots_error_ttl_s: float,
    robots_bytes_max: int,
) -> records.RobotsRecord:
    """What is stored after asking for robots.txt (RFC 9309 2.3.1), redirects already followed by the caller.

    2xx: its rules. 304: the copy stands. 4xx but 429, and a redirect that led nowhere: allow. All else is
    unreachable: the last good copy for up to GOOD_S, asked again after the error TTL; without one, disallow.
    """
    fresh_ms = now_ms + int(robots_ttl_s * 1000)
    match outcome:
        case records.Fetched(status=status, truncated=None | "size") if 200 <= status < 300:
            body = outcome.body[:robots_bytes_max]
            return records.RobotsRecord(
                verdict="rules",
                body=body,
                status=status,
                fetched_ms=now_ms,
                expires_ms=fresh_ms,
                good_ms=now_ms,
            )
        case records.NotModified() if previous is not None and previous.verdict == "rules":
            return records.RobotsRecord(
                verdict="rules",
                body=previous.body,
                status=304,
                fetched_ms=now_ms,
                expires_ms=fresh_ms,
                good_ms=now_ms,
            )
        case records.Fetched(status=status) | records.Redirected(status=status) if (
            300 <= status < 500 and status != 429
        ):
            return records.RobotsRecord(verdict="allow", status=status, fetched_ms=now_ms, expires_ms=fresh_ms)
    return _unreachable(outcome, previous, now_ms=now_ms, again_ms=now_ms + int(robots_error_ttl_s * 1000))


def path_of(url: str) -> str:
    """Path and query of a URL as rules see it: from the first slash after the authority, fragment dropped."""
    url = url.partition("#")[0]
    if url.startswith("/") and not url.startswith("//"):
        return url
    scheme, mark, rest = url.partition("//")
    if mark and (not scheme or scheme.endswith(":")):
        cut = re.search(r"[/?]", rest)
        path = rest[cut.start() :] if cut else ""
    else:
        path = url
    return path if path.startswith("/") else f"/{path}"


def _unreachable(
    outcome: records.Outcome, previous: records.RobotsRecord | None, *, now_ms: int, again_ms: int
) -> records.RobotsRecord:
    status = getattr(outcome, "status", 0)
    if previous is not None and previous.good_ms and now_ms - previous.good_ms <= GOOD_S * 1000:
        return records.RobotsRecord(
            verdict="rules",
            body=previous.body,
            status=status,
            fetched_ms=now_ms,
            expires_ms=again_ms,
            good_ms=previous.good_ms,
        )
    return records.RobotsRecord(verdict="disallow", status=status, fetched_ms=now_ms, expires_ms=again_ms)


def _lines(body: bytes) -> list[tuple[str, str]]:
    """The (field, value) pairs that matter, in order; comments, NULs and lines of other fields are gone."""
    encoding = "utf-8"
    for mark, name in _BOMS:
        if body.startswith(mark):
            body, encoding = body[len(mark) :], name
            break
    # What is not UTF-8 keeps its bytes, so that a Latin-1 path still matches its own escapes.
    text = body.decode(encoding, "surrogateescape" if encoding == "utf-8" else "replace")
    found = []
    for line in _LINE_END.split(text.replace("\x00", "")):
        match = _FIELD.fullmatch(_without_markup(line.partition("#")[0].rstrip()))
        if match is not None:
            field = match[1].lower()
            if field in _OURS:
                found.append((field, match[2].strip()))
    return found


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


def _ours(lines: list[tuple[str, str]], token: str) -> tuple[list[tuple[str, str]], list[float]]:
    """The merged rules and Crawl-delays of the groups that name the token, else of the groups of everybody.

    Only allow and disallow end a run of user-agent lines (RFC 9309 2.2.4: other records do not end a group).
    """
    named: tuple[list[tuple[str, str]], list[float]] = ([], [])
    everybody: tuple[list[tuple[str, str]], list[float]] = ([], [])
    name_seen = in_agents = False
    open_groups: list[tuple[list[tuple[str, str]], list[float]]] = []
    for field, value in lines:
        if field in _AGENT:
            if not in_agents:
                open_groups = []
            in_agents = True
            group = everybody if _EVERYBODY.match(value) else named if _names(value, token) else None
            name_seen = name_seen or group is named
            if group is not None and not any(group is known for known in open_groups):
                open_groups.append(group)
        elif field in _DELAY:
            for _, delays in open_groups:
                delays.extend(_seconds(value))
        else:
            in_agents = False
            for rules, _ in open_groups if value else ():
                rules.append(("Allow" if field in _ALLOW else "Disallow", value))
    return named if name_seen else everybody


def _names(value: str, token: str) -> bool:
    """Whether a user-agent value means this token: all of it, or its first word ("Name/1.0 (comment)")."""
    value = value.lower().replace("*", "")
    first = _TOKEN.match(value)
    return token in {value, value.partition("/")[0].rstrip(), first[0] if first else ""}


def _seconds(value: str) -> list[float]:
    try:
        seconds = float(value)
    except ValueError:
        return []
    return [seconds] if 0 <= seconds < float("inf") else []


def _one_line(pattern: str) -> str:
    """A pattern with every character escaped that protego could take for the end of a line or for a space."""
    return _BREAKS_LINE.sub(lambda found: urllib.parse.quote(found[0], safe="", errors="surrogateescape"), pattern)
