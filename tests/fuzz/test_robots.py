"""robots.txt as any bytes: a verdict for every URL, a delay that is a number, in bounded time; sitemaps are not read yet."""

import math
import time

import msgspec
from hypothesis import strategies as st

from node import robots
from shared import config, records
from tests.fuzz import budget

LINES = [
    *("User-agent: *", "User-agent: bot", "user-agent:Bot/1.0", "Useragent *", "Disallow: /", "Disallow:", "Allow: /a"),
    *("Disallow: /*?", "Disallow: /*a*a*a*$", "Disallow: *$", "Allow: /%7E", "Disallow: /é", "Crawl-delay: 5"),
    *("Crawl-delay: nan", "Crawl-delay: inf", "Crawl-delay: -1", "Crawl-delay: 1e400", "Crawl-delay: 0x5", "# x", ""),
    *(
        "Sitemap: http://x/",
        "<p>Disallow: /b</p>",
        "\x00Disallow: /c",
        "Disallow: /[",
        "Disallow: /(?:",
        "Disallow: /\\",
    ),
    *(
        "Crawl-delay: 1_0",
        "Crawl-delay: ٣",
        "Disallow: %",
        "Disallow: /%ff%",
        "Disallow: $",
        "Disallow: **",
        "Request-rate: 1/0",
    ),
]
bodies = (
    st.binary(max_size=400)
    | st.lists(st.sampled_from(LINES), max_size=14).map(lambda lines: "\n".join(lines).encode())
    | st.tuples(
        st.sampled_from([b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b""]),
        st.lists(st.sampled_from(LINES) | st.text(max_size=20), max_size=10).map("\r".join),
        st.sampled_from(["utf-8", "utf-16-le", "utf-16-be", "latin-1"]),
    ).map(lambda parts: parts[0] + parts[1].encode(parts[2], "replace"))
)
paths = st.text("/a?*$%.é~[(\\ &=", max_size=30).map(lambda path: f"http://example.com/{path}")
POLITE = config.Politeness()


def parsed(body: bytes, token: str = "bot") -> robots.Rules:
    return robots.parse(records.RobotsRecord(verdict="rules", body=body), token)


@budget.tried(bodies, st.text(max_size=20), paths, share=4)
def test_every_file_has_a_verdict_for_every_url(body, token, url):
    rules = parsed(body, token)
    verdict = rules.allowed(url)
    assert verdict in {True, False}
    assert rules.allowed(url) is verdict, "remembered as it was judged"
    assert rules.allowed("http://example.com/robots.txt")
    delay_s = rules.crawl_delay_s
    assert delay_s is None or (math.isfinite(delay_s) and delay_s >= 0)


@budget.tried(bodies, paths)
def test_line_ends_and_a_final_one_change_no_verdict(body, url):
    if body[:2] in {b"\xff\xfe", b"\xfe\xff"} or b"\r" in body:
        return
    assert parsed(body).allowed(url) is parsed(body + b"\n").allowed(url)
    assert parsed(body).allowed(url) is parsed(body.replace(b"\n", b"\r\n")).allowed(url)


@budget.tried(
    st.lists(st.sampled_from(["*", "a", "/", "*a", "$", "%61", "?", "(", ".*", "b"]), min_size=1, max_size=12).map(
        "".join
    ),
    st.sampled_from(["a", "ab", "/", "%61", "a/", "?a"]),
)
def test_a_hostile_file_and_a_long_url_cost_bounded_time(pattern, piece):
    lines = "\n".join(f"Disallow: /{pattern}{n % 7}" for n in range(40))
    body = f"User-agent: *\nDisallow: /{pattern * 40}\n{lines}".encode()
    url = "http://example.com/" + piece * (2_000 // len(piece))
    began_s = time.process_time()
    parsed(body).allowed(url)
    assert time.process_time() - began_s < 1.0


SHREDS = [
    *(
        "<p>",
        "<br />",
        "</div> ",
        "<",
        ">",
        "#",
        "*",
        "$",
        "/",
        "a",
        "-",
        " ",
        "\t",
        ":",
        "\x00",
        "é",
        "\r",
        "Disallow",
        "Disallow:/",
        "%",
        "%4",
    ),
    *("User-agent", "user agent ", "Crawl-delay:", "\u2028", "\x0b", "1"),
]


@budget.tried(
    st.lists(st.sampled_from(LINES) | st.text(max_size=10), min_size=1, max_size=4).map(
        lambda lines: "\n".join([*lines, ""])
    )
    | st.lists(st.sampled_from(SHREDS), min_size=1, max_size=3).map("".join),
    st.sampled_from(["", "User-agent: *\nDisallow: /", "User-agent: "]),
    st.sampled_from(["", "x", "<p>", ">"]),
    share=0.5,
)
def test_a_file_of_the_size_limit_costs_bounded_time(piece, first, last):
    """Repeated lines, and one line that never ends."""
    room = config.Limits().robots_bytes_max
    part = piece.encode("utf-8", "surrogatepass")
    body = (first.encode() + part * (room // len(part)))[: room - len(last)] + last.encode()
    began_s = time.process_time()
    parsed(body).allowed("http://example.com/aaaa?b")
    assert time.process_time() - began_s < 5.0


headers = st.just(())
outcomes = st.one_of(
    st.builds(
        records.Fetched,
        status=st.integers(200, 999),
        headers=headers,
        body=bodies,
        truncated=st.sampled_from([None, "size", "time", "connection", "encoding"]),
    ),
    st.builds(records.NotModified),
    st.builds(records.Redirected, status=st.sampled_from([301, 302, 308]), location=st.text(max_size=9)),
    st.builds(records.Refused, reason=st.text(max_size=9)),
    st.builds(records.Failed, reason=st.text(max_size=9)),
)
times_ms = st.integers(0, 2**52)
known = st.none() | st.builds(
    records.RobotsRecord,
    verdict=st.sampled_from(["rules", "allow", "disallow"]),
    body=bodies,
    status=st.integers(0, 999),
    fetched_ms=times_ms,
    expires_ms=times_ms,
    good_ms=times_ms,
)


@budget.tried(outcomes, known, times_ms)
def test_whatever_the_answer_was_there_is_a_record_that_ends_and_reads_back(outcome, previous, now_ms):
    kept = robots.record_of(
        outcome,
        previous,
        now_ms=now_ms,
        robots_ttl_s=POLITE.robots_ttl_s,
        robots_error_ttl_s=POLITE.robots_error_ttl_s,
        robots_bytes_max=100,
    )
    assert now_ms < kept.expires_ms <= now_ms + POLITE.robots_ttl_s * 1000
    assert kept.verdict != "rules" or kept.good_ms <= now_ms or (previous and kept.good_ms == previous.good_ms)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(kept), type=records.RobotsRecord) == kept
    robots.parse(kept, "bot").allowed("http://example.com/x")
