"""Finds the parts of a site that have no end: patterns of URLs whose pages show nothing new any more.

A page is *alike* if it has nothing that earlier pages of its pattern had not: no text (digits, names of months and
days, and words of its own host and query apart), no image, and no link to a new page of a pattern that has been
worth visiting. That is Broder's containment ("On the resemblance and containment of documents", 1997) in the union of
the earlier pages, by runs of text between tags. Resemblance of whole pages would not do: two products of one shop
differ by ten words in a thousand, and two views of one filter by their order.

It knows no clock and no store. Memory is bounded, and a node's own: what it finds is kept in the site's record.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from node import shapes, visible
from shared import urls

FREE_PAGES: Final = 32  # of a pattern, before anything of its pages is looked at
SAME_PAGES: Final = 32  # looked at, all of them the very same: enough to say so
ALIKE_RATIO: Final = 0.95
WIDE_FACTOR: Final = 2  # so many times the pages before a shape that takes in much else is judged
WORTH_RATIO: Final = 0.5  # of a pattern's looked at pages with new text, for a link to it to be something new
WORTH_PAGES: Final = 8
NEW_CHARS_MIN: Final = 10  # of new text: a name in a title and a heading
MOSTLY_NEW_RATIO: Final = 0.2  # of a page's text; a pattern of such pages is looked at ever more rarely,
EVERY_MAX: Final = 64  # down to one page in so many
LINKS_MAX: Final = 300  # of a page, and of the new ones so many asked about
NEW_LINKS_MAX: Final = 32
SEEN_BYTES: Final = 16_384  # 131,072 bits: at a quarter full it starts anew
SEEN_BITS_MAX: Final = 32_768
PATTERNS_MAX: Final = 16_384  # remembered, about 6 MB
WATCHED_MAX: Final = 512  # of them with a record of what was seen, 8 MB
ENDLESS_MAX: Final = 64  # kept of one site


class Verdict(NamedTuple):
    """What is to be done about the pages like the one that was just seen."""

    word: Literal["fine", "suspect", "endless"]
    """suspect: its links wait behind all others of the site; endless: no URL of `pattern` is asked for any more."""
    pattern: str = ""
    """What goes into the site's record; told again for each page of it that still comes."""
    shape: str = ""
    """The same for people: `example.com/events?month`."""


FINE: Final = Verdict("fine")


def is_endless(url: str, site: str, endless: Sequence[str]) -> bool:
    """Whether a canonical URL has a pattern that its site's record calls endless; free where that is empty."""
    return bool(endless) and not set(endless).isdisjoint(shapes.patterns_of(url, site))


def with_endless(endless: Sequence[str], pattern: str) -> tuple[str, ...]:
    """The record's patterns and one more, the oldest given up beyond what one site may have."""
    return (*(one for one in endless if one != pattern), pattern)[-ENDLESS_MAX:]


@dataclass(slots=True)
class _Seen:
    """Hashes of what a pattern's pages have shown, as bits: what is told as seen may be new (rarely), never else."""

    bits: bytearray = field(default_factory=lambda: bytearray(SEEN_BYTES))
    count: int = 0

    def new(self, value: int) -> bool:
        """Note a hash; whether it was not there before."""
        at, bit = (value >> 3) % SEEN_BYTES, 1 << (value & 7)
        if self.bits[at] & bit:
            return False
        if self.count >= SEEN_BITS_MAX:
            self.bits, self.count = bytearray(SEEN_BYTES), 0
        self.bits[at] |= bit
        self.count += 1
        return True


@dataclass(slots=True)
class _Kind:
    """One pattern: how many pages, and of the looked at ones, newest in the lowest bit, which were alike."""

    pages: int = 0
    looked: int = 0
    alike: int = 0
    same: int = 0
    texts: int = 0
    """Which had new text."""
    every: int = 1
    skipped: int = 0
    seen: _Seen | None = None
    hosts: set[int] | None = None
    """Of a pattern for any host: which were counted."""


class _Page:
    """One page's text and links, read at the first question and once."""

    def __init__(self, url: str, read: Callable[[], str], links: Sequence[str]) -> None:
        self.url = url
        self.links = links
        self._read = read
        self._runs: dict[str, None] | None = None
        self.images: list[str] = []

    @property
    def runs(self) -> dict[str, None]:
        if self._runs is None:
            self._runs, self.images = visible.content_of(self._read(), self.url, self.links)
        return self._runs


