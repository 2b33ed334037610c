"""robots.txt is read as RFC 9309 says, and an answer to it is worth what section 2.3.1 says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node import robots
from shared import records

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


@pytest.mark.parametrize("many", [0, 500])
def test_verdicts_are_remembered_in_bounded_room_where_they_took_long(many: int) -> None:
    rules = rules_of("User-agent: *\nDisallow: /x1\n" + "".join(f"Disallow: /*no{number}\n" for number in range(many)))
    assert rules.slow is bool(many)
    for _ in "twice":
        for number in range(robots.VERDICTS_MAX + 10):
            assert rules.allowed(f"/x{number}") is not str(number).startswith("1")
    assert len(rules._verdicts) <= robots.VERDICTS_MAX
    assert bool(rules._verdicts) is bool(many)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/a", (False, 3)),
        ("/a/b", (True, 6)),
        ("/a/b/c.gif", (False, 8)),
        ("/x.gif", (False, 8)),
        ("/x", (True, None)),
        ("/robots.txt", (True, None)),
        ("/both", (True, 11)),
    ],
)
def test_the_line_that_decided_is_told(path: str, why: tuple[bool, int | None]) -> None:
    lines = [
        "# 1",
        "User-agent: *",
        "Disallow: /a",
        "",
        "Disallow: /a",
        "Allow: /a/b",
        "Sitemap: x",
        "Disallow: *.gif$",
    ]
    lines += ["User-agent: *\rDisallow: /both", "Allow: /both"]
    assert rules_of("\r\n".join(lines)).why(f"http://h.example{path}") == why


def test_sitemaps_are_those_of_the_whole_file_as_canonical_urls_each_once_and_a_hundred_at_most() -> None:
    body = "sitemap: http://H.example/a.xml#x\nUser-agent: x\nSITEMAP : /b.xml\nDisallow: /\nSitemap:\nSitemap: ftp://h/c\n"
    body += (
        "Sitemap: http://H.example/a.xml\nSitemap: http://[\nhttp://h.example/sitemap2.xml\nhttps://h.example/other\n"
    )
    record = records.RobotsRecord(verdict="rules", body=body.encode())
    found = robots.parse(record, "ourbot", origin="https://o.example").sitemaps
    assert found == ("http://h.example/a.xml", "https://o.example/b.xml", "http://h.example/sitemap2.xml")
    assert robots.parse(record, "ourbot").sitemaps == (found[0], found[2])
    assert robots.parse(record, "x", origin="https://o.example").sitemaps == found
    many = rules_of("".join(f"Sitemap: http://h.example/{number}\n" for number in range(300)))
    assert len(many.sitemaps) == 100


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


def test_what_lies_beyond_500_kib_is_cut_at_the_end_of_a_line() -> None:
    """Half of `Disallow: /late` may be `Disallow: /`."""
    body = b"User-agent: *\nDisallow: /early\n" + b"# padding\n" * 51_195 + b"# more\nDisallow: /late\n"
    assert body[: 500 * 1024].endswith(b"\nDisallow: /l")
    stored = record(fetched(200, body))
    assert len(stored.body) == 500 * 1024 - len("Disallow: /l")
    rules = robots.parse(stored, "ourbot")
    assert not rules.allowed("/early")
    assert rules.allowed("/late")
    assert len(record(fetched(200, b"#" * 600 * 1024)).body) == 500 * 1024
    torn = record(fetched(200, b"User-agent: *\nDisallow: /a\nDisallow: /", "size"))
    assert robots.parse(torn, "ourbot").allowed("/b")


@pytest.mark.parametrize(("status", "verdict"), [(401, "disallow"), (403, "disallow"), (404, "allow"), (451, "allow")])
def test_forbidden_may_be_taken_for_the_opposite(status: int, verdict: str) -> None:
    found = robots.record_of(fetched(status), record(fetched(200)), now_ms=DAY_MS, robots_forbidden="deny", **NUMBERS)
    assert (found.verdict, found.good_ms, found.expires_ms) == (verdict, 0, 2 * DAY_MS)
    assert robots.named(found) == ("forbidden" if verdict == "disallow" else "allow")
    assert robots.named(record(fetched(status))) == ("forbidden_allowed" if verdict == "disallow" else "allow")


@pytest.mark.parametrize(
    ("found", "reason", "name"),
    [
        (record(fetched(200)), "robots", "rules"),
        (record(fetched(503)), "robots_unreachable", "unreachable"),
        (record(records.Failed(reason="dns")), "robots_unreachable", "unreachable"),
        (record(fetched(503), record(fetched(200))), "robots", "last_good"),
        (record(records.Failed(reason="dns"), record(fetched(200))), "robots", "last_good"),
        (record(records.Redirected(status=301, location="/")), "robots", "allow"),
        (records.RobotsRecord(verdict="disallow", moved_to="http://b.example/robots.txt", moved_ms=1), "robots_elsewhere", "elsewhere"),
    ],
)  # fmt: skip
def test_an_answer_has_a_name_and_a_refusal_its_reason(found: records.RobotsRecord, reason: str, name: str) -> None:
    assert (robots.refusal(found), robots.named(found)) == (reason, name)
    assert name in robots.NAMES


@pytest.mark.parametrize(
    ("value", "hours"),
    [
        ("max-age=7200", 2),
        ("public, Max-Age=7200", 2),
        ('max-age="7200", max-age=99999', 2),
        ("max-age=9999999999", 24),
        ("max-age=864000", 24),
        ("max-age=60", 1),
        ("no-cache", 1),
        ("private,no-store", 1),
        ("s-maxage=7200", 24),
        ("x-max-age=7200", 24),
        ("no-cachet", 24),
        ("max-age=", 24),
        ("", 24),
    ],
)
def test_cache_control_shortens_down_to_an_hour_and_lengthens_nothing(value: str, hours: int) -> None:
    said = (("Date", "x"), ("cache-CONTROL", value))
    for outcome in (
        records.Fetched(status=200, headers=said, body=b""),
        records.Fetched(status=404, headers=said, body=b""),
        records.NotModified(headers=said),
    ):
        found = record(outcome, record(fetched(200)))
        assert found.expires_ms - DAY_MS == hours * HOUR_MS
    assert record(records.Fetched(status=500, headers=said, body=b"")).expires_ms == DAY_MS + HOUR_MS


def test_allow_and_disallow_answers_need_no_body() -> None:
    assert robots.parse(records.RobotsRecord(verdict="allow"), "ourbot").allowed("/x")
    closed = robots.parse(records.RobotsRecord(verdict="disallow"), "ourbot")
    assert not closed.allowed("/x")
    assert closed.allowed("/robots.txt")
