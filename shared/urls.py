"""The canonical form of a URL, its parts, and its short form under a site's key; pure string work.

It knows no site rule and fetches nothing. The steps, in order (FORM_VERSION counts their changes):

1. Parse, or join to the base, as the WHATWG URL standard says: white space at the ends, tabs and line ends
   dropped, dot segments resolved, scheme and host in lower case, IDNA, one form of an IPv4 or IPv6
   address, no default port, spaces and non-ASCII escaped. What does not parse is `invalid`.
2. Only http and https; anything else is `scheme`.
3. No fragment, no user name or password: neither is asked for.
4. The host without one trailing root dot. It must then be an IP address or labels of a-z, 0-9, `-` and `_`,
   none empty, none over 63 octets, 253 together: anything else can be no name on the network, and is `host`.
5. RFC 3986 section 6.2.2 in path and query: upper-case escapes, escaped unreserved characters written
   plain. Where a `%` stands that begins no escape, escapes of hex digits stay, since a plain digit could
   complete it.
6. Query parameters that the operator lists are dropped, and a `?` left with nothing behind it goes with them.

Path case, trailing slash, parameter order, `www.` and an empty query stay: a server may tell them apart.
"""

import functools
import re
from collections import Counter
from typing import Protocol
from urllib.parse import unquote_plus

import ada_url
import xxhash

from shared import errors

FORM_VERSION = 1
"""Part of the cluster's fingerprint: nodes that disagree on the form would queue one page twice."""

INPUT_CHARS_MAX = 65_536  # no server takes a longer one; what comes longer is data that strayed into a link

_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_HEX = frozenset("0123456789ABCDEFabcdef")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_STRAY = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HOST = re.compile(r"(?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}|\[[0-9a-f:]+\]")
_HOST_CHARS_MAX = 253

_ESCAPES = {f"%{code:02X}": char for code in range(128) if (char := chr(code)) in _UNRESERVED}
_PLAIN_HTTP = "~"  # no host holds it, so it can mark the rarer scheme in a short form


def canonical(url: str, base: str | None = None, *, drop_params: frozenset[str] = frozenset()) -> str:
    """The one spelling of a URL that is queued, compared and sent; applying it again changes nothing.

    Raises InvalidUrl with `too_long`, `invalid`, `scheme` or `host`.
    """
    if len(url) > INPUT_CHARS_MAX:
        raise errors.InvalidUrl("too_long")
    try:
        parsed = ada_url.normalize_url(url) if base is None else ada_url.join_url(base, url)
    except ValueError as error:  # a lone surrogate, which cannot be encoded, is a ValueError too
        raise errors.InvalidUrl("invalid") from error
    scheme, _, rest = parsed.partition("://")
    if scheme not in {"https", "http"}:
        raise errors.InvalidUrl("scheme")
    authority, slash, path = rest.partition("/")
    path = path.partition("#")[0]
    if "%" in path:
        path = _plain_escapes(path)
    if drop_params and "?" in path:
        path = _without(path, drop_params)
    return f"{scheme}://{_authority(authority)}{slash}{path}"


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

    Depth counts the path's segments; a segment that stands more often than `path_repeats_max` is a path in
    a loop.
    """
    if len(canonical) > limits.url_bytes_max:  # a canonical URL is ASCII
        return "too_long"
    path = path_of(canonical).partition("?")[0]
    if path.count("/") <= limits.path_repeats_max and path.count("/") <= limits.path_depth_max:
        return None
    segments = [segment for segment in path.split("/") if segment]
    if len(segments) > limits.path_depth_max:
        return "too_deep"
    if segments and max(Counter(segments).values()) > limits.path_repeats_max:
        return "repeats"
    return None


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


def _without(path: str, names: frozenset[str]) -> str:
    """`path?query` without the parameters of these names (compared as a form decodes them)."""
    path, _, query = path.partition("?")
    params = query.split("&")
    kept = [param for param in params if unquote_plus(param.partition("=")[0]) not in names]
    if len(kept) == len(params):
        return f"{path}?{query}"
    return f"{path}?{'&'.join(kept)}" if kept else path
