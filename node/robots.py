"""What an origin's robots.txt lets us fetch, and what an answer to it is worth; knows no clock, no network.

Source: RFC 9309 section 2.3. `robots_file` reads the text, `robots_rules` says which rule decides a path.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Final, Literal

from node import politeness, robots_file, robots_rules
from shared import errors, records, urls

GOOD_S: Final = 30 * 86_400.0  # RFC 9309 2.3.1.4 names 30 days as the "reasonably long period" of a cached copy
CACHE_MIN_S: Final = 3_600.0  # Cache-Control may shorten the life of an answer, but not to a request before every page
VERDICTS_MAX: Final = 1_024  # remembered per file, of files with so many patterns that this saves time
FORBIDDEN: Final = frozenset({401, 403})
NAMES: Final = ("rules", "last_good", "allow", "forbidden_allowed", "forbidden", "unreachable", "elsewhere")

_ABSOLUTE = re.compile(r"https?://[^/?#]+(/[^#]*)")  # as all queued URLs are
_MAX_AGE = re.compile(r"(?:^|[\s,])(?:max-age\s*=\s*\"?([0-9]{1,9})|no-cache|no-store)(?![^\s,\"])", re.IGNORECASE)


class Rules:
    """The verdicts of one origin for our product token."""

    __slots__ = ("_blanket", "_matcher", "_verdicts", "crawl_delay_s", "sitemaps")

    def __init__(
        self,
        *,
        blanket: bool | None = None,
        matcher: robots_rules.Matcher | None = None,
        crawl_delay_s: float | None = None,
        sitemaps: tuple[str, ...] = (),
    ) -> None:
        self._blanket = blanket
        self._matcher = matcher
        self._verdicts: dict[str, robots_rules.Rule | None] = {}
        self.crawl_delay_s = crawl_delay_s
        """Seconds asked for by Crawl-delay; None without one."""
        self.sitemaps = sitemaps
        """Canonical URLs of all Sitemap lines: they belong to no group."""

    @property
    def weight(self) -> int:
        """How many rules are kept in memory."""
        return self._matcher.size if self._matcher is not None else 0

    @property
    def slow(self) -> bool:
        """Whether a verdict should be taken in steps (`judging`) before it is asked for."""
        return self._matcher is not None and self._matcher.slow

    def allowed(self, url: str) -> bool:
        """Whether this URL (absolute, or a path) may be fetched; /robots.txt always may (RFC 9309 2.2.2)."""
        if self._matcher is None and self._blanket:
            return True  # as most origins say
        return self.why(url)[0]

    def why(self, url: str) -> tuple[bool, int | None]:
        """Whether this URL may be fetched, and the line of the file that says so; None where no line does."""
        return robots_rules.run(self.judging(url))

    def judging(self, url: str) -> robots_rules.Steps[tuple[bool, int | None]]:
        """`why`, in steps of well under a millisecond; remembered where it took long."""
        path = path_of(url)
        if path == "/robots.txt" or path.startswith("/robots.txt?"):
            return True, None
        if self._matcher is None:
            return self._blanket is not False, None
        path = robots_rules.normal(path)
        if path in self._verdicts:
            rule = self._verdicts[path]
        else:
            rule = yield from self._matcher.deciding(path)
            if self._matcher.slow:
                if len(self._verdicts) >= VERDICTS_MAX:
                    self._verdicts.clear()
                self._verdicts[path] = rule
        return (True, None) if rule is None else (rule.allow, rule.line)


def parse(record: records.RobotsRecord, token: str, *, origin: str | None = None) -> Rules:
    """The rules of a stored answer for a product token, in one go: 1 ms for 5 to 10 KB."""
    return robots_rules.run(parsing(record, token, origin=origin))


def parsing(record: records.RobotsRecord, token: str, *, origin: str | None = None) -> robots_rules.Steps[Rules]:
    """`parse`, in steps of well under a millisecond; sitemaps without a host are those of `origin`."""
    if record.verdict == "allow":
        return Rules(blanket=True)
    if record.verdict == "disallow":
        return Rules(blanket=False)
    group, sitemaps = yield from robots_file.reading(record.body, token)
    matcher = None
    if group.rules:
        matcher = robots_rules.Matcher()
        yield from matcher.filling(group.rules)
    return Rules(blanket=True, matcher=matcher, crawl_delay_s=group.delay_s, sitemaps=tuple(_urls(sitemaps, origin)))


def record_of(
    outcome: records.Outcome,
    previous: records.RobotsRecord | None,
    *,
    now_ms: int,
    robots_ttl_s: float,
    robots_error_ttl_s: float,
    robots_bytes_max: int,
    robots_forbidden: Literal["allow", "deny"] = "allow",
) -> records.RobotsRecord:
    """What is stored after asking for robots.txt (RFC 9309 2.3.1), redirects already followed by the caller.

    2xx: its rules. 304: the copy stands. 4xx but 408, 425, 429, and a chain of too many redirects: allow, but for 401
    and 403 where `robots_forbidden` denies. All else, a redirect without a usable Location too, is unreachable.
    """
    fresh_ms = now_ms + int(1000 * _life_s(outcome, robots_ttl_s))
    match outcome:
        case records.Fetched(status=status, truncated=None | "size") if 200 <= status < 300:
            body = _whole_lines(outcome.body, robots_bytes_max, cut=outcome.truncated is not None)
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
        case records.Fetched(status=status) if status in FORBIDDEN and robots_forbidden == "deny":
            return records.RobotsRecord(verdict="disallow", status=status, fetched_ms=now_ms, expires_ms=fresh_ms)
        case records.Fetched(status=status) | records.Redirected(status=status) if (
            300 <= status < 500 and status not in politeness.UNREADY
        ):
            return records.RobotsRecord(verdict="allow", status=status, fetched_ms=now_ms, expires_ms=fresh_ms)
    again_ms = now_ms + int(robots_error_ttl_s * 1000)
    return unreachable(previous, status=getattr(outcome, "status", 0), now_ms=now_ms, again_ms=again_ms)


def unreachable(
    previous: records.RobotsRecord | None, *, status: int, now_ms: int, again_ms: int
) -> records.RobotsRecord:
    """The last good copy for up to GOOD_S, without one complete disallow; the origin is asked again at `again_ms`."""
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


def refusal(record: records.RobotsRecord) -> str:
    """Why nothing, or not this, may be fetched of the origin of this record."""
    if record.verdict != "disallow":
        return "robots"
    if record.moved_ms:
        return "robots_elsewhere"
    return "robots_forbidden" if record.status in FORBIDDEN else "robots_unreachable"


def named(record: records.RobotsRecord) -> str:
    """What an answer came to, one of NAMES."""
    if record.verdict == "disallow":
        return refusal(record).removeprefix("robots_")
    if record.verdict == "rules":
        return "rules" if record.status < 400 and record.status else "last_good"
    return "forbidden_allowed" if record.status in FORBIDDEN else "allow"


def path_of(url: str) -> str:
    """Path and query of a URL as rules see it: from the first slash after the authority, fragment dropped."""
    usual = _ABSOLUTE.fullmatch(url)
    if usual is not None:
        return usual[1]
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


def _urls(sitemaps: tuple[str, ...], origin: str | None) -> Iterator[str]:
    base = f"{origin}/robots.txt" if origin else None
    for written in sitemaps:
        with contextlib.suppress(errors.InvalidUrl):
            url = urls.canonical(written, base)
            if urls.path_of(url) != "/robots.txt":  # some name themselves
                yield url


def _life_s(outcome: records.Outcome, robots_ttl_s: float) -> float:
    """How long an answer may be used (RFC 9309 2.4): what Cache-Control says shortens it, and lengthens nothing."""
    if not isinstance(outcome, records.Fetched | records.NotModified):
        return robots_ttl_s
    said = [value for name, value in outcome.headers if name.lower() == "cache-control"]
    ages = [int(found[1] or 0) for value in said for found in _MAX_AGE.finditer(value)]
    return min(robots_ttl_s, max(CACHE_MIN_S, min(ages))) if ages else robots_ttl_s


def _whole_lines(body: bytes, bytes_max: int, *, cut: bool) -> bytes:
    """The part of a body that is read; half a line may mean the opposite of the whole one."""
    if len(body) <= bytes_max and not cut:
        return body
    body = body[:bytes_max]
    return body[: max(body.rfind(b"\n"), body.rfind(b"\r")) + 1] or body
