"""Title, links and charset of an HTML file by lxml, and its digest by sha1sum: second readers beside the product's own.

A link is a distinct http or https URL without its fragment that an `a`, `area` or `iframe` names, unless its rel
says nofollow, or that a meta refresh leads to; an href that begins with # is no link.
"""

import base64
import codecs
import itertools
import re
import subprocess
import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lxml.html

TAGS = {"a": "href", "area": "href", "iframe": "src"}
SAFE = "/:?#[]@!$&'()*+,;=%-._~|^`{}\\"  # what stays as it is written when a link is compared
SHA1SUM = "/usr/bin/sha1sum"
FILES_AT_ONCE = 500  # of one command line


@dataclass(slots=True)
class Read:
    """What a file says."""

    title: str | None = None
    links: set[str] = field(default_factory=set)
    charset: str | None = None
    """Python's name of the charset that it declares; None: it declares none."""


def read(file: Path, url: str) -> Read:
    """Read a file as the page of this URL."""
    body = file.read_bytes()
    tree = lxml.html.document_fromstring(body, parser=lxml.html.HTMLParser(huge_tree=True))
    title = tree.find(".//title")
    return Read(
        title=None if title is None else " ".join(title.text_content().split()),
        links=_links(tree, url),
        charset=_charset(tree),
    )


def _links(tree: Any, url: str) -> set[str]:
    base = next((one.get("href") for one in tree.iter("base") if one.get("href")), "")
    place = urllib.parse.urljoin(url, base)
    named = [
        (one.get(TAGS[one.tag]) or "").strip()
        for one in tree.iter(*TAGS)
        if "nofollow" not in (one.get("rel") or "").lower().split()
    ]
    refreshes = (one for one in tree.iter("meta") if (one.get("http-equiv") or "").lower() == "refresh")
    named += [(one.get("content") or "").partition("=")[2].strip() for one in refreshes]
    targets = (urllib.parse.urldefrag(urllib.parse.urljoin(place, one))[0] for one in named if one and one[0] != "#")
    return {same(target) for target in targets if re.match("https?://[^/?]", target)}


def _charset(tree: Any) -> str | None:
    """Of the first meta element that declares one, as lxml's tree has it."""
    for one in tree.iter("meta"):
        content = one.get("content") or "" if (one.get("http-equiv") or "").lower() == "content-type" else ""
        label = one.get("charset") or content.lower().partition("charset=")[2].strip()
        if label:
            return codecs.lookup(label).name
    return None


def same(url: str) -> str:
    """One spelling of a URL, for comparison only: host in lower case, no default port, `/` for no path."""
    parts = urllib.parse.urlsplit(url)
    port = "" if parts.port in (None, {"http": 80, "https": 443}.get(parts.scheme)) else f":{parts.port}"
    path = urllib.parse.quote(urllib.parse.unquote(parts.path or "/"), safe=SAFE)
    query = urllib.parse.quote(urllib.parse.unquote(parts.query), safe=SAFE)
    return urllib.parse.urlunsplit((parts.scheme, f"{parts.hostname}{port}", path, query, ""))


def digests(files: Iterable[Path]) -> dict[Path, str]:
    """What sha1sum says of each file, spelt as WARC spells it: `sha1:` and Base32."""
    names, found = iter(sorted(set(files))), {}
    while some := list(itertools.islice(names, FILES_AT_ONCE)):
        done = subprocess.run([SHA1SUM, "--zero", "--", *some], capture_output=True, check=True, timeout=120)
        for line in done.stdout.decode().rstrip("\0").split("\0"):
            digest, _, name = line.partition("  ")
            found[Path(name)] = f"sha1:{base64.b32encode(bytes.fromhex(digest)).decode()}"
    return found
