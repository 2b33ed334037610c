"""Which site a host belongs to: the unit of ownership, queueing and delay; pure in host and settings.

A site is the registrable domain by the Public Suffix List's ICANN section, read by `tldextract` from the
list that ships with the program and never from the network, since a ring that disagrees about one suffix
sends two nodes to one server. What has no registrable domain is a site by itself. Hosts are canonical
already (`urls.canonical`).
"""

import functools
import hashlib
import importlib.resources
from collections.abc import Callable
from typing import Any, cast

import ada_url
import tldextract

from shared import errors, urls

LIST_SHA256 = "b69315c085d53972724b8f2df111ffc329b0c84fe0a47d62c8c91655cc774a38"
"""Of data/public_suffix_list.dat; a list edited in place is refused instead of splitting the cluster."""

HOSTS_REMEMBERED = 131_072  # about 20 MB: the hosts that a node's links name over and over

AUTHORITIES_REMEMBERED = 16_384  # `host[:port]` as it stands in URLs, which saves taking it apart; 3 MB

ODD_HOSTS = (
    "example.com",
    "www.example.com",
    "a.b.example.co.uk",
    "co.uk",
    "com",
    "localhost",
    "intranet",
    "box.local",
    "a.corp",
    "b.a.corp",
    "127.0.0.1",
    "[::1]",
    "[2001:db8::1]",
    "1.2.3.4.in-addr.arpa",
    "foo.ck",
    "www.ck",
    "a.www.ck",
    "foo.kawasaki.jp",
    "a.foo.kawasaki.jp",
    "city.kobe.jp",
    "x.city.kobe.jp",
    "alice.github.io",
    "github.io",
    "a.b.blogspot.com",
    "foo.s3.amazonaws.com",
    "xn--bcher-kva.de",
    "www.xn--bcher-kva.de",
    "xn--55qx5d.cn",
    "a.xn--55qx5d.cn",
    "b.a.xn--55qx5d.cn",
    "xn--fiqs8s",
    "a.xn--fiqs8s",
    "a_b.example.org",
    "xn--e1afmkfd.xn--p1ai",
    "a.b.xn--p1ai",
    "uk.com",
    "a.uk.com",
    "a.b.uk.com",
    "a.b.c.invalid",
)
"""Hosts that site rules and library versions like to differ about; their sites are part of `Sites.digest`."""


class Sites:
    """The site rule under one choice of private suffixes; equal settings give equal answers in every process.

    `private_suffixes` (such as `github.io`, or `*.example.org`) count as public: each name below one is a
    site of its own. The rest of the list's private section does not count: all of blogspot.com is one site.
    """

    def __init__(self, private_suffixes: tuple[str, ...] = ()) -> None:
        self.private_suffixes = tuple(sorted({_canonical_suffix(suffix) for suffix in private_suffixes}))
        self._extract = _extractor(self.private_suffixes)
        self.site_of_host: Callable[[str], str] = functools.lru_cache(HOSTS_REMEMBERED)(self._find)
        """Site of a canonical host."""
        self._of_authority: Callable[[str], str] = functools.lru_cache(AUTHORITIES_REMEMBERED)(self._find_authority)

    def site_of(self, canonical_url: str) -> str:
        """Site of a canonical URL."""
        return self._of_authority(canonical_url.split("/", 3)[2])

    @functools.cached_property
    def digest(self) -> str:
        """Hex digest of the list, the settings and the rule's answers: part of the cluster's fingerprint."""
        answers = [f"{host} {self.site_of_host(host)}" for host in ODD_HOSTS]
        text = "\n".join((LIST_SHA256, *self.private_suffixes, *answers))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _find_authority(self, authority: str) -> str:
        return self.site_of_host(urls.host_of(f"https://{authority}/"))

    def _find(self, host: str) -> str:
        if host.rpartition(".")[2].isdigit():
            return host  # a canonical host that ends in a number is an IPv4 address
        parts = self._extract(host)
        if not parts.suffix:
            # The list's default rule for a top-level name it lacks: the last two labels. Single labels and IPv6
            # addresses have no more than that, and are themselves.
            return ".".join(host.split(".")[-2:])
        return f"{parts.domain}.{parts.suffix}" if parts.domain else host


def _canonical_suffix(suffix: str) -> str:
    wildcard = "*." if suffix.startswith("*.") else ""
    name = suffix.removeprefix("*.")
    try:
        host = urls.host_of(urls.canonical(f"https://{name}/"))
    except errors.InvalidUrl:
        host = ""
    if "." not in host or host.startswith("[") or host.rpartition(".")[2].isdigit() or set(name) & set("/?#@:"):
        raise errors.ConfigError(f"sites.private_suffixes: {suffix!r} is no suffix such as github.io")
    return wildcard + host


class _Pinned:
    """Stands where tldextract would put an HTTP session, and answers with the list that was read already."""

    def __init__(self, text: str) -> None:
        self.text = text

    def get(self, _url: str, *, timeout: float | None) -> "_Pinned":
        del timeout
        return self

    def raise_for_status(self) -> None:
        """The list is here."""


def _extractor(private_suffixes: tuple[str, ...]) -> tldextract.TLDExtract:
    """A reader of the pinned list; no cache folder, no network, no other list to fall back to."""
    pinned = (importlib.resources.files("shared") / "data" / "public_suffix_list.dat").read_bytes()
    found = hashlib.sha256(pinned).hexdigest()
    if found != LIST_SHA256:
        raise errors.ConfigError(f"the public suffix list is not the one this version ships (SHA-256 {found})")
    extract = tldextract.TLDExtract(
        cache_dir=None,
        suffix_list_urls=("pinned:public_suffix_list.dat",),
        fallback_to_snapshot=False,
        extra_suffixes=[ada_url.idna_to_unicode(suffix) for suffix in private_suffixes],
        cache_fetch_timeout=None,
    )
    extract("example.com", session=cast("Any", _Pinned(pinned.decode())))  # the one call that reads the list
    return extract
