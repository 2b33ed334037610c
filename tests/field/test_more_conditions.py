"""More validators of an odd web, beside the listed cases: what goes back to the server, and what its answer means."""

import pytest

from tests.field.stage import Scene, reply
from tests.field.test_conditional import counts, unchanged

BODY = b"<title>t</title>the same text as ever"


@pytest.mark.parametrize(
    ("name", "value", "back"),
    [
        ("etag", "abc", "abc"),
        ("etag", 'W/""', 'W/""'),
        ("etag", '"', '"'),
        ("etag", '"a,b"', '"a,b"'),
        ("etag", "", None),
        ("etag", '"' + "x" * 2_000 + '"', None),
        ("last-modified", "yesterday", "yesterday"),
        ("last-modified", "0", "0"),
        ("last-modified", "Thu, 01 Jan 1970 00:00:00 GMT", "Thu, 01 Jan 1970 00:00:00 GMT"),
    ],
)
async def test_a_validator_goes_back_as_it_came_or_not_at_all(
    scene: Scene, name: str, value: str, back: str | None
) -> None:
    scene.put("/p", reply(BODY, **{name: value}))
    async with scene.crawl() as crawl:
        known = await scene.visits(crawl, "/p", 2)
    sent = {"etag": "if-none-match", "last-modified": "if-modified-since"}[name]
    assert [one.header(sent) for one in scene.stage.asked("/p")] == [None, back]
    assert counts(known) == [(0, 0), (1, 0)]


@pytest.mark.parametrize("status", ["412 Precondition Failed", "400 Bad Request", "416 Range Not Satisfiable"])
async def test_a_condition_that_is_refused_is_not_made_again(scene: Scene, status: str) -> None:
    scene.put("/p", reply(BODY, etag='"1"'), reply(b"no", status=status), reply(BODY, etag='"1"'))
    async with scene.crawl() as crawl:
        await scene.visits(crawl, "/p", 3)
        assert crawl.pages()[scene.url("/p")].title == "t"
    assert [one.header("if-none-match") for one in scene.stage.asked("/p")] == [None, '"1"', None]


async def test_a_304_that_is_not_asked_for_is_no_news_of_a_page_that_is_known(scene: Scene) -> None:
    scene.put("/p", reply(BODY), unchanged(), reply(BODY + b"!"))
    async with scene.crawl() as crawl:
        known = await scene.visits(crawl, "/p", 3)
    assert counts(known) == [(0, 0), (0, 0), (1, 1)]


async def test_a_page_that_becomes_something_else_keeps_no_validator_of_it(scene: Scene) -> None:
    scene.put(
        "/p",
        reply(BODY, etag='"1"'),
        reply(status="302 Found", location="/q", etag='"r"'),
        reply(b"gone", status="404 Not Found", etag='"g"'),
        reply(BODY, etag='"1"', status="500 Error"),
        reply(BODY, etag='"1"'),
    )
    async with scene.crawl(politeness={"backoff_min_s": 0.05}) as crawl:
        await scene.visits(crawl, "/p", 5)
    assert [one.header("if-none-match") for one in scene.stage.asked("/p")] == [None, '"1"', None, None, None]
