"""robots.txt is read as RFC 9309 says, and an answer to it is worth what section 2.3.1 says."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node import robots
from shared import records
from tests import corpus

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NUMBERS = {"robots_ttl_s": 86_400.0, "robots_error_ttl_s": 3_600.0, "robots_bytes_max": 500 * 1024}


def rules_of(body: str | bytes, token: str = "ourbot") -> robots.Rules:
    raw = body.encode("utf-8", "surrogateescape") if isinstance(body, str) else body
    return robots.parse(records.RobotsRecord(verdict="rules", body=raw), token)


def record(outcome: records.Outcome, previous: records.RobotsRecord | None = None, *, now_ms: int = DAY_MS):
    return robots.record_of(outcome, previous, now_ms=now_ms, **NUMBERS)


def fetched(status: int, body: bytes = b"User-agent: *\nDisallow: /x\n", truncated: str | None = None):
    return records.Fetched(status=status, headers=(), body=body, truncated=truncated)


@pytest.mark.parametrize(
    ("body", "url", "allowed"),
    [
        ("", "/anything", True),
        ("User-agent: *\nDisallow: /", "/robots.txt", True),
        ("User-agent: *\nDisallow: /", "https://h.example/robots.txt?x=1", True),
        ("User-agent: *\nDisallow: /", "/robots.txt.bak", False),
        ("User-agent: OURBOT\nDisallow: /a\nUser-agent: *\nDisallow: /", "/b", True),
        (
            "User-agent: ourbot\nDisallow: /a\n\nUser-agent: x\nDisallow: /\n\nUser-agent: ourbot\nDisallow: /b",
            "/b",
            False,
        ),
        ("User-agent: our\nDisallow: /", "/", True),
        ("User-agent: ourbot-news\nDisallow: /", "/", True),
        ("User-agent: ourbot/2.1 (x)\nDisallow: /", "/", False),
        (
            "User-agent: ourbot\nSitemap: https://h.example/s.xml\nCrawl-delay: 3\nUser-agent: x\nDisallow: /",
            "/",
            False,
        ),
        ("User-agent: ourbot\nUnknown: 1\nUser-agent: x\nDisallow: /", "/", False),
        ("User-agent: *\nDisallow: /p\nAllow: /p/q", "/p/q/r", True),
        ("User-agent: *\nDisallow: /p\nAllow: /p", "/p", True),
        ("User-agent: *\nDisallow: /*.gif$", "/a/b.gif", False),
        ("User-agent: *\nDisallow: /*.gif$", "/a/b.gif?x", True),
        ("User-agent: *\nDisallow:\n", "/", True),
        ("User-agent: *\rDisallow: /cr", "/cr", False),
        ("User-agent: *\nDisallow: /a\u2028Allow: /a", "/a", True),
        ("User-agent: *\nDisallow: /caf\u00e9", "/caf%C3%A9", False),
        ("User-agent: *\nDisallow: /a b", "/a%20b", False),
        ("User-agent: *\nDisallow: //twice", "https://h.example//twice", False),
        ("User-agent: *\nDisallow: /?q", "https://h.example?q", False),
        ("<html><pre>\nUser-agent: *<br>\nDisallow: /x<br />\n</pre>", "/x", False),
        ("Disallow: /x\nUser-agent: *\nDisallow: /y", "/x", True),
        ("User-agent *\nDisallow /x", "/x", False),
    ],
)
def test_a_small_file_says(body: str, url: str, allowed: bool) -> None:
    assert rules_of(body).allowed(url) is allowed


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_no_part_of_the_first_line(codec: str) -> None:
    assert not rules_of("User-agent: *\nDisallow: /x".encode(codec)).allowed("/x")


def test_nul_bytes_and_bytes_that_are_not_utf8_do_not_hide_the_rules_behind_them() -> None:
    rules = rules_of(b"User-agent: \xff\xfebot\nDisallow: /q\nUser\x00-agent: *\nDisallow: /caf\xe9\nDisallow: /x\n")
    assert not rules.allowed("/x")
    assert not rules.allowed("/caf%E9")
    assert rules.allowed("/caf")


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ("User-agent: *\nCrawl-delay: 10", 10.0),
        ("User-agent: *\nCrawl-delay: 0.5\nDisallow: /", 0.5),
        ("User-agent: *\nCrawl-delay: 2\nCrawl-delay: 7", 7.0),
        ("User-agent: *\nCrawl-delay: [5]", None),
        ("User-agent: *\nCrawl-delay: -1", None),
        ("User-agent: *\nCrawl-delay: inf", None),
        ("User-agent: *\nCrawl-delay: nan", None),
        ("User-agent: x\nCrawl-delay: 10", None),
        ("Crawl-delay: 10", None),
        ("User-agent: *\nCrawl-delay: 10\nUser-agent: ourbot\nDisallow: /y", None),
    ],
)
def test_crawl_delay_is_our_groups_largest(body: str, seconds: float | None) -> None:
    assert rules_of(body).crawl_delay_s == seconds


@given(st.binary(max_size=400), st.text(max_size=30))
def test_no_bytes_and_no_path_raise(body: bytes, path: str) -> None:
    rules = rules_of(b"User-agent: *\n" + body)
    assert rules.allowed("/" + path) in {True, False}


@given(
    st.lists(st.sampled_from(["/a", "/b*c", "/d$", "/%41", "/e f", "*"]), max_size=6),
    st.sampled_from(["/a", "/bxc", "/d", "/A"]),
)
def test_a_group_of_our_own_makes_everybodys_rules_irrelevant(patterns: list[str], path: str) -> None:
    everybody = "".join(f"Disallow: {pattern}\n" for pattern in patterns)
    assert rules_of(f"User-agent: *\n{everybody}User-agent: ourbot\nAllow: /zzz\n").allowed(path)


def test_verdicts_are_remembered_in_bounded_room() -> None:
    rules = rules_of("User-agent: *\nDisallow: /x1")
    for number in range(robots.VERDICTS_MAX + 10):
        assert rules.allowed(f"/x{number}") is not str(number).startswith("1")
    assert len(rules._verdicts) <= robots.VERDICTS_MAX


def test_google_rows_agree_but_for_three_that_contradict_the_rfc() -> None:
    """063, 065 and 066 want escapes compared as written; RFC 9309 2.2.2 decodes and encodes before comparing."""
    rows = [row for row in corpus.load("robots/google_robots_cases.json")["allowed"] if not row["google_only"]]
    wrong = {row["id"] for row in rows if rules_of(row["robots"], row["agent"]).allowed(row["url"]) != row["allowed"]}
    assert len(rows) == 72
    assert wrong == {"google-063", "google-065", "google-066"}


def test_crawler_commons_rows_agree_but_for_what_is_no_product_token_or_no_rule() -> None:
    """283 to 285 ask with a whole user-agent header; 317 wants a site given up for a long Crawl-delay: we cap it."""
    rows = [
        row
        for row in corpus.load("robots/crawler_commons_robots_cases.json")["cases"]
        if row["exact_agent_match"] and len(row["agents"]) == 1 and "allowed" in row
    ]
    wrong = set()
    for row in rows:
        body = base64.b64decode(row["robots_base64"]) if "robots_base64" in row else row["robots"]
        if rules_of(body, row["agents"][0]).allowed(row["url"]) != row["allowed"]:
            wrong.add(row["id"])
    assert len(rows) >= 301
    assert wrong == {"cc-283", "cc-284", "cc-285", "cc-317"}


def test_crawler_commons_delays_agree() -> None:
    rows = [
        row
        for row in corpus.load("robots/crawler_commons_robots_cases.json")["cases"]
        if row["exact_agent_match"] and len(row["agents"]) == 1 and "crawl_delay_ms" in row
    ]
    wrong = []
    for row in rows:
        seconds = rules_of(row["robots"], row["agents"][0]).crawl_delay_s
        if (None if seconds is None else seconds * 1000) != row["crawl_delay_ms"]:
            wrong.append((row["id"], seconds, row["crawl_delay_ms"]))
    # 289 asks with a whole user-agent header, as 283 to 285 do.
    assert wrong == [("cc-289", None, 20_000)]


def test_protego_rows_agree_but_for_loose_agents_and_unknown_lines() -> None:
    """Ten rows take a token for its beginning (hedwig for hedwig-new) or let an unknown line end a group:
    RFC 9309 2.2.1 and 2.2.4 say otherwise.
    """
    rows = corpus.load("robots/protego_cases.json")["cases"]
    wrong = set()
    for row in rows:
        rules = rules_of(row["robots"], row["agent"])
        if "allowed" in row and rules.allowed(row["url"]) != row["allowed"]:
            wrong.add(row["id"])
        if "crawl_delay" in row and rules.crawl_delay_s != row["crawl_delay"]:
            wrong.add(row["id"])
    known = {131, 256, 257, 258, 268, 334, 340, 341, 343, 344}
    assert wrong <= {f"protego-{number}" for number in known}


@pytest.mark.parametrize(
    ("outcome", "verdict", "after_ms"),
    [
        (fetched(200), "rules", DAY_MS),
        (fetched(204, b""), "rules", DAY_MS),
        (fetched(200, truncated="size"), "rules", DAY_MS),
        (fetched(401), "allow", DAY_MS),
        (fetched(404), "allow", DAY_MS),
        (fetched(410), "allow", DAY_MS),
        (records.Redirected(status=301, location="/loop"), "allow", DAY_MS),
        (fetched(300), "allow", DAY_MS),
        (fetched(429), "disallow", HOUR_MS),
        (fetched(500), "disallow", HOUR_MS),
        (fetched(503), "disallow", HOUR_MS),
        (fetched(999), "disallow", HOUR_MS),
        (fetched(200, truncated="time"), "disallow", HOUR_MS),
        (fetched(200, truncated="connection"), "disallow", HOUR_MS),
        (fetched(200, truncated="encoding"), "disallow", HOUR_MS),
        (records.NotModified(), "disallow", HOUR_MS),
        (records.Failed(reason="dns"), "disallow", HOUR_MS),
        (records.Failed(reason="timeout"), "disallow", HOUR_MS),
        (records.Refused(reason="private_address"), "disallow", HOUR_MS),
    ],
)
def test_a_first_answer_is_worth(outcome: records.Outcome, verdict: str, after_ms: int) -> None:
    found = record(outcome)
    assert (found.verdict, found.expires_ms - found.fetched_ms, found.fetched_ms) == (
        verdict,
        after_ms,
        DAY_MS,
    )
    assert (found.good_ms > 0) is (verdict == "rules")


@pytest.mark.parametrize("outcome", [fetched(503), records.Failed(reason="connect"), fetched(200, b"", "connection")])
def test_the_last_good_copy_serves_while_the_origin_is_unreachable_and_30_days_at_most(
    outcome: records.Outcome,
) -> None:
    good = record(fetched(200))
    for day in (2, 31):
        kept = record(outcome, good, now_ms=day * DAY_MS)
        assert (kept.verdict, kept.body, kept.good_ms) == ("rules", good.body, good.good_ms)
        assert kept.expires_ms == day * DAY_MS + HOUR_MS
        good = kept
    assert record(outcome, good, now_ms=32 * DAY_MS).verdict == "disallow"


def test_a_404_after_rules_lifts_them_and_forgets_the_copy() -> None:
    lifted = record(fetched(404), record(fetched(200)), now_ms=2 * DAY_MS)
    assert lifted.verdict == "allow"
    assert record(fetched(500), lifted, now_ms=3 * DAY_MS).verdict == "disallow"


def test_304_renews_the_copy() -> None:
    good = record(fetched(200))
    again = record(records.NotModified(), good, now_ms=2 * DAY_MS)
    assert (again.verdict, again.body, again.good_ms, again.expires_ms) == (
        "rules",
        good.body,
        2 * DAY_MS,
        3 * DAY_MS,
    )


def test_what_lies_beyond_500_kib_is_cut() -> None:
    body = b"User-agent: *\nDisallow: /early\n#" + b"x" * 500 * 1024 + b"\nDisallow: /late\n"
    stored = record(fetched(200, body))
    assert len(stored.body) == 500 * 1024
    rules = robots.parse(stored, "ourbot")
    assert not rules.allowed("/early")
    assert rules.allowed("/late")


def test_allow_and_disallow_answers_need_no_body() -> None:
    assert robots.parse(records.RobotsRecord(verdict="allow"), "ourbot").allowed("/x")
    closed = robots.parse(records.RobotsRecord(verdict="disallow"), "ourbot")
    assert not closed.allowed("/x")
    assert closed.allowed("/robots.txt")
