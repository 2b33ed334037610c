"""What may be asked for at all: the operator's rules, and those that came with seeds; pure.

A rule of `scope.allow` and `scope.deny` is one of

- `example.com`: that host and every host below it, at any port.
- `https://example.com/docs/`: the URLs that begin so. A text that ends in `/`, `?`, `&` or `=` is taken as it stands;
  another ends where a name does: `/docs` covers `/docs`, `/docs/a` and `/docs?q`, not `/docs-old` nor `/docs.html`.
  The port counts, http and https are the same: a site that moved to https is still the site that was meant.
- `~pattern`: a regular expression, searched for anywhere in the canonical URL, case by case unless it says `(?i)`.

A URL is in scope if no deny rule matches it, an allow rule does (or there is none), it is not more than
`scope.depth_max` links from a seed, and, once the crawl is bounded by seeds, the rule of some seed admits it. Rules
judge where a URL is and how deep it was first found, never by which way: a page in two seeds' scopes is in both. A
seed is in its own scope whatever the seeds' rules say; the operator's rules hold for seeds too.

Patterns are RE2's (Cox, "Regular Expression Matching Can Be Simple And Fast", 2007): the time is linear in the URL
whatever the pattern, so a link cannot hold up the node that judges it. Back-references and look-around cannot be had
in linear time and are refused; a path in a loop is what `limits.path_repeats_max` is for.
"""

import functools
import hashlib
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, Protocol

import re2

from shared import errors, records, urls

DENY, ALLOW, DEPTH, SEED = "scope_deny", "scope_allow", "scope_depth", "scope_seed"
PAGES, BYTES = "scope_pages", "scope_bytes"
REASONS = (DENY, ALLOW, DEPTH, SEED, PAGES, BYTES)
"""Why a URL is not asked for: names under which it is set aside and counted."""

KINDS = ("page", "prefix", "host", "site", "any")
HOSTS_REMEMBERED = 65_536  # a page's links share a handful of hosts
PATTERNS_MAX = 1_000  # each is searched in every link

_TYPE = re.compile(r"\*/\*|[a-z0-9!#$&^_.+-]+/(?:\*|[a-z0-9!#$&^_.+-]+)")
_OPEN_ENDS = ("/", "?", "&", "=")  # a prefix that ends so covers all that follows

Kind = Literal["page", "prefix", "host", "site", "any"]
Prefixes = tuple[tuple[str, str], ...]
"""(path to begin with, rule as written)"""
At = tuple[str, Prefixes]
"""What a list's rules say of one `host[:port]`: the rule that covers all of it, and its prefixes."""


class Settings(Protocol):
    """The configuration's scope table."""

    @property
    def allow(self) -> tuple[str, ...]: ...
    @property
    def deny(self) -> tuple[str, ...]: ...
    @property
    def depth_max(self) -> int | None: ...
    @property
    def pages_per_site(self) -> int | None: ...
    @property
    def bytes_per_site(self) -> int | None: ...
    @property
    def content_types(self) -> tuple[str, ...]: ...


class Verdict(NamedTuple):
    """Whether a URL is in scope, and the rule that decided."""

    reason: str | None = None
    """One of REASONS; None: in scope."""
    rule: str = ""
    """As it was written; "" where it was the lack of one."""


IN = Verdict()


class SeedRule(records.Record, frozen=True, kw_only=True, array_like=True):
    """What one seed admits besides itself."""

    kind: Kind
    place: str = ""
    """Of `page` and `prefix` a canonical URL, of `host` a host, of `site` a site."""
    depth: int | None = None
    """Links from a seed; None: any number."""

    def __str__(self) -> str:
        deep = "" if self.depth is None else f" depth={self.depth}"
        return f"{self.place} scope={self.kind}{deep}".strip()


def seed_rule(kind: Kind, url: str, site: str, depth: int | None = None) -> SeedRule:
    """The rule of a seed, from its canonical URL; `prefix` is the folder it stands in."""
    match kind:
        case "page":
            return SeedRule(kind=kind, place=url)
        case "prefix":
            path = urls.path_of(url).partition("?")[0]
            folder = path[: path.rindex("/") + 1]
            return SeedRule(kind=kind, place=urls.origin_of(url) + folder, depth=depth)
        case "host":
            return SeedRule(kind=kind, place=urls.host_of(url), depth=depth)
        case "site":
            return SeedRule(kind=kind, place=site, depth=depth)
        case "any":
            return SeedRule(kind=kind, depth=depth)


