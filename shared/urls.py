"""The canonical form of a URL, its parts, and its short form under a site's key; pure string work.

It knows no site rule and fetches nothing. The steps, in order (FORM_VERSION counts their changes):

1. Parse, or join to the base, as the WHATWG URL standard says: white space at the ends, tabs and line ends
   dropped, dot segments resolved, scheme and host in lower case, IDNA, one form of an IPv4 or IPv6
   address, no default port, spaces and non-ASCII escaped, a query in the encoding of its page. What does
   not parse is `invalid`, or `scheme` if it names one of the next step's.
2. Only http and https; anything else is `scheme`.
3. No fragment, no user name or password: neither is asked for.
4. The host without one trailing root dot. It must then be an IP address or labels of a-z, 0-9, `-` and `_`,
   none empty, none over 63 octets, 253 together: anything else can be no name on the network, and is `host`.
5. RFC 3986 section 6.2.2 in path and query: upper-case escapes, escaped unreserved characters written
   plain. Where a `%` stands that begins no escape, escapes of hex digits stay, since a plain digit could
   complete it.
6. What the operator asked for (`Form`): a host that is another's alias becomes that host, listed query
   parameters and session ids of known shapes are dropped, and a `?` left with nothing behind it goes with
   them.

Path case, trailing slash, parameter order, `www.` and an empty query stay: a server may tell them apart.
"""

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Mapping
from typing import Protocol
from urllib.parse import unquote_plus

import ada_url
import xxhash

from shared import errors, queries, session_ids

FORM_VERSION = 2
"""Part of the cluster's fingerprint: nodes that disagree on the form would queue one page twice."""

INPUT_CHARS_MAX = 65_536  # no server takes a longer one; what comes longer is data that strayed into a link

SCHEME = re.compile(r"[\x00-\x20]*([A-Za-z][A-Za-z0-9+.-]*):")
"""The scheme that a link names itself, if it names one."""

_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_HEX = frozenset("0123456789ABCDEFabcdef")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_STRAY = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST = re.compile(r"(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}|\[[0-9a-f:]+\]")
_HOST_CHARS_MAX = 253

# A link of the usual spelling, which joins by putting strings together: no dot segment but at its head, no character
# or escape that the form would write otherwise. What begins like a scheme, or with white space, is none.
_PATH_CHARS = r"A-Za-z0-9._~!$&'()*+,;=@-"
_KEPT_ESCAPE = r"%(?:[0189A-F][0-9A-F]|2[0-9A-CF]|3[A-F]|40|5[B-E]|60|7[BCDF])"
_USUAL_LINK = re.compile(
    r"(?:((?:https?:)?//[A-Za-z0-9._-]++(?::[0-9]++)?)(?![^/#])|(?!//))((?:\.\.?/)*+)(?:/\.(?=/))*+"
    rf"((?:(?!\.)(?:[{_PATH_CHARS}]++|{_KEPT_ESCAPE})++)?+(?:/(?!\.)(?:[:{_PATH_CHARS}]++|{_KEPT_ESCAPE})*+)*+"
    rf"(?:\?(?:[:/?A-Za-z0-9._~!$&()*+,;=@-]++|{_KEPT_ESCAPE})*+)?)(?:#.*+)?",
    re.DOTALL,
)
_PLACES_REMEMBERED = 16_384  # hosts, and folders, as links write them: about 5 MB each when full

_ESCAPES = {f"%{code:02X}": char for code in range(128) if (char := chr(code)) in _UNRESERVED}
_PLAIN_HTTP = "~"  # no host holds it, so it can mark the rarer scheme in a short form


