"""What stands in the few elements of a sitemap or a feed that matter, in one pass over its bytes; pure.

No tree is built and no entity expanded (there is nothing that could): time is linear and memory flat whatever a body
holds, and a fault costs the entry it stands in. Elements are known by their local names, lower or upper case, and by
the root's prefix or none, which passes over extensions such as `image:loc`; wrong namespaces change nothing.
"""

import re
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

from shared import errors, urls

Kind = Literal["urlset", "index", "rss", "atom", "text"]

FIELD_BYTES_MAX: Final = 8_192  # of one element's text: no URL that is asked for is longer, escapes counted
FIELD_PIECES_MAX: Final = 64  # of an element's text, between what parts it (comments, CDATA sections)
KINDS: Final[dict[bytes, Kind]] = {
    b"urlset": "urlset",
    b"sitemapindex": "index",
    b"rss": "rss",
    b"rdf": "rss",
    b"feed": "atom",
}
STEPS_PER_URL_MAX: Final = 20  # tags that matter, comments and CDATA sections of one entry; six are usual
_ENTRY: Final[dict[Kind, bytes]] = {"urlset": b"url", "index": b"sitemap", "rss": b"item", "atom": b"entry"}
_FIELDS: Final[dict[Kind, tuple[bytes, ...]]] = {
    "urlset": (b"loc", b"lastmod"),
    "index": (b"loc", b"lastmod"),
    "rss": (b"link", b"guid", b"pubdate", b"date"),
    "atom": (b"updated", b"modified", b"published", b"issued"),
}
_DATES: Final = (b"lastmod", b"pubdate", b"date", b"updated", b"modified", b"published", b"issued")
_PREFIX: Final = rb"(?:(?P<prefix>[A-Za-z0-9_.-]{1,40}+):)?"
# No `<` stands in an attribute's value, so no try reads beyond the next one: time is linear.
_ATTRIBUTES: Final = rb"""(?P<attributes>(?:[^<>"']++|"[^"<]*+"|'[^'<]*+')*+)>"""
_ROOT = re.compile(rb"<" + _PREFIX + rb"(?P<name>urlset|sitemapindex|rss|rdf|feed)(?=[\s/>])", re.IGNORECASE)
_DOCTYPE = re.compile(rb"<!doctype[^<>\[]*+(?P<subset>\[)?", re.IGNORECASE)
_SUBSET_END = re.compile(rb"\][\t\n\r ]{0,64}>")
_ATTRIBUTE = re.compile(rb"""([A-Za-z:]{1,20})\s{0,20}=\s{0,20}(?:"([^"]*+)"|'([^']*+)')""")
_REFERENCE = re.compile(r"&(?:#([0-9]{1,7})|#[xX]([0-9A-Fa-f]{1,6})|([A-Za-z][A-Za-z0-9._-]{0,40}));")
_PREDEFINED: Final = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}


def _scanner(kind: Kind) -> re.Pattern[bytes]:
    """Finds the next tag of this kind's elements, comment, CDATA section or instruction, whatever is before it."""
    names = b"|".join((_ENTRY[kind], *_FIELDS[kind], *((b"link", b"source") if kind == "atom" else ())))
    tag = rb"(?P<close>/?)" + _PREFIX + rb"(?P<name>" + names + rb")(?=[\s/>])"
    ahead = rb"/?(?:[A-Za-z0-9_.-]{1,40}+:)?(?:" + names + rb")[\s/>]|!--|!\[CDATA\[|\?"
    return re.compile(
        rb"(?P<text>[^<]*+(?:<(?!" + ahead + rb")[^<]*+)*+)"
        rb"(?:<(?:(?P<raw>!--|!\[CDATA\[|\?)|" + tag + _ATTRIBUTES + rb")|(?P<broken><)|\Z)",
        re.IGNORECASE,
    )


