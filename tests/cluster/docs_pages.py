"""Title and links of an HTML file by the standard library alone: a second reader beside the product's own.

A link is a distinct http or https URL without its fragment that an `a`, `area` or `iframe` names, unless its rel
says nofollow; an href that begins with # is no link.
"""

import html.parser
import re
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path

TAGS = {"a": "href", "area": "href", "iframe": "src"}
SAFE = "/:?#[]@!$&'()*+,;=%-._~|^`{}\\"  # what stays as it is written when a link is compared


@dataclass(slots=True)
class Read:
    """What a file says."""

    title: str | None = None
    links: set[str] = field(default_factory=set)


class _Reader(html.parser.HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self.read = Read()
        self._url = url
        self._title: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "title" and self.read.title is None:
            self._title = []
        if tag not in TAGS or "nofollow" in (given.get("rel") or "").lower().split():
            return
        target = (given.get(TAGS[tag]) or "").strip()
        if target and not target.startswith("#"):
            self._add(target)

    def handle_data(self, data: str) -> None:
        if self._title is not None:
            self._title.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "title" and self._title is not None:
            self.read.title = " ".join("".join(self._title).split())
            self._title = None

    def _add(self, target: str) -> None:
        url, _ = urllib.parse.urldefrag(urllib.parse.urljoin(self._url, target))
        if re.match("https?://[^/?]", url):
            self.read.links.add(same(url))


def read(file: Path, url: str) -> Read:
    """Read a file as the page of this URL."""
    reader = _Reader(url)
    reader.feed(file.read_text(encoding="utf-8", errors="replace"))
    reader.close()
    return reader.read


def same(url: str) -> str:
    """One spelling of a URL, for comparison only: host in lower case, no default port, `/` for no path."""
    parts = urllib.parse.urlsplit(url)
    port = "" if parts.port in (None, {"http": 80, "https": 443}.get(parts.scheme)) else f":{parts.port}"
    path = urllib.parse.quote(urllib.parse.unquote(parts.path or "/"), safe=SAFE)
    query = urllib.parse.quote(urllib.parse.unquote(parts.query), safe=SAFE)
    return urllib.parse.urlunsplit((parts.scheme, f"{parts.hostname}{port}", path, query, ""))