class Watch:
    """Counts the pages of a node by pattern, and looks closer where there are many."""

    def __init__(self, *, alike_max: int) -> None:
        self._window = max(alike_max - FREE_PAGES, 16)
        """So many pages in a row are judged by."""
        self._kinds: OrderedDict[str, _Kind] = OrderedDict()
        self._watched: OrderedDict[str, _Kind] = OrderedDict()

    def saw(self, site: str, url: str, read: Callable[[], str], links: Sequence[str]) -> Verdict:
        """Take one page that was answered with 200 and HTML.

        `read` gives its decoded text, and is called only if its pattern is under watch; `links` are canonical.
        """
        page = _Page(url, read, links)
        worst = FINE
        for place, shape in enumerate(shapes.shapes_of(url, site)):
            pattern = shapes.digest(shape)
            kind = self._kind(pattern)
            if shape.startswith(shapes.ANY_HOST) and not _counts(kind, hash(urls.host_of(url))):
                continue
            kind.pages += 1
            if kind.pages <= FREE_PAGES or not self._looks(pattern, kind):
                continue
            wide = place > 0 and not shape.startswith(shapes.ANY_HOST)
            self._look(kind, page, site)
            word = _judged(kind, self._window * (WIDE_FACTOR if wide else 1))
            if word == "endless":
                return Verdict(word, pattern, shape)
            if word == "suspect" and worst.word == "fine":
                worst = Verdict(word, pattern, shape)
        return worst

    def _kind(self, pattern: str) -> _Kind:
        kind = self._kinds.get(pattern)
        if kind is None:
            kind = self._kinds[pattern] = _Kind()
            if len(self._kinds) > PATTERNS_MAX:
                self._watched.pop(self._kinds.popitem(last=False)[0], None)
        else:
            self._kinds.move_to_end(pattern)
        return kind

    def _looks(self, pattern: str, kind: _Kind) -> bool:
        """Whether this page of a pattern under watch is looked at: rarely, where they are mostly new."""
        kind.skipped += 1
        if kind.skipped < kind.every:
            return False
        kind.skipped = 0
        if kind.seen is None:
            kind.seen = _Seen()
            self._watched[pattern] = kind
            if len(self._watched) > WATCHED_MAX:
                forgotten = self._watched.popitem(last=False)[1]
                forgotten.seen, forgotten.every = None, 1
                forgotten.looked = forgotten.alike = forgotten.same = forgotten.texts = 0
        self._watched.move_to_end(pattern)
        return True

    def _look(self, kind: _Kind, page: _Page, site: str) -> None:
        seen = kind.seen
        assert seen is not None
        new_chars = sum(len(run) for run in page.runs if seen.new(hash(run)))
        known = not seen.new(hash(frozenset(page.runs)))
        new_image = sum(seen.new(hash(image)) for image in page.images) > 0
        new_link = self._has_new_link(seen, page, site)
        alike = new_chars < NEW_CHARS_MIN and not new_image and not new_link
        kind.looked += 1
        kind.alike = _shifted(kind.alike, self._window * WIDE_FACTOR, bit=alike)
        kind.same = _shifted(kind.same, SAME_PAGES, bit=alike and known)
        kind.texts = _shifted(kind.texts, SAME_PAGES, bit=new_chars >= NEW_CHARS_MIN or new_image)
        mostly_new = new_chars > MOSTLY_NEW_RATIO * sum(map(len, page.runs))
        kind.every = min(kind.every * 2, EVERY_MAX) if mostly_new and kind.looked > WORTH_PAGES else 1

    def _has_new_link(self, seen: _Seen, page: _Page, site: str) -> bool:
        """Whether it leads to a new page of a pattern that is worth visiting; another site's always is.

        Links to its own pattern are none, nor are those to its own path with other parameters, or to a longer one:
        a filter's.
        """
        own = set(shapes.patterns_of(page.url, site))
        path, query, _ = page.url.partition("?")
        below = f"{path.rstrip('/')}/"
        fresh = [link for link in page.links[:LINKS_MAX] if seen.new(hash(link))]
        for link in fresh[:NEW_LINKS_MAX]:
            if link.partition("?")[0] == path or (not query and below.count("/") > 3 and link.startswith(below)):
                continue
            host = link.split("/", 3)[2].partition(":")[0]
            if host != site and not host.endswith(f".{site}"):
                return True
            patterns = shapes.patterns_of(link, site)
            if own.isdisjoint(patterns) and all(self._is_worth(pattern) for pattern in patterns):
                return True
        return False

    def _is_worth(self, pattern: str) -> bool:
        """By the text of its pages alone: two patterns that show nothing but links to each other are worth nothing."""
        kind = self._kinds.get(pattern)
        if kind is None or kind.looked < WORTH_PAGES:
            return True
        return kind.texts.bit_count() >= WORTH_RATIO * min(kind.looked, SAME_PAGES)


def _counts(kind: _Kind, host: int) -> bool:
    """Whether a host is the first time here: of a pattern for any host each counts once."""
    if kind.hosts is None:
        kind.hosts = set()
    if host in kind.hosts or len(kind.hosts) > FREE_PAGES * 32:
        return False
    kind.hosts.add(host)
    return True


def _shifted(bits: int, window: int, *, bit: bool) -> int:
    return (bits << 1 | bit) & ((1 << window) - 1)


def _judged(kind: _Kind, window: int) -> Literal["fine", "suspect", "endless"]:
    if kind.looked >= SAME_PAGES and kind.same.bit_count() >= ALIKE_RATIO * SAME_PAGES:
        return "endless"
    if _alike(kind, window):
        return "endless"
    return "suspect" if _alike(kind, window // 2) else "fine"


def _alike(kind: _Kind, window: int) -> bool:
    """Whether as many of the newest pages were alike as the ratio says."""
    newest = kind.alike & ((1 << window) - 1)
    return kind.looked >= window and newest.bit_count() >= ALIKE_RATIO * window