class Settings(Protocol):
    """The settings of the configuration's sites table that change the form."""

    @property
    def drop_params(self) -> tuple[str, ...]: ...
    @property
    def drop_session_ids(self) -> bool: ...
    @property
    def aliases(self) -> Mapping[str, str]: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Form:
    """What an operator wants of the form beyond the standard (step 6); `PLAIN` is nothing.

    Raises ConfigError for aliases that are no hosts or that lead back to themselves.
    """

    drop_params: frozenset[str] = frozenset()
    """Names of query parameters, as a form decodes them."""
    session_ids: bool = False
    """Drop session ids of the shapes that `session_ids` knows."""
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Canonical host -> the canonical host it is another name of, itself no alias; port and scheme stay."""

    def __post_init__(self) -> None:
        if self.aliases:
            object.__setattr__(self, "aliases", _resolved(self.aliases))

    @classmethod
    def of(cls, settings: Settings) -> "Form":
        """The form of a configuration's sites table."""
        if not (settings.drop_params or settings.drop_session_ids or settings.aliases):
            return PLAIN
        return cls(
            drop_params=frozenset(settings.drop_params),
            session_ids=settings.drop_session_ids,
            aliases=settings.aliases,
        )

    @property
    def described(self) -> str:
        """One line that two nodes share if, and only if, they give every URL the same form."""
        parts = [f"{FORM_VERSION} less {','.join(sorted(self.drop_params)) or 'nothing'}"]
        if self.session_ids:
            parts.append("less session ids")
        if self.aliases:
            pairs = " ".join(f"{host}={target}" for host, target in sorted(self.aliases.items()))
            parts.append(f"{len(self.aliases)} aliases {xxhash.xxh3_64_hexdigest(pairs.encode())}")
        return ", ".join(parts)


PLAIN = Form()
"""Steps 1 to 5 alone."""


def canonical(url: str, base: str | None = None, *, form: Form = PLAIN, encoding: str = "utf-8") -> str:
    """The one spelling of a URL that is queued, compared and sent; applying it again changes nothing.

    `encoding` is the codec of the page the URL stood on, for its query. Raises InvalidUrl with `too_long`,
    `invalid`, `scheme` or `host`.
    """
    if len(url) > INPUT_CHARS_MAX:
        raise errors.InvalidUrl("too_long")
    if encoding != "utf-8":
        url = queries.written(url, encoding)
    try:
        parsed = ada_url.normalize_url(url) if base is None else ada_url.join_url(base, url)
    except ValueError as error:
        whole = _whole_characters(url)  # half of a surrogate pair is read as U+FFFD
        if whole == url:
            named = SCHEME.match(url)  # `bluesky://d:i:d` is no URL, and would be none of the web if it were
            web = named is None or named[1].lower() in {"https", "http"}
            raise errors.InvalidUrl("invalid" if web else "scheme") from error
        return canonical(whole, base, form=form)
    scheme, _, rest = parsed.partition("://")
    if scheme not in {"https", "http"}:
        raise errors.InvalidUrl("scheme")
    authority, slash, path = rest.partition("/")
    if "#" in path:
        path = path[: path.index("#")]
    if "%" in path:
        path = _plain_escapes(path)
    url = f"{scheme}://{_authority(authority)}{slash}{path}"
    return url if form is PLAIN else _in_form(url, form)


class Page:
    """Where links stand: many of one page are joined to its URL for much less than each by itself."""

    __slots__ = ("_base", "_encoding", "_folder", "_form", "_origin", "_scheme")

    def __init__(self, base: str, *, form: Form = PLAIN, encoding: str = "utf-8") -> None:
        """`form` and `encoding` are those of `canonical`. Raises InvalidUrl for a base that has no canonical form."""
        base = canonical(base)
        self._base, self._form, self._encoding = base, form, encoding
        self._origin = origin_of(base)
        self._scheme = base[: base.index("/")]
        path = path_of(base).partition("?")[0]
        self._folder = self._origin + path[: path.rindex("/") + 1]

    def canonical(self, link: str) -> str:
        """What `canonical(link, base)` says, with the same errors."""
        found = _USUAL_LINK.fullmatch(link) if len(link) <= INPUT_CHARS_MAX else None
        if found is None:
            return canonical(link, self._base, form=self._form, encoding=self._encoding)
        origin, up, rest = found.groups()
        if origin is not None:
            origin = _origin(origin if origin[0] == "h" else self._scheme + origin)
            url = f"{origin}{rest}" if rest else f"{origin}/"
        elif up:
            url = _folder(up, self._folder) + rest
        elif rest[:1] == "/":
            url = self._origin + rest
        elif rest[:1] not in {"", "?"}:
            url = self._folder + rest
        else:  # the page itself, or another query of it
            return canonical(link, self._base, form=self._form, encoding=self._encoding)
        return url if self._form is PLAIN else _in_form(url, self._form)