_SCANNERS: Final[dict[Kind, re.Pattern[bytes]]] = {kind: _scanner(kind) for kind in _ENTRY}
_ENDS: Final = {b"!--": b"-->", b"![CDATA[": b"]]>", b"?": b"?>"}


class Said(NamedTuple):
    """One entry as written; `fault` alone is the end of what could be read."""

    url: str = ""
    date: str = ""
    base: str | None = None
    fault: str | None = None


class Scan:
    """One pass over the markup from behind the root's name on."""

    def __init__(
        self, body: bytes, at: int, *, codec: str, kind: Kind, prefix: bytes, base: str, urls_max: int
    ) -> None:
        self._body = body
        self._at = at
        self._codec = codec
        self._kind: Kind = kind
        self._prefixes = {b"", prefix}
        self._base = base
        self._steps = (urls_max + 1) * STEPS_PER_URL_MAX
        self._entry: dict[bytes, str] | None = None
        """The fields of the entry that is open."""
        self._field: bytes | None = None
        """The element whose text is read."""
        self._text: list[str] = []
        self._text_bytes = 0
        self._wrapped = False
        """A `url` element inside `loc`, as some generators write."""
        self._aside = False
        """Inside an Atom `source`, whose link is another feed's."""

    def entries(self) -> Iterator[Said]:
        scanner, body = _SCANNERS[self._kind], self._body
        while self._at < len(body):
            if self._steps <= 0:
                yield Said(fault="urls")
            self._steps -= 1
            found = scanner.match(body, self._at)
            assert found is not None  # the pattern ends in alternatives that match anything
            self._at = found.end()
            if self._field is not None:
                text, tag, _ = found["text"].partition(b"<")
                # What the body's end cuts is another URL, or another date.
                whole = tag or self._at < len(body) or found["name"] or found["raw"] or found["broken"]
                self._keep(text if whole else b"")
            if found["raw"] is not None:
                if not self._skip(found["raw"].upper()):
                    yield from self._end_entry()
                    yield Said(fault="markup")
            elif found["name"] is not None:
                yield from self._tag(found)
        done = self._entry is None and self._field is None
        yield from self._end_entry()
        if not done or not re.search(rb"</[^<>]{1,60}>\s{0,64}(?:<!--[^<>]{0,4096}-->\s{0,64})?\Z", body[-4_400:]):
            yield Said(fault="markup")

    def _keep(self, piece: bytes, *, raw: bool = False) -> None:
        if not piece or self._text_bytes > FIELD_BYTES_MAX or len(self._text) >= FIELD_PIECES_MAX:
            return
        self._text_bytes += len(piece)
        text = piece[: FIELD_BYTES_MAX + 1].decode(self._codec, "replace")
        self._text.append(text if raw or "&" not in text else _REFERENCE.sub(_referred, text))

    def _skip(self, opening: bytes) -> bool:
        """Pass a comment, CDATA section or instruction; False where it has no end."""
        end = self._body.find(_ENDS[opening], self._at)
        if end < 0:
            self._field = None
            self._at = len(self._body)
            return False
        if opening == b"![CDATA[" and self._field is not None:
            self._keep(self._body[self._at : min(end, self._at + FIELD_BYTES_MAX + 1)], raw=True)
        self._at = end + len(_ENDS[opening])
        return True

    def _tag(self, found: re.Match[bytes]) -> Iterator[Said]:
        name = found["name"].lower()
        prefix = (found["prefix"] or b"").lower()
        if prefix not in self._prefixes and (prefix, name) != (b"dc", b"date"):
            return
        opens, alone = not found["close"], found["attributes"].endswith(b"/")
        if name == _ENTRY[self._kind]:
            yield from self._entry_tag(found, opens=opens and not alone)
        elif name == b"source":
            self._aside = opens and not alone
        elif self._kind == "atom" and name == b"link":
            if opens and not self._aside:
                self._atom_link(found)
        elif opens and not alone and self._entry is not None and not self._aside:
            self._end_field()
            self._field, self._text, self._text_bytes = name, [], 0
        elif not opens and name == self._field:
            self._end_field()

    def _entry_tag(self, found: re.Match[bytes], *, opens: bool) -> Iterator[Said]:
        if self._field == b"loc" and opens and not "".join(self._text).strip():
            self._wrapped = True
        elif self._wrapped and not opens:
            self._wrapped = False
        else:
            yield from self._end_entry()
            if opens:
                self._entry = {}
                base = based(attributes_of(found, self._body, self._codec), self._base)
                if base != self._base:
                    self._entry[b"base"] = base
                if self._kind == "index":  # some write the URL where its `loc` should be
                    self._field, self._text, self._text_bytes = b"bare", [], 0

    def _atom_link(self, found: re.Match[bytes]) -> None:
        if self._entry is None or b"link" in self._entry:
            return
        said = attributes_of(found, self._body, self._codec)
        if said.get("rel", "alternate").strip().lower() == "alternate" and said.get("href", "").strip():
            self._entry[b"link"] = said["href"].strip()

    def _end_field(self) -> None:
        if self._field is not None and self._entry is not None and self._text_bytes <= FIELD_BYTES_MAX:
            text = "".join(self._text).strip()
            if text:
                self._entry.setdefault(self._field, text)
        self._field, self._wrapped = None, False

    def _end_entry(self) -> Iterator[Said]:
        self._end_field()
        entry, self._entry, self._aside = self._entry, None, False
        if not entry:
            return
        target = entry.get(b"loc") or entry.get(b"link") or ""
        if not target:  # a guid is a URL unless it says otherwise, and often even then
            target = next((entry[n] for n in (b"guid", b"bare") if entry.get(n, "").lower().startswith("http")), "")
        if target:
            date = next((entry[name] for name in _DATES if name in entry), "")
            yield Said(target, date, entry.get(b"base", self._base))