class Seeds:
    """The rules that came with seeds, looked up by where a URL is: as quick with 100,000 rules as with one."""

    def __init__(self, rules: Iterable[SeedRule] = ()) -> None:
        self.count = 0
        self._any = -1.0
        self._sites: dict[str, float] = {}
        self._hosts: dict[str, float] = {}
        self._pages: set[str] = set()
        self._folders: dict[str, float] = {}
        for rule in rules:
            self.add(rule)

    def add(self, rule: SeedRule) -> None:
        """Of two rules for one place, the deeper one holds."""
        self.count += 1
        depth = math.inf if rule.depth is None else rule.depth
        match rule.kind:
            case "any":
                self._any = max(self._any, depth)
            case "site":
                self._sites[rule.place] = max(self._sites.get(rule.place, -1.0), depth)
            case "host":
                self._hosts[rule.place] = max(self._hosts.get(rule.place, -1.0), depth)
            case "page":
                self._pages.add(rule.place.partition("://")[2])
            case "prefix":
                folder = rule.place.partition("://")[2]
                self._folders[folder] = max(self._folders.get(folder, -1.0), depth)

    def depth_of(self, url: str, site: str) -> float:
        """How many links from a seed this URL may be: the most that any rule grants; -1: none admits it."""
        found = max(self._any, self._sites.get(site, -1.0))
        if found == math.inf:
            return found
        _, _, authority, path = url.split("/", 3)
        if self._hosts:
            found = max(found, self._hosts.get(urls.host_of(url) if ":" in authority else authority, -1.0))
        if self._pages and f"{authority}/{path}" in self._pages:
            return math.inf
        if self._folders:
            folder = f"{authority}/{path.partition('?')[0]}"
            end = len(folder)
            while (end := folder.rfind("/", 0, end)) > 0:
                found = max(found, self._folders.get(folder[: end + 1], -1.0))
        return found


class Rules:
    """The rules of one list, for many URLs."""

    def __init__(self, texts: Iterable[str], *, setting: str, form: urls.Form = urls.PLAIN) -> None:
        self._form = form
        self._hosts: dict[str, str] = {}
        self._prefixes: dict[str, Prefixes] = {}
        self._patterns: list[tuple[Any, str]] = []
        self._any_pattern: Any = None
        for text in texts:
            try:
                self._add(text.strip())
            except errors.InvalidUrl as error:
                raise errors.ConfigError(f"{setting}: {text!r} is no rule: {error}") from error
        if len(self._patterns) > PATTERNS_MAX:
            raise errors.ConfigError(f"{setting}: at most {PATTERNS_MAX} patterns")
        self._any_pattern = _together([text[1:] for _, text in self._patterns])
        self.some = bool(self._hosts or self._prefixes or self._patterns)

    def match(self, url: str, at: At) -> str:
        """A rule that matches, as written; "" for none. `at` is what `of_authority` says of the URL's."""
        whole, prefixes = at
        if whole:
            return whole
        for prefix, text in prefixes:
            if _covers(prefix, urls.path_of(url)):
                return text
        return self.pattern(url) if self._patterns else ""

    def pattern(self, text: str) -> str:
        """The first pattern that is found in a text, whatever text it is; "" for none."""
        octets = text.encode()
        if self._any_pattern is not None and self._any_pattern.search(octets) is None:
            return ""
        return next((rule for pattern, rule in self._patterns if pattern.search(octets) is not None), "")

    def of_authority(self, authority: str) -> At:
        """The rule that covers all of this host, and the prefixes that lie on `host[:port]`."""
        prefixes = self._prefixes.get(authority, ())
        name = urls.host_of(f"https://{authority}/")
        while name:
            if name in self._hosts:
                return self._hosts[name], prefixes
            name = name.partition(".")[2]
        return "", prefixes

    def _add(self, text: str) -> None:
        if text.startswith("~"):
            if text == "~":
                raise errors.InvalidUrl("an empty pattern is found in every URL")
            try:
                self._patterns.append((_compiled(text[1:]), text))
            except re2.error as error:
                raise errors.InvalidUrl(f"RE2 says {_said(error)}") from error
        elif "/" in text:
            if text.endswith("*"):
                raise errors.InvalidUrl("a prefix has no asterisk: what it begins with is enough")
            authority, path = _parted(urls.canonical(text if "://" in text else f"https://{text}", form=self._form))
            self._prefixes[authority] = (*self._prefixes.get(authority, ()), (path, text))
        else:
            self._hosts[_host(text, self._form)] = text


