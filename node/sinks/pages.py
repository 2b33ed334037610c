"""What a sink is given of one request, and what every sink can do; pure.

A sink has the page before its commit (P2): when `write` returns the kernel has it, when `sync` returns the disk has.
"""

import base64
import hashlib
from dataclasses import dataclass
from typing import Literal, Protocol

from node import fetch
from shared import records

Visit = Literal["first", "recrawl", "retry", "robots"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Visited:
    """One request that was sent, and what is known of its answer."""

    url: str
    site: str
    node: str
    visit: Visit
    answer: fetch.Answer
    depth: int = 0
    before: records.PageRecord | None = None
    """The page as it was known before this visit."""
    content: int | None = None
    """63-bit digest of the decoded 2xx body."""
    payload: bytes | None = None
    """SHA-1 of the body with its transfer coding removed and its content coding kept (WARC 1.1 6.3.3); None without."""
    duplicate: records.ContentRef | None = None
    """Where the same payload was fetched first, if not here."""
    rate: tuple[float, float, float] | None = None
    """Changes a day after this visit, as likely, at least and at most (`node.recrawl.rate_of`); of recrawls."""
    title: str | None = None
    links: tuple[str, ...] = ()
    charset: str | None = None
    canonical: str | None = None
    """What rel=canonical names."""
    nofollow: bool = False
    noindex: bool = False
    bad_links: int = 0


class Sink(Protocol):
    """Where pages go."""

    async def write(self, page: Visited) -> str | None:
        """Take one page; a reason why its URL is to be set aside (a handler that failed), or None."""

    def sync(self) -> None:
        """Return when the disk holds every page that was written."""

    def close(self) -> None: ...


def payload_of(raw: bytes) -> bytes:
    return hashlib.sha1(raw, usedforsecurity=False).digest()


def labelled(digest: bytes) -> str:
    """As WARC writes it: `sha1:` and Base32."""
    return f"sha1:{base32(digest)}"


def base32(digest: bytes) -> str:
    return base64.b32encode(digest).decode()