def root_of(body: bytes) -> tuple[re.Match[bytes] | None, int]:
    """The root element's opening, if it is one of ours, and where its name ends."""
    at = 0
    while at < len(body):
        at = body.find(b"<", at)
        if at < 0:
            break
        if body.startswith((b"<?", b"<!--"), at):
            end = b"?>" if body[at + 1 : at + 2] == b"?" else b"-->"
            at = body.find(end, at)
            if at < 0:
                break
            at += len(end)
            continue
        doctype = _DOCTYPE.match(body, at)
        if doctype is None:
            root = _ROOT.match(body, at)
            return root, root.end() if root else 0
        if doctype["subset"] is None:
            at = doctype.end()
        else:  # entities are declared here: all of it is passed over, and what refers to them is left out
            end_of_subset = _SUBSET_END.search(body, doctype.end())
            if end_of_subset is None:
                break
            at = end_of_subset.end()
    return None, 0


def attributes_of(tag: re.Match[bytes], body: bytes, codec: str) -> dict[str, str]:
    raw = tag.groupdict().get("attributes")
    if raw is None:  # the root, of which only the name was read
        raw = body[tag.end() : tag.end() + FIELD_BYTES_MAX].partition(b">")[0]
    return {
        name.decode().lower(): _REFERENCE.sub(_referred, (double or single).decode(codec, "replace"))
        for name, double, single in _ATTRIBUTE.findall(raw[:FIELD_BYTES_MAX])
    }


def based(attributes: dict[str, str], url: str) -> str:
    """The URL that relative ones are resolved against: `xml:base`, else the one around it."""
    said = attributes.get("xml:base")
    if not said:
        return url
    try:
        return urls.canonical(said, url)
    except errors.InvalidUrl:
        return url


def _referred(found: re.Match[str]) -> str:
    """What a character or entity reference stands for; nothing for an entity that the document itself declares."""
    if found[3] is not None:
        return _PREDEFINED.get(found[3], "")
    code = int(found[1]) if found[1] else int(found[2], 16)
    return chr(code) if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"
