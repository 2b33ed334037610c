"""What a crawl's archive refers to, it has: each 304 and each copy names a record that holds its body, to the moment."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from warcio import archiveiterator

from tests.node.crawler import SITE, Web, crawling, full, reply

OFTEN = {
    "enabled": True,
    "interval_min_s": 0.15,
    "interval_max_s": 0.15,
    "interval_start_s": 0.15,
    "visits_per_page_day": 1e6,
}
TAG = '"one"'
BODY = b"<title>one</title>"


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    made = Web()
    async with made.origin:
        yield made


def found(out: Path, url: str) -> list[Any]:
    """The heads of a page's responses and revisits in the order of their files."""
    heads = []
    for path in sorted(out.glob("*.warc.gz")):
        with path.open("rb") as file:
            for record in archiveiterator.ArchiveIterator(file, check_digests="raise"):
                record.content_stream().read()
                head = record.rec_headers
                if record.rec_type in {"response", "revisit"} and head.get_header("WARC-Target-URI") == full(url):
                    heads.append(head)
    return heads


def not_modified(head: Any) -> bool:
    return (head.get_header("WARC-Profile") or "").endswith("/server-not-modified")


async def test_a_304_names_the_record_that_holds_its_body_however_often_it_was_looked_at(
    store: str, web: Web, tmp_path: Path
) -> None:
    full_answer, same = reply(BODY, etag=TAG), reply(status="304 Not Modified", etag=TAG)
    web.put("/", full_answer, same, same, full_answer, same)
    async with crawling(store, web, tmp_path, recrawl=OFTEN, archive={"warc": True}) as crawl:
        await crawl.seed("/")
        await crawl.run(lambda: len(web.asked("/")) >= 5)
        look = await crawl.look()
        assert look["validators"] == 1 and look["change_rate"] is not None, "the scripts can read its record"
    heads = found(tmp_path, "/")
    body, *looks = heads
    kinds = [(head.get_header("WARC-Profile") or "response").rpartition("/")[2] for head in heads[:5]]
    assert kinds == [
        *("response", "server-not-modified", "server-not-modified"),
        *("identical-payload-digest", "server-not-modified"),
    ]
    for look in looks:
        assert look.get_header("WARC-Refers-To-Target-URI") == full("/")
        assert look.get_header("WARC-Refers-To-Date") == body.get_header("WARC-Date")
        assert look.get_header("WARC-Payload-Digest") == body.get_header("WARC-Payload-Digest")


async def test_a_page_fetched_before_there_was_an_archive_is_asked_for_in_full_once(
    valkey: str, web: Web, tmp_path: Path
) -> None:
    web.put(
        "/",
        reply(BODY, etag=TAG),
        reply(status="304 Not Modified", etag=TAG),
        reply(BODY, etag=TAG),
        reply(status="304 Not Modified", etag=TAG),
    )
    web.put("/copy", reply(BODY))
    before, after = tmp_path / "before", tmp_path / "after"
    async with crawling(valkey, web, before, recrawl=OFTEN) as crawl:
        await crawl.seed("/")
        await crawl.run(lambda: len(web.asked("/")) == 2)
    async with crawling(valkey, web, after, epoch=11, recrawl=OFTEN, archive={"warc": True}) as crawl:
        crawl.take_over(SITE)
        await crawl.seed("/copy")
        await crawl.run(lambda: len(web.asked("/")) >= 4 and len(web.asked("/copy")) >= 1)
    asked = ["if-none-match" in arrival.headers for arrival in web.asked("/")[:4]]
    assert asked == [False, True, False, True]
    holds = {
        (head.get_header("WARC-Target-URI"), head.get_header("WARC-Date"))
        for url in ("/", "/copy")
        for head in found(after, url)
        if head.get_header("WARC-Type") == "response"
    }
    for head in [*found(after, "/"), *found(after, "/copy")]:
        if head.get_header("WARC-Type") == "revisit" and not not_modified(head):
            named = head.get_header("WARC-Refers-To-Target-URI"), head.get_header("WARC-Refers-To-Date")
            assert named in holds, "its body is in this archive"
    assert any(map(not_modified, found(after, "/")))
