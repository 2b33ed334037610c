"""Registrable domains: the Public Suffix List's own tests, by the site function with its host cleaning.

They ask for the registrable domain under both sections of the list, so the rule runs with the one private suffix that
they name; where they expect none, the site is the host itself, or there is no such host.
"""

import importlib.resources
import re
from collections.abc import Iterator

from shared import errors, sites, urls
from tests import corpus
from tests.conformance.corpora import Corpus, Row

PRIVATE = ("uk.com",)
PEERS = "publicsuffixlist 78, tldextract 72"
NOTE = (
    "With the private rule uk.com, which they name; where they want no domain, the site is the host itself, or the host is "
    "refused"
)


def _host(name: str) -> str | None:
    try:
        return urls.canonical_host(name)
    except errors.InvalidUrl:
        return None


def _judged(number: int, rule: sites.Sites, host: str | None, expected: str | None) -> Row:
    cleaned = _host(host) if host else None
    found = rule.site_of_host(cleaned) if cleaned else None
    # Where no domain is expected the host stands for itself, or is no host at all.
    passed = found == (cleaned if expected is None else _host(expected))
    return Row(f"{number} {host}", passed, "" if passed else f"{expected} expected, {found} came")


def _rows(pairs: list[tuple[str | None, str | None]]) -> Iterator[Row]:
    rule = sites.Sites(PRIVATE)
    return (_judged(number, rule, host, expected) for number, (host, expected) in enumerate(pairs))


def older() -> Iterator[Row]:
    text = corpus.read("psl/test_psl.txt").decode()
    found = re.findall(r"^checkPublicSuffix\((?:'([^']*)'|null), (?:'([^']*)'|null)\);", text, re.MULTILINE)
    return _rows([(host or None, expected or None) for host, expected in found])


def newer() -> Iterator[Row]:
    lines = [line.split() for line in corpus.read("psl/tests.txt").decode().splitlines()]
    pairs = [line for line in lines if len(line) == 2 and not line[0].startswith("//")]
    return _rows([tuple(None if name == "null" else name for name in pair) for pair in pairs])  # type: ignore[misc]


def _rules(text: str) -> list[str]:
    """The rules of the list's ICANN section."""
    lines = [line.strip() for line in text.partition("// ===BEGIN PRIVATE DOMAINS===")[0].splitlines()]
    return [line for line in lines if line and not line.startswith("//")]


def lists() -> Iterator[Row]:
    """Each rule that the corpus' list and our pinned one share: the site is one label below it."""
    rule = sites.Sites()
    pinned = set(_rules((importlib.resources.files("shared") / "data" / "public_suffix_list.dat").read_text("utf-8")))
    for suffix in _rules(corpus.read("psl/public_suffix_list.dat").decode()):
        if suffix not in pinned:
            continue
        exception, name = suffix.startswith("!"), suffix.removeprefix("!").replace("*", "any")
        site = _host(name if exception else f"site.{name}")
        found = rule.site_of_host(_host(f"deep.site.{name}") or "")
        yield Row(suffix, found == site, "" if found == site else f"{site} expected, {found} came")


CORPORA = (
    Corpus("public suffix list, test_psl.txt", "psl/test_psl.txt", older, peers=PEERS, note=NOTE),
    Corpus("public suffix list, tests.txt", "psl/tests.txt", newer, peers=PEERS, note=NOTE),
    Corpus(
        "public suffix list, every ICANN rule",
        "psl/public_suffix_list.dat",
        lists,
        held=lambda: len(_rules(corpus.read("psl/public_suffix_list.dat").decode())),
        left_out="rules that are younger than the pinned list; not here: the private section, which only counts where a "
        "setting says so",
    ),
)
