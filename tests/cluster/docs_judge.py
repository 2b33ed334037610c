"""The claims of the crawl of real pages, judged over what nginx, the nodes and wget have written; no process, no clock.

The node of a request is read from its user agent. Each verdict prints what it counted, so that a reader can see
that it looked at something.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.cluster import docs_pages, docs_web

AGENT = "crawlring-docs"
SAMPLE = 10  # pages shown
SHOWN = 10  # differences listed of one kind
LOG_MS = 1  # nginx cuts its times to whole milliseconds
STOP_S = 5.0  # what is in flight at a lost lease may go on this long


@dataclass(frozen=True, slots=True)
class Loss:
    """The lease that was revoked, while its node owned the site."""

    site: str
    node: str
    wall_ms: int


@dataclass(frozen=True, slots=True)
class Passes:
    """When the two passes were, on the wall clock of nginx and the nodes."""

    began_ms: int
    ended_ms: int
    """Nothing was pending."""
    again_ms: int
    """The nodes were started for the second pass."""
    last_ms: int
    """Every URL had been asked for again."""
    loss: Loss


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether one claim holds, and what was seen."""

    holds: bool
    text: str

    def __str__(self) -> str:
        return f"[{'ok' if self.holds else 'NO'}] {self.text}"


def against_wget(ours: docs_web.Answers, theirs: docs_web.Answers, files: dict[str, docs_pages.Read]) -> list[Verdict]:
    """Pages, and whatever else a link names."""
    _show_counts(ours, theirs)
    unseen, extra = theirs.pages - ours.pages, ours.pages - theirs.pages
    rest = {one.url for one in theirs} - {one.url for one in ours} - unseen
    named = rest & {link for read in files.values() for link in read.links}
    _listed("pages that wget reached and the crawl did not", unseen)
    _listed("pages that the crawl reached and wget did not", extra)
    _listed("what is no page, wget asked for it, and the crawl did not", rest)
    _listed("among it, what a link names", named)
    counted = ", ".join(
        f"{sum(docs_web.HOSTS[url.split('/')[2]] is site for url in theirs.pages)} of {site.name}"
        for site in docs_web.SITES
    )
    return [
        Verdict(bool(theirs.pages) and not unseen, f"every page that wget reached ({counted}); {len(unseen)} missing"),
        Verdict(not extra, f"no page that wget did not reach; {len(extra)} more"),
        Verdict(not named, f"of {len(rest)} other URLs that wget alone asked for, a link names {len(named)}"),
    ]


def _show_counts(ours: docs_web.Answers, theirs: docs_web.Answers) -> None:
    print(f"\n{'host':<24}{'':>14}{'requests':>10}{'pages':>8}{'moved':>8}{'404':>6}{'no page':>9}")
    for host in docs_web.HOSTS:
        for name, answers in (("the crawl", ours), ("wget", theirs)):
            here = [one for one in answers if one.host == host]
            pages = sum(url.split("/")[2] == host for url in answers.pages)
            others = sum(url.split("/")[2] == host for url in answers.others)
            count = Counter(one.status for one in here)
            print(f"{host:<24}{name:>14}{len(here):>10}{pages:>8}{count[301]:>8}{count[404]:>6}{others:>9}")


def _listed(title: str, urls: set[str]) -> None:
    if urls:
        print(f"{title}: {len(urls)}")
        print("\n".join(f"  {url}" for url in sorted(urls)[:SHOWN]))


def repeats(by_site: dict[str, list[docs_web.Request]], loss: Loss) -> Verdict:
    """The revocation explains a repeat of its owner's last request of a site, if that began about then."""
    explained, unexplained = set[str](), set[str]()
    for requests in by_site.values():
        lasts = [
            before
            for before, after in itertools.pairwise(requests)
            if node_of(before) == loss.node != node_of(after) and abs(before.start_ms - loss.wall_ms) <= STOP_S * 1000
        ]
        times = Counter(one.url for one in requests)
        for url in (url for url, count in times.items() if count > 1):
            first = next(one for one in requests if one.url == url)
            known = times[url] == 2 and any(first is one for one in lasts)
            (explained if known else unexplained).add(url)
    _listed("asked for twice, cut short by the revocation", explained)
    _listed("asked for twice, for no reason that this program knows", unexplained)
    asked = sum(len(requests) for requests in by_site.values())
    return Verdict(
        bool(asked) and not unexplained,
        f"of {asked:,} requests none asks again, but {len(explained)} cut short by the revocation; {len(unexplained)} do",
    )


def gaps(site: str, requests: Sequence[docs_web.Request], delay_s: float) -> Verdict:
    """P1 by one clock, across moves too."""
    owed_ms = round(delay_s * 1000)
    pairs = list(itertools.pairwise(requests))
    smallest_ms = min((after.start_ms - before.start_ms for before, after in pairs), default=-1)
    moves = [
        f"{node_of(before)} to {node_of(after)} {after.start_ms - before.start_ms:,} ms"
        for before, after in pairs
        if node_of(before) != node_of(after)
    ]
    text = f"{site}: the smallest of {len(pairs):,} gaps is {smallest_ms} ms of {owed_ms} ms; at moves: "
    return Verdict(smallest_ms >= owed_ms - LOG_MS, text + (", ".join(moves) or "none"))


