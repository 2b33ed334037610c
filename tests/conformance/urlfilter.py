"""Nutch's samples of URL filters, put into our rules and judged by `shared.scope`.

A Nutch file is a list of `+pattern` and `-pattern` in which the first match decides; ours is two lists, of which deny
wins. A file can be put into them where no `-` follows a `+` but the last line; all four are such files.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from shared import config, scope, urls
from tests import corpus
from tests.conformance.corpora import Corpus, Row

FILES = ("Benchmarks", "IntranetCrawling", "WholeWebCrawling", "nutch1838")
LOOP = r".*(/.+?)/.*?\1/.*?\1/"
"""Refers back to what it found, which cannot be done in linear time: said as `limits.path_repeats_max` here."""


@dataclass
class Converted:
    """One Nutch file in our words."""

    allow: list[str] = field(default_factory=list)
    deny: list[str] = field(default_factory=list)
    allow_rest: bool = False
    limits: config.Limits | None = None

    def accepts(self, url: str) -> bool:
        """What our rules make of a URL as it stands: these rows are judged before any canonical form."""
        if scope.Rules(self.deny, setting="scope.deny").pattern(url):
            return False
        if self.limits is not None and url.startswith("http") and urls.refusal(url, self.limits) is not None:
            return False
        return self.allow_rest or bool(scope.Rules(self.allow, setting="scope.allow").pattern(url))


def converted(text: str) -> Converted:
    """Our rules for a file of Nutch's; `> host` to `<` holds for that host alone."""
    found, host = Converted(), ""
    for line in text.splitlines():
        if line.startswith(">"):
            host = rf"^[a-z]+://{re.escape(line[1:].strip())}[:/].*"
        elif line.startswith("<"):
            host = ""
        elif line[:1] in {"+", "-"}:
            sign, pattern = line[0], line[1:]
            if pattern == ".":
                found.allow_rest = sign == "+"
            elif pattern == LOOP:
                found.limits = config.Limits(path_repeats_max=2)
            elif sign == "+":
                found.allow.append(f"~{host}{pattern}")
            else:
                assert host or not found.allow, "a '-' after a '+' is no list of two kinds"
                found.deny.append(f"~{host}{pattern}")
    return found


def rows() -> Iterator[Row]:
    for name in FILES:
        rules = converted(corpus.read(f"urlfilter/nutch/{name}.rules").decode())
        for line in corpus.read(f"urlfilter/nutch/{name}.urls").decode().splitlines():
            wanted, url = line[0] == "+", line[1:]
            came = rules.accepts(url)
            yield Row(f"{name} {line}", came == wanted, f"expected {wanted}, came {came}")


CORPORA = (
    Corpus(
        "nutch urlfilter-regex",
        "urlfilter/nutch",
        rows,
        peers="Nutch: all, its own samples",
        note="The rule sets are written down anew in our two lists; the one back-reference among the rules, which no "
        "linear-time engine has, is said as limits.path_repeats_max = 2",
    ),
)