def canonical_host(host: str) -> str:
    """The one spelling of a host that stands by itself, as in a setting; raises InvalidUrl for what is none."""
    if (
        not host
        or set(host) & set("/\\?#@")
        or (":" in host and host[0] != "[")
        or host.rpartition("]")[2].startswith(":")
    ):
        raise errors.InvalidUrl("host")
    return host_of(canonical(f"https://{host}/"))


def host_of(canonical: str) -> str:
    """The host of a canonical URL; an IPv6 address in its brackets, as it stands in the URL."""
    return _host_part(canonical.split("/", 3)[2])


def origin_of(canonical: str) -> str:
    """Scheme, host and port: what a robots.txt speaks for."""
    return canonical[: canonical.index("/", 8)]


def path_of(canonical: str) -> str:
    """Path and query: what a robots.txt rule is matched with."""
    return canonical[canonical.index("/", 8) :]


def digest(canonical: str) -> int:
    """63 bits that stand for a URL in the seen set: a signed integer for every store and script."""
    return xxhash.xxh3_64_intdigest(canonical.encode()) >> 1


def compact(canonical: str, site: str) -> str:
    """A canonical URL without what its site already says: `[~][subdomain][:port]/path`, `~` for http.

    A URL of no host under the site stays whole. `expand` undoes it exactly.
    """
    scheme, _, rest = canonical.partition("://")
    authority, _, path = rest.partition("/")
    host = _host_part(authority)
    port = authority[len(host) :]
    mark = "" if scheme == "https" else _PLAIN_HTTP
    if host == site:
        return f"{mark}{port}/{path}"
    if host.endswith(site) and host[: -len(site)].endswith("."):
        return f"{mark}{host[: -len(site) - 1]}{port}/{path}"
    return canonical


def expand(code: str, site: str) -> str:
    """The canonical URL that `compact` shortened."""
    if code.startswith(("https://", "http://")):  # a short form's port is never empty, so it cannot begin like this
        return code
    head, _, path = code.partition("/")
    scheme = "http" if head.startswith(_PLAIN_HTTP) else "https"
    subdomain, colon, port = head.removeprefix(_PLAIN_HTTP).partition(":")
    dot = "." if subdomain else ""
    return f"{scheme}://{subdomain}{dot}{site}{colon}{port}/{path}"


class Limits(Protocol):
    """The numbers of the configuration's limits table that are needed here."""

    @property
    def url_bytes_max(self) -> int: ...
    @property
    def path_depth_max(self) -> int: ...
    @property
    def path_repeats_max(self) -> int: ...


def refusal(canonical: str, limits: Limits) -> str | None:
    """Why a URL looks like a trap: `too_long`, `too_deep` or `repeats`; None if it does not.

    Depth counts the path's segments. A segment that stands more often than `path_repeats_max` is a path in a
    loop, and so is a query in which one `name=value` does.
    """
    if len(canonical) > limits.url_bytes_max:  # a canonical URL is ASCII
        return "too_long"
    # Nearly all: too few parts for any of the rest. Two slashes stand before the host.
    repeats_max = limits.path_repeats_max
    if canonical.count("/") - 2 <= min(repeats_max, limits.path_depth_max) and canonical.count("&") < repeats_max:
        return None
    path, _, query = path_of(canonical).partition("?")
    slashes = path.count("/")
    if slashes > repeats_max or slashes > limits.path_depth_max:
        segments = [segment for segment in path.split("/") if segment]
        if len(segments) > limits.path_depth_max:
            return "too_deep"
        if _repeats(segments, repeats_max):
            return "repeats"
    if query.count("&") >= repeats_max and _repeats([pair for pair in query.split("&") if pair], repeats_max):
        return "repeats"
    return None