def owners(site: str, requests: Sequence[docs_web.Request], moved_to: Iterable[str], loss: Loss) -> Verdict:
    """Runs of requests by one node, each begun by a move in the handoff log; the lost lease's site must have moved."""
    runs = [(node, len(list(run))) for node, run in itertools.groupby(requests, node_of)]
    moves = iter(moved_to)
    in_order = all(node in moves for node, _ in runs[1:])  # `in` takes from the iterator what it has passed
    left = any(before == loss.node != after for (before, _), (after, _) in itertools.pairwise(runs))
    path = ", then ".join(f"{node} {count:,}" for node, count in runs)
    return Verdict(
        bool(runs) and in_order and (left or site != loss.site),
        f"{site}: one node at a time, as the handoff log has it: {path}{_after(requests, loss)}",
    )


def _after(requests: Sequence[docs_web.Request], loss: Loss) -> str:
    """When the next owner began, if the site was the lost node's."""
    before = [one for one in requests if one.start_ms <= loss.wall_ms]
    later = [one for one in requests[len(before) :] if node_of(one) != loss.node]
    if not before or not later or node_of(before[-1]) != loss.node:
        return ""
    return f"; {node_of(later[0])} began {later[0].start_ms - loss.wall_ms:,} ms after the revocation"


def node_of(request: docs_web.Request) -> str:
    """By the user agent."""
    return request.agent.removeprefix(f"{AGENT}-").partition("/")[0]


def reading(files: dict[str, docs_pages.Read], lines: dict[str, dict[str, Any]]) -> Verdict:
    """All pages are compared with their lines, a sample spread over them is shown."""
    sample = sorted(files)[len(files) // SAMPLE // 2 :: max(1, len(files) // SAMPLE)][:SAMPLE]
    wrong = [url for url, file in files.items() if url not in lines or not _equal(lines[url], file)]
    print(f"\n{'links':>6}{'file':>6}  what the JSON Lines say, beside what lxml reads from the file")
    for url in (one for one in [*sample, *wrong[:SHOWN]] if one in lines):
        line, file = lines[url], files[url]
        title = repr(line["title"]) + ("" if line["title"] == file.title else f", file {file.title!r}")
        title += "" if file.charset in {None, line["charset"]} else f", {line['charset']}, file {file.charset}"
        verdict = "NOT EQUAL" if url in wrong else "equal"
        print(f"{len(line['links']):>6}{len(file.links):>6}  {verdict}  {url}\n{'':>14}{title}")
        links = {docs_pages.same(link) for link in line["links"]}
        for mark, some in (("+", links - file.links), ("-", file.links - links)):
            print("".join(f"{'':>14}{mark} {link}\n" for link in sorted(some)[:3]), end="")
    links = sum(len(file.links) for file in files.values())
    silent = sum(file.charset is None for file in files.values())
    return Verdict(
        bool(files) and not wrong,
        f"title, charset and {links:,} links of {len(files):,} pages as lxml reads the files "
        f"({silent} declare no charset); {len(wrong)} differ or have no line",
    )


def _equal(line: dict[str, Any], file: docs_pages.Read) -> bool:
    links = {docs_pages.same(link) for link in line["links"]}
    charset = file.charset in {None, line["charset"]}
    return charset and line["title"] == file.title and links == file.links and len(links) == len(line["links"])


def payloads(digests: dict[str, str], lines: dict[str, dict[str, Any]]) -> Verdict:
    """The payload digests of the JSON Lines, beside those of sha1sum; both by URL."""
    wrong = {url for url, digest in digests.items() if lines.get(url, {}).get("payload") != digest}
    _listed("whose payload digest is not that of the file", wrong)
    return Verdict(
        bool(digests) and not wrong,
        f"payload digests of {len(digests):,} answers as sha1sum has the files ({len(set(digests.values())):,} "
        f"distinct); {len(wrong)} differ or have no line",
    )


def scope(asked: Iterable[docs_web.Request]) -> Verdict:
    """Pages name hundreds of other sites: none of their hosts may be asked for."""
    hosts = [one.host for one in asked if one.agent.startswith(AGENT)]
    strange = set(hosts) - set(docs_web.HOSTS)
    _listed("hosts out of scope that were asked", strange)
    return Verdict(bool(hosts) and not strange, f"{len(set(hosts))} hosts were asked, {len(strange)} out of scope")


def second_pass(first: docs_web.Answers, again: docs_web.Answers, lines: Iterable[dict[str, Any]]) -> list[Verdict]:
    """What had an answer of 200 costs a 304 each, anything else what it cost before."""
    before = {one.url: one.status for one in first if not one.is_robots}
    after = Counter((one.url, one.status) for one in again if not one.is_robots)
    same = {200: 304}
    wanted = Counter({(url, same.get(status, status)): 1 for url, status in before.items()})
    _listed("asked for less than once, or answered otherwise, in the second pass", {url for url, _ in wanted - after})
    _listed("asked for more than once, or answered otherwise, in the second pass", {url for url, _ in after - wanted})
    told = Counter((line["url"], line["status"]) for line in lines)
    count = Counter(status for _, status in after.elements())
    shown = ", ".join(f"{number:,} of {status}" for status, number in sorted(count.items()))
    robots = sum(one.is_robots for one in again)
    cost = sum(one.body_bytes for one in again)
    return [
        Verdict(
            bool(count[304]) and after == wanted,
            f"second pass: every URL once, all that was 200 is a 304 ({shown}; robots.txt {robots}); "
            f"{sum((wanted - after).values()) + sum((after - wanted).values())} otherwise",
        ),
        Verdict(
            not any(one.status == 200 and not one.is_robots for one in again),
            f"bodies cost {sum(one.body_bytes for one in first) / 1e6:,.1f} MB in the first pass, "
            f"{cost / 1e6:,.1f} MB in the second (of redirects and errors)",
        ),
        Verdict(told == after, f"the JSON Lines have the same {told.total():,} answers of the second pass"),
    ]
