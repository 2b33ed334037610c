"""Sitemaps and feeds of crawler-commons and Scrapy: what they name, read by the product's own reader."""

import datetime as dt
from collections.abc import Iterator

from node import sitemaps
from shared import config
from tests import corpus
from tests.conformance.corpora import Corpus, Row

NOW_MS = round(dt.datetime(2026, 11, 30, tzinfo=dt.UTC).timestamp() * 1000)
LIMITS = config.Limits()
PORTALS = (10260, 2, 10080, 10140, 10340, 10400, 10430, 10440, 10450, 10460, 10470, 10480, 10490, 10550, 10570)

# File -> (the sitemap's own URL, kind, how many URLs, what must be among them: (URL, lastmod or "")).
# The numbers are those of crawler-commons' own tests, or were counted in the file where they have none.
FILES: dict[str, tuple[str, str, int, tuple[tuple[str, str], ...]]] = {
    "rss/feed.rss": (
        "https://www.example.com/index.php?feed/rss",
        "rss",
        4,
        (
            ("https://www.example.com/blog/post/1", "2009-09-06T16:20:00+00:00"),
            ("https://www.example.com/guid.html", ""),
            ("https://www.example.com/foo?q=a&l=en", ""),
            ("https://www.example.com/foo?q=a&l=fr", ""),
        ),
    ),
    "rss/xmlRss_pubDate.xml": (
        "http://www.example.com/rss.xml",
        "rss",
        7,
        (
            *((f"http://www.example.com/article_{n}", f"2017-01-05T12:34:5{n}+00:00") for n in (1, 2, 3, 4)),
            *((f"http://www.example.com/article_{n}", "") for n in (5, 6, 7)),
        ),
    ),
    "sitemaps/atom.xml": (
        "http://example.org/atom.xml",
        "atom",
        1,
        (("http://example.org/2003/12/13/atom03", "2003-12-13T18:30:02+00:00"),),
    ),
    "sitemaps/do-not-visit.txt": (
        "http://www.example.com/do-not-visit.txt",
        "text",
        1,
        (("http://www.example.com/do-not-visit-here", ""),),
    ),
    "sitemaps/extension/hebdenbridgetimes-articles-sitemap.xml": (
        "http://www.hebdenbridgetimes.co.uk/sitemap.xml",
        "urlset",
        74,
        (
            (
                "http://www.hebdenbridgetimes.co.uk/news/local/video-tour-de-yorkshire-in-calderdale-1-7242580",
                "2015-05-03T18:51:50+01:00",
            ),
        ),
    ),
    "sitemaps/extension/pagemaps-sitemap.xml": (
        "http://www.example.com/sitemap.xml",
        "urlset",
        2,
        (("http://www.example.com/foo", ""), ("http://www.example.com/bar", "")),
    ),
    "sitemaps/extension/shinpaideshou-news-sitemap.xml": (
        "https://shinpaideshou.wordpress.com/news-sitemap.xml",
        "urlset",
        3,
        (
            (
                "https://shinpaideshou.wordpress.com/2017/04/25/job-opening-reischauer-policy-research-fellow/",
                "",
            ),
        ),
    ),
    "sitemaps/extension/sitemap-images.xml": (
        "http://www.example.com/sitemap.xml",
        "urlset",
        1,
        (("http://www.example.com/images/some_image_landing_page.html", ""),),
    ),
    "sitemaps/extension/sitemap-links.xml": (
        "http://www.example.com/sitemap.xml",
        "urlset",
        3,
        tuple((f"http://www.example.com/{name}/", "") for name in ("english", "deutsch", "schweiz-deutsch")),
    ),
    "sitemaps/extension/sitemap-mobile.xml": (
        "http://www.example.com/sitemap.xml",
        "urlset",
        3,
        (("http://www.example.com/no-mobile/", ""),),
    ),
    "sitemaps/extension/sitemap-news.xml": (
        "http://www.example.org/sitemap.xml",
        "urlset",
        2,
        (("http://www.example.org/business/article55.html", ""),),
    ),
    "sitemaps/extension/sitemap-videos-tvshow.xml": (
        "https://example.org/sitemap.xml",
        "urlset",
        1,
        (("https://example.org/my-tv-show/23/13/", ""),),
    ),
    "sitemaps/extension/sitemap-videos.xml": (
        "http://www.example.com/sitemap.xml",
        "urlset",
        3,
        (("http://www.example.com/videos/some_video_landing_page.html", ""),),
    ),
    "sitemaps/sitemap-with-bom.txt": (
        "http://www.domain.com/sitemap.txt",
        "text",
        2,
        (("http://www.domain.com/page1.html", ""), ("http://www.domain.com/page2.html", "")),
    ),
    "sitemaps/sitemap.badns.xml": (
        "http://www.example.com/sitemap.badns.xml",
        "urlset",
        2,
        (("http://www.example.com/1", ""), ("http://www.example.com/2", "")),
    ),
    "sitemaps/sitemap.index.xml": (
        "http://www.example.com/sitemap.index.xml",
        "index",
        15,
        tuple((f"https://example.com/sitemap.jss?portalCode={number}&lang=en", "") for number in PORTALS),
    ),
    "sitemaps/sitemap.ns.xml": (
        "http://www.example.com/sitemap.ns.xml",
        "urlset",
        2,
        (("http://www.example.com/1", ""), ("http://www.example.com/2", "")),
    ),
    "sitemaps/sitemap.txt": (
        "http://www.domain.com/sitemap.txt",
        "text",
        2,
        (("http://www.domain.com/page1.html", ""), ("http://www.domain.com/page2.html", "")),
    ),
    "sitemaps/sitemap.txt.gz": (
        "http://www.example.com/sitemap.txt.gz",
        "text",
        5,
        (("http://www.example.com/catalog?item=83&desc=vacation_usa", ""),),
    ),
    "sitemaps/xmlSitemap.gz": (
        "http://www.example.com/sitemap.xml.gz",
        "urlset",
        5,
        (
            ("http://www.example.com/", "2005-01-02T00:00:00+00:00"),  # a day counts to its end
            ("http://www.example.com/catalog?item=12&desc=vacation_hawaii", ""),
            ("http://www.example.com/catalog?item=74&desc=vacation_newfoundland", "2004-12-23T18:00:15+00:00"),
        ),
    ),
}


