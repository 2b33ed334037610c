"""robots.txt: verdicts, delays, sitemaps, names and paths of three other parsers' own tests."""

import base64
import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from node import robots, robots_rules
from shared import config, errors, records
from tests import corpus
from tests.conformance.corpora import Corpus, Row

GOOGLE = "robots/google_robots_cases.json"
COMMONS = "robots/crawler_commons_robots_cases.json"
PROTEGO = "robots/protego_cases.json"
AGAINST_RFC = frozenset({"google-063", "google-065", "google-066"})


def rules_of(row: dict[str, Any], token: str) -> robots.Rules:
    """The file of a row as read for this token."""
    if "robots_base64" in row:
        body = base64.b64decode(row["robots_base64"])
    else:
        body = row["robots"].encode("utf-8", "surrogateescape")
    record = records.RobotsRecord(verdict="rules", body=body)
    return robots.parse(record, token, origin="http://domain.com")


def compared(name: str, found: object, wanted: object) -> Row:
    return Row(name, found == wanted, "" if found == wanted else f"{wanted!r} expected, {found!r} came")


def google(keep: Callable[[dict[str, Any]], bool]) -> Callable[[], Iterator[Row]]:
    def rows() -> Iterator[Row]:
        for row in filter(keep, corpus.load(GOOGLE)["allowed"]):
            yield compared(row["id"], rules_of(row, row["agent"]).allowed(row["url"]), row["allowed"])

    return rows


def google_paths() -> Iterator[Row]:
    """The path that rules are matched with; a canonical URL has a scheme, so rows without one are not judged."""
    for row in corpus.load(GOOGLE)["path_of_url"]:
        if "//" in row["url"] or row["url"] == "":
            yield compared(row["url"] or "(empty)", robots.path_of(row["url"]), row["path"])


def google_escapes() -> Iterator[Row]:
    for row in corpus.load(GOOGLE)["pattern_escape"]:
        yield compared(row["pattern"], robots_rules.normal(row["pattern"], pattern=True), row["escaped_latin1"])


def google_tokens() -> Iterator[Row]:
    """A user agent is accepted whose product token is the whole of what Google takes as one."""
    for number, row in enumerate(corpus.load(GOOGLE)["valid_agent_tokens"]):
        agent = f"{row['token']}/1.0 (+https://example.org/bot)"
        accepted = False
        with contextlib.suppress(errors.ConfigError):
            config.require_user_agent(config.Config(identity=config.Identity(user_agent=agent)))
            accepted = config.product_token(agent.strip()) == row["token"]
        yield compared(f"{number} {row['token']}", accepted, row["valid"])


def commons(rows: Iterable[dict[str, Any]]) -> Iterator[Row]:
    for row in rows:
        rules = rules_of(row, row["agents"][0])
        if "allowed" in row:
            yield compared(row["id"], rules.allowed(row["url"]), row["allowed"])
        if "crawl_delay_ms" in row:
            delay_ms = None if rules.crawl_delay_s is None else rules.crawl_delay_s * 1000
            yield compared(f"{row['id']} delay", delay_ms, row["crawl_delay_ms"])
        if "sitemap_count" in row:
            yield compared(f"{row['id']} sitemaps", len(rules.sitemaps), row["sitemap_count"])
        if "first_sitemap" in row:
            yield compared(f"{row['id']} sitemap", rules.sitemaps[:1], (row["first_sitemap"],))


def _exact(row: dict[str, Any]) -> bool:
    return bool(row["exact_agent_match"]) and len(row["agents"]) == 1


def commons_verdicts() -> Iterator[Row]:
    return commons(row for row in corpus.load(COMMONS)["cases"] if _exact(row) and "allowed" in row)


def commons_others() -> Iterator[Row]:
    return commons(row for row in corpus.load(COMMONS)["cases"] if _exact(row) and "allowed" not in row)


def commons_held(*, verdicts: bool) -> int:
    return sum(("allowed" in row) == verdicts for row in corpus.load(COMMONS)["cases"])


def protego() -> Iterator[Row]:
    for row in corpus.load(PROTEGO)["cases"]:
        rules = rules_of(row, row["agent"])
        if "allowed" in row:
            yield compared(row["id"], rules.allowed(row["url"]), row["allowed"])
        if "crawl_delay" in row:
            yield compared(f"{row['id']} delay", rules.crawl_delay_s, row["crawl_delay"])


CORPORA = [
    Corpus(
        name="robots.txt verdicts, Google, standard rows",
        source=GOOGLE,
        rows=google(lambda row: not row["google_only"] and row["id"] not in AGAINST_RFC),
        held=lambda: sum(not row["google_only"] for row in corpus.load(GOOGLE)["allowed"]),
        peers="of 72: robotspy 69, Protego 62, stdlib 50",
        left_out="063, 065 and 066: they want escapes compared as written; RFC 9309 2.2.2 decodes and encodes first",
    ),
    Corpus(
        name="robots.txt verdicts, Google, its own leniencies",
        source=GOOGLE,
        rows=google(lambda row: bool(row["google_only"])),
        gate=72,
        peers="of 73: robotspy 70, Protego 69, stdlib 38",
        note="040 fails: it asks with the name `Foo Bar`, which is no product token; a node that is given it does not start",
    ),
    Corpus(
        name="robots.txt paths of URLs, Google",
        source=GOOGLE,
        rows=google_paths,
        held=lambda: len(corpus.load(GOOGLE)["path_of_url"]),
        left_out="URLs without a scheme: what is asked of robots.txt here is always whole",
    ),
    Corpus(name="robots.txt escapes in patterns, Google", source=GOOGLE, rows=google_escapes),
    Corpus(name="robots.txt product tokens, Google", source=GOOGLE, rows=google_tokens),
    Corpus(
        name="robots.txt verdicts, crawler-commons",
        source=COMMONS,
        rows=commons_verdicts,
        gate=297,
        held=lambda: commons_held(verdicts=True),
        peers="of 301: Protego 285, robotspy 257, stdlib 236",
        left_out="its old matching by beginnings of names, which RFC 9309 does away with, and several names at once",
        note="283 to 285 fail: they ask with a whole user-agent header for a name. 317 fails: it wants a site given up for"
        " a long Crawl-delay; ours is cut to a ceiling",
    ),
    Corpus(
        name="robots.txt delays and sitemaps, crawler-commons",
        source=COMMONS,
        rows=commons_others,
        gate=19,
        held=lambda: commons_held(verdicts=False),
        left_out="as above; and what there is no such thing for here (defer visits)",
        note="289 fails: a whole user-agent header for a name",
    ),
    Corpus(
        name="robots.txt verdicts and delays, Protego",
        source=PROTEGO,
        rows=protego,
        gate=374,
        held=lambda: len(corpus.load(PROTEGO)["cases"]),
        peers="of 398: Protego 398",
        left_out="request rates and visit times, which are no part of the standard",
        note="131, 268, 334, 340, 341, 343 and 344 fail: they ask with names that are no product token, or want a group"
        " whose name only begins like ours, against RFC 9309 2.2.1; 256 to 258 fail: there an unknown line ends a group,"
        " against 2.2.4 and google-019. Protego in turn fails google-019",
    ),
]
