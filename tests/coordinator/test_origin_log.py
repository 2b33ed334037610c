"""The origins' log is judged exactly: what was asked for, what should not have been, and every gap."""

import json

import pytest

from coordinator import origin_log
from coordinator.small_web import Kind, Page, Robots, Site, Web

WEB = Web(
    (
        Site(
            "a.test",
            ("a.test", "www.a.test"),
            Robots.RULES,
            (
                Page("http://a.test/", Kind.PAGE),
                Page("http://www.a.test/1", Kind.PAGE),
                Page("http://a.test/private/1", Kind.PRIVATE),
            ),
            seeded=True,
        ),
        Site("slow.test", ("slow.test",), Robots.SLOW, (Page("http://slow.test/", Kind.PAGE),), seeded=True),
    )
)


def ledger(*requests: tuple[float, str, int] | tuple[float, str, int, int]) -> origin_log.Ledger:
    made = origin_log.Ledger(WEB, minimum_s=0.5)
    for boot_s, url, status, *late in requests:
        host = url.split("/")[2]
        site = "a.test" if "a.test" in host else "slow.test" if host == "slow.test" else None
        line = {
            "boot_s": boot_s,
            "late_ms": sum(late),
            "wall_ms": 0,
            "site": site,
            "url": url,
            "status": status,
            "conditional": False,
        }
        made.add(json.dumps(line).encode() + b"\n")
    return made


def test_a_polite_whole_crawl_has_nothing_missing_and_no_short_gap():
    seen = ledger(
        (0.0, "http://a.test/robots.txt", 200),
        (0.5, "http://a.test/", 200),
        (0.6, "http://slow.test/robots.txt", 200),
        (1.2, "http://www.a.test/1", 200),
        (1.7, "http://slow.test/", 200),
        (1.9, "http://a.test/", 304),
    )
    assert (seen.missing(), seen.trespasses(), seen.short) == ([], [], [])
    assert (seen.found, seen.wanted, seen.again, seen.not_modified, seen.requests) == (3, 3, 1, 1, 6)
    assert seen.smallest is not None
    assert (seen.smallest.site, seen.smallest.ratio) == ("a.test", 1.0)


@pytest.mark.parametrize(
    ("second_s", "url", "short"),
    [
        (0.499, "http://a.test/", True),
        (0.5, "http://a.test/", False),
        (0.499, "http://www.a.test/1", True),
        (0.1, "http://slow.test/", False),
    ],
)
def test_a_gap_is_short_by_site_not_by_host(second_s: float, url: str, *, short: bool):
    assert bool(ledger((0.0, "http://a.test/robots.txt", 200), (second_s, url, 200)).short) is short


def test_a_site_that_asked_for_more_is_owed_more():
    seen = ledger((0.0, "http://slow.test/robots.txt", 200), (0.9, "http://slow.test/", 200))
    assert [(gap.site, gap.required_s) for gap in seen.short] == [("slow.test", 1)]


def test_missing_forbidden_and_invented_pages_are_told():
    seen = ledger(
        (0.0, "http://a.test/private/1", 200), (1.0, "http://a.test/x", 404), (1.0, "http://other.test/", 421)
    )
    assert seen.trespasses() == ["http://a.test/private/1", "http://a.test/x", "http://other.test/"]
    assert seen.missing() == ["http://a.test/", "http://www.a.test/1", "http://slow.test/"]


@pytest.mark.parametrize(
    ("first", "second", "short"),
    [
        ((1.0, 0), (1.45, 0), True),
        ((1.0, 90), (1.45, 0), False),  # arrived at 0.91: the node had given up before it was read
        ((1.0, 30), (1.45, 0), True),
        ((1.0, 0), (1.55, 90), True),  # arrived at 1.46
        ((1.0, 10), (1.495, 0), True),  # too little to be told from a tick
        ((1.0, 0), (1.505, 10), False),
        ((1.0, 0), (1.505, 18), True),  # arrived at 1.497 at the latest
    ],
)
def test_a_gap_is_taken_between_arrivals_where_the_origins_were_busy(
    first: tuple[float, int], second: tuple[float, int], *, short: bool
):
    url = "http://a.test/"
    assert bool(ledger((first[0], url, 200, first[1]), (second[0], url, 200, second[1])).short) is short