def read(body: bytes, url: str) -> sitemaps.Sitemap | None:
    return sitemaps.read(
        body,
        url=url,
        content_type=None,
        now_ms=NOW_MS,
        bytes_max=LIMITS.sitemap_bytes_max,
        urls_max=LIMITS.sitemap_urls_max,
    )


def crawler_commons() -> Iterator[Row]:
    for name, (url, kind, count, among) in FILES.items():
        found = read(corpus.read(f"sitemaps/crawler-commons/{name}"), url)
        entries = found.entries + found.children if found else ()
        told = {entry.url: entry.changed_ms for entry in entries}
        wanted = {
            target: round(dt.datetime.fromisoformat(day).timestamp() * 1000) if day else 0 for target, day in among
        }
        good = (
            found is not None
            and (found.kind, len(entries), found.fault) == (kind, count, None)
            and all(told.get(target) == changed_ms for target, changed_ms in wanted.items())
        )
        yield Row(name, good, "" if good else f"{kind} of {count} with {wanted}, got {found}")


KINDS = ("sitemaps", "sitemaps_from_robots")


def scrapy() -> Iterator[Row]:
    for case in corpus.load("sitemaps/scrapy/sitemap_cases.json")["sitemaps"]:
        found = read(corpus.octets(case["body"].get("text", case["body"])), "http://www.example.com/sitemap.xml")
        told = [entry.url for entry in found.entries + found.children] if found else []
        wanted = [item["loc"] for item in case["items"]]
        kind = {"sitemapindex": "index"}.get(case["type"], case["type"]) if wanted else None
        good = told == wanted and (found.kind if found else None) == kind
        yield Row(case["test"], good, "" if good else f"{kind} {wanted}, got {found}")


CORPORA = [
    Corpus(
        name="sitemaps, crawler-commons",
        source="sitemaps/crawler-commons",
        rows=crawler_commons,
        peers="crawler-commons 20 (its own files)",
    ),
    Corpus(
        name="sitemaps, scrapy",
        source="sitemaps/scrapy/sitemap_cases.json",
        rows=scrapy,
        held=lambda: sum(len(corpus.load("sitemaps/scrapy/sitemap_cases.json")[key]) for key in KINDS),
        peers="Scrapy 11 (its own rows)",
        left_out="the one row of robots.txt lines; of the others lastmod, changefreq, priority and"
        " alternates as raw text, which are no part of what is read here",
    ),
]
