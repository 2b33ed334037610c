"""Field cases of the archive, as warcio reads it: digests of the payload, and headers that agree with their body."""

import base64
import gzip
import hashlib
from collections.abc import Iterator
from typing import Any

from warcio import archiveiterator

from tests.field.stage import Scene, case, outcomes
from tests.field.test_http import PAGE, chunked, head

KIND = "Content-Type: text/html"


def responses(scene: Scene) -> Iterator[tuple[str, Any, bytes]]:
    """(URL, record, the body with its codings undone) of every page's response; all digests of the archive are right."""
    files = sorted(scene.out.glob("*.warc.gz"))
    assert files, "a closed archive has its name"
    for path in files:
        with path.open("rb") as file:
            for record in archiveiterator.ArchiveIterator(file, check_digests="raise"):
                url = record.rec_headers.get_header("WARC-Target-URI")
                body = record.content_stream().read()
                assert record.digest_checker.passed in {True, None}
                if record.rec_type == "response" and record.http_headers.get_statuscode() == "200":
                    yield url, record, body


@case("warc-chunked-digest")
async def test_framing_is_no_part_of_the_payload(scene: Scene) -> None:
    coded = gzip.compress(PAGE, mtime=0)
    gzipped = "Content-Encoding: gzip"
    scene.put("/length", head(f"Content-Length: {len(coded)}", gzipped, KIND) + coded)
    scene.put("/chunked", head("Transfer-Encoding: chunked", gzipped, KIND) + chunked(coded[:50], coded[50:]))
    async with scene.crawl(archive={"warc": True, "dedup": False}) as crawl:
        await scene.seed(crawl, "/length", "/chunked")
        await crawl.run()
        assert outcomes(crawl, scene.url("/chunked")) == ["fetched"]
    found = {url: record.rec_headers.get_header("WARC-Payload-Digest") for url, record, _ in responses(scene)}
    wanted = f"sha1:{base64.b32encode(hashlib.sha1(coded).digest()).decode()}"
    assert found == {scene.url("/length"): wanted, scene.url("/chunked"): wanted}


@case("warc-header-body-mismatch")
async def test_headers_in_the_archive_agree_with_the_body_kept(scene: Scene) -> None:
    coded = gzip.compress(PAGE)
    answers = {
        "/chunked": head("Transfer-Encoding: chunked", KIND) + chunked(PAGE[:100], PAGE[100:]),
        "/gzip": head(f"Content-Length: {len(coded)}", "Content-Encoding: gzip", KIND) + coded,
        "/both": head("Transfer-Encoding: chunked", "Content-Encoding: gzip", KIND) + chunked(coded),
    }
    for path, answer in answers.items():
        scene.put(path, answer)
    async with scene.crawl(archive={"warc": True, "dedup": False}) as crawl:
        await scene.seed(crawl, *answers)
        await crawl.run()
    seen = {}
    for url, record, body in responses(scene):
        headers = record.http_headers
        assert body == PAGE, "any reader has the page"
        assert headers.get_header("Transfer-Encoding") is None
        raw = PAGE if headers.get_header("Content-Encoding") is None else coded
        assert headers.get_header("Content-Length") == str(len(raw))
        seen[url] = headers.get_header("X-Archive-Orig-Transfer-Encoding"), headers.get_header("Content-Encoding")
    assert seen == {
        scene.url("/chunked"): ("chunked", None),
        scene.url("/gzip"): (None, "gzip"),
        scene.url("/both"): ("chunked", "gzip"),
    }