class Scope:
    """The scope of one crawl; `seeds` is None until it is bounded by seeds."""

    def __init__(self, settings: Settings, seeds: Seeds | None = None, *, form: urls.Form = urls.PLAIN) -> None:
        self.seeds = seeds
        self._settings = settings
        self._deny = Rules(settings.deny, setting="scope.deny", form=form)
        self._allow = Rules(settings.allow, setting="scope.allow", form=form)
        self._types = frozenset(_content_type(text) for text in settings.content_types)
        self._unbounded = not (self._deny.some or self._allow.some) and settings.depth_max is None
        self._at: Callable[[str], tuple[At | None, At | None]] = functools.lru_cache(HOSTS_REMEMBERED)(
            self._of_authority
        )

    @classmethod
    def of(
        cls, settings: Settings, seed_rules: Iterable[SeedRule] | None = None, *, form: urls.Form = urls.PLAIN
    ) -> "Scope":
        """Raises ConfigError, naming the setting, for a rule that cannot be read. `form` is that of queued URLs."""
        return cls(settings, None if seed_rules is None else Seeds(seed_rules), form=form)

    def verdict(self, url: str, site: str, depth: int, *, hops: int = 0) -> str | None:
        """Why a canonical URL is not to be asked for, one of REASONS; None where it is in scope.

        `depth` counts links from a seed, `hops` redirects: a redirect's target is no seed, at whatever depth.
        """
        if self._unbounded and self.seeds is None:
            return None
        return self.judge(url, site, depth, hops=hops).reason

    def judge(self, url: str, site: str, depth: int, *, hops: int = 0) -> Verdict:
        """The same, with the rule that decided."""
        denied, allowed = self._at(url.split("/", 3)[2])
        rule = self._deny.match(url, denied) if denied is not None else ""
        if rule:
            return Verdict(DENY, rule)
        if allowed is not None:
            rule = self._allow.match(url, allowed)
            if not rule:
                return Verdict(ALLOW)
        limit = self._settings.depth_max
        if limit is not None and depth > limit:
            return Verdict(DEPTH, f"depth_max {limit}")
        if self.seeds is not None and (depth or hops):
            granted = self.seeds.depth_of(url, site)
            if depth > granted:
                return Verdict(SEED) if granted < 0 else Verdict(DEPTH, f"depth={granted:g} of its seed")
        return Verdict(None, rule) if rule else IN

    def spent(self, *, pages: int, body_bytes: int) -> Verdict:
        """Has a site used up its budget? Of pages visited, and bytes of bodies as received."""
        settings = self._settings
        if settings.pages_per_site is not None and pages >= settings.pages_per_site:
            return Verdict(PAGES, f"pages_per_site {settings.pages_per_site}")
        if settings.bytes_per_site is not None and body_bytes >= settings.bytes_per_site:
            return Verdict(BYTES, f"bytes_per_site {settings.bytes_per_site}")
        return IN

    def _of_authority(self, authority: str) -> tuple[At | None, At | None]:
        deny, allow = self._deny, self._allow
        return (
            deny.of_authority(authority) if deny.some else None,
            allow.of_authority(authority) if allow.some else None,
        )

    @property
    def all_types(self) -> bool:
        return not self._types

    def wanted(self, content_type: str | None) -> bool:
        """Is a body of this type to be read? One that does not say its type is."""
        if not self._types or not content_type:
            return True
        essence = content_type.partition(";")[0].strip().lower()
        return not self._types.isdisjoint((essence, f"{essence.partition('/')[0]}/*", "*/*"))

    @functools.cached_property
    def digest(self) -> str:
        """Of the operator's rules: nodes that differ in it judge differently. The seeds' rules are not in it."""
        settings = self._settings
        said = (settings.allow, settings.deny, settings.depth_max, settings.pages_per_site, settings.bytes_per_site)
        return hashlib.sha256(repr((*said, settings.content_types)).encode()).hexdigest()[:12]


def _parted(canonical: str) -> tuple[str, str]:
    """Host with port, and path with query."""
    authority, slash, path = canonical.partition("://")[2].partition("/")
    return authority, slash + path


def _covers(prefix: str, path: str) -> bool:
    """Does the path begin with the prefix, up to the end of a name?"""
    if not path.startswith(prefix):
        return False
    if len(path) == len(prefix) or prefix.endswith(_OPEN_ENDS):
        return True
    return path[len(prefix)] in ("&" if "?" in prefix else "/?")


def _host(text: str, form: urls.Form) -> str:
    if "*" in text:
        raise errors.InvalidUrl("a host has no asterisk: the hosts below it are in its rule")
    if not text or set(text) & set("?#@\\") or (":" in text and not text.startswith("[")):
        raise errors.InvalidUrl("neither a host, a URL to begin with (https://host:port/path/) nor a ~pattern")
    return urls.host_of(urls.canonical(f"https://{text}/", form=form))


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    return re2.compile(pattern.encode(), options)


def _together(patterns: list[str]) -> Any:
    """One pattern that is found where any of these is; None where they must be searched one by one."""
    if len(patterns) < 2 or any("\\Q" in pattern for pattern in patterns):  # an open quotation would reach the next
        return None
    try:
        return _compiled("|".join(f"(?:{pattern})" for pattern in patterns))
    except re2.error:  # each is small enough, all of them are not
        return None


def _said(error: Exception) -> str:
    said = error.args[0] if error.args else error
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)


def _content_type(text: str) -> str:
    found = text.strip().lower()
    if not _TYPE.fullmatch(found):
        raise errors.ConfigError(f"scope.content_types: {text!r} is no type such as text/html or text/*")
    return found