def _repeats(parts: list[str], repeats_max: int) -> bool:
    """Whether some part stands more often than that; counted only where enough of them stand again."""
    return len(parts) - len(set(parts)) >= repeats_max and max(Counter(parts).values(), default=0) > repeats_max


@functools.lru_cache(maxsize=65_536)  # a page's links share a handful of hosts
def _authority(authority: str) -> str:
    """Host and port as they are sent: no user, no root dot (steps 3 and 4)."""
    authority = authority.rpartition("@")[2]
    host = _host_part(authority)
    port = authority[len(host) :]
    host = host.removesuffix(".")
    if not _HOST.fullmatch(host) or len(host) > _HOST_CHARS_MAX:
        raise errors.InvalidUrl("host")
    return host + port


def _host_part(authority: str) -> str:
    """`host[:port]` without the port."""
    return authority[: authority.index("]") + 1] if authority[0] == "[" else authority.partition(":")[0]


def _plain_escapes(text: str) -> str:
    stray = _STRAY.search(text) is not None

    def plain(found: re.Match[str]) -> str:
        escape = found.group().upper()
        char = _ESCAPES.get(escape, escape)
        return escape if stray and char in _HEX else char

    return _ESCAPE.sub(plain, text)


def _whole_characters(text: str) -> str:
    """Surrogate pairs as the characters they stand for, single surrogates as U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


@functools.lru_cache(maxsize=_PLACES_REMEMBERED)
def _origin(written: str) -> str:
    """The canonical origin of a scheme and host as a link writes them. Raises InvalidUrl."""
    return canonical(f"{written}/")[:-1]


@functools.lru_cache(maxsize=_PLACES_REMEMBERED)
def _folder(up: str, folder: str) -> str:
    """The folder that a link's `../` and `./` lead to."""
    return canonical(up, folder)


def _in_form(url: str, form: Form) -> str:
    """Step 6."""
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}://{_aliased(authority, form.aliases)}{slash}{_formed(path, form)}"


def _aliased(authority: str, aliases: Mapping[str, str]) -> str:
    host = _host_part(authority)
    target = aliases.get(host)
    return authority if target is None else target + authority[len(host) :]


def _formed(path: str, form: Form) -> str:
    """`path?query` less what the form drops. Where that took the last stray `%`, more escapes can be written plain."""
    while (less := _less(path, form)) != path:
        path = _plain_escapes(less) if "%" in less else less
    return path


def _less(path: str, form: Form) -> str:
    path, mark, query = path.partition("?")
    if form.session_ids:
        path = session_ids.less(path)
    if not query:
        return path + mark
    pairs = query.split("&")
    if form.drop_params:
        pairs = [pair for pair in pairs if unquote_plus(pair.partition("=")[0]) not in form.drop_params]
    if form.session_ids:
        pairs = session_ids.pairs_less(pairs)
    return f"{path}?{'&'.join(pairs)}" if pairs else path


def _resolved(aliases: Mapping[str, str]) -> dict[str, str]:
    """Aliases between canonical hosts with every chain followed to its end."""
    pairs: dict[str, str] = {}
    for name, target in aliases.items():
        try:
            host, to = canonical_host(name), canonical_host(target)
        except errors.InvalidUrl as error:
            raise errors.ConfigError(f"sites.aliases: {name!r} -> {target!r}: both must be hosts") from error
        if pairs.setdefault(host, to) != to:
            raise errors.ConfigError(f"sites.aliases: {host} is given twice, for {pairs[host]} and {to}")
    for host in pairs:
        if _end(host, pairs) is None:
            raise errors.ConfigError(f"sites.aliases: {host} leads back to itself")
    return {host: _end(host, pairs) or host for host in pairs}


def _end(host: str, pairs: Mapping[str, str]) -> str | None:
    """Where a chain of aliases ends; None if it does not."""
    for _ in range(len(pairs) + 1):
        if host not in pairs:
            return host
        host = pairs[host]
    return None
