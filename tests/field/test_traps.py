"""Field cases of spaces of URLs without an end: they stop by themselves, and the rest of the site goes on."""

import re
from urllib.parse import parse_qsl, urlsplit

from tests.field.stage import OK, Scene, case, linking, outcomes, reply
from tests.node.crawler import Answer

WORDS = [
    "harbour",
    "lantern",
    "orchard",
    "copper",
    "meadow",
    "thistle",
    "gravel",
    "canvas",
    "ember",
    "saddle",
    "marrow",
    "violin",
    "parcel",
    "timber",
    "quarry",
    "beacon",
    "hollow",
    "pepper",
    "ribbon",
    "anchor",
    "cellar",
    "falcon",
    "garnet",
    "kettle",
    "ladder",
    "mantle",
]


def article(number: int) -> bytes:
    """A page with a text of its own."""
    words = [WORDS[(number * 7 + at * (number + 3)) % len(WORDS)] + str((number * at) % 9) for at in range(120)]
    return reply(f"<title>{words[0]}</title><p>{' '.join(words)}".encode())


@case("trap-calendar")
async def test_a_calendar_without_an_end_is_capped_and_the_rest_of_the_site_goes_on(scene: Scene) -> None:
    articles = [f"/articles/{number}" for number in range(100, 130)]
    for number, path in enumerate(articles):
        scene.put(path, article(number))
    scene.put("/", linking("/events?month=2026-10", *articles))
    scene.put(f"{scene.other}/fine", OK)

    def month(url: str) -> Answer | None:
        found = re.search(r"/events\?month=(\d+)-(\d+)$", url)
        if found is None:
            return None
        at = int(found[1]) * 12 + int(found[2]) - 1
        near = [f"/events?month={one // 12:04}-{one % 12 + 1:02}" for one in (at + 1, at - 1)]
        links = "".join(f'<a href="{one}">x</a>' for one in near)
        text = (
            f"<title>{found[1]}-{found[2]}</title><h1>Events of {found[1]}-{found[2]}</h1><p>No events are planned.</p>"
        )
        return reply((text + links).encode())

    scene.stage.otherwise = month
    most = 64
    async with scene.crawl(politeness={"delay_min_s": 0.01}, limits={"alike_max": most}) as crawl:
        await scene.seed(crawl, "/", f"{scene.other}/fine")
        await crawl.run(within_s=30.0)
        look = await crawl.look(scene.site)
        assert outcomes(crawl, f"{scene.other}/fine") == ["fetched"]
    months = [path for path in scene.stage.paths if path.startswith("/events")]
    assert 12 <= len(months) <= most * 1.25
    assert set(articles) <= set(scene.stage.paths), "the rest of the site goes on"
    assert len(look["endless"]) == 1
    assert set(look["set_aside"]) <= {"endless"}
    assert (look["pending"], look["later"]) == (0, 0)


@case("trap-session-in-path")
async def test_session_ids_of_known_shapes_make_no_new_page(scene: Scene) -> None:
    ids = ("(S(lit3py55t21z5v55vlm25s55))", "(S(aaaaaaaaaaaaaaaaaaaaaaaa))")
    sessions = ("0123456789abcdefghijklemopqrstuv", "ABCDEF6789abcdefghijklemopqrstuv")
    php = ("cdc993a493e899bed04f4d0c8a462a03", "00c993a493e899bed04f4d0c8a462a03")
    longer = f"/b.jsp;jsessionid={sessions[0]}x?x=y"
    links = [
        *(f"/{one}/page.aspx" for one in ids),
        *(f"/a.jsp;jsessionid={one}?x=y" for one in sessions),
        *(f"/?PHPSESSID={one}&f=2" for one in php),
        longer,
    ]
    scene.put("/start", linking(*(link.replace("&", "&amp;") for link in links)))
    async with scene.crawl(sites={"drop_session_ids": True}) as crawl:
        await scene.seed(crawl, "/start")
        await crawl.run()
    assert scene.stage.paths[0] == "/start"
    assert sorted(scene.stage.paths[1:]) == sorted(["/page.aspx", "/a.jsp?x=y", "/?f=2", longer])


@case("trap-query-dup")
async def test_a_query_that_grows_by_the_same_parameter_is_capped(scene: Scene) -> None:
    def grown(url: str) -> Answer | None:
        query = urlsplit(url).query
        if not query:
            return None
        assert {name for name, _ in parse_qsl(query, keep_blank_values=True)} == {"q"}
        return linking(f"/?{query}&amp;q=")

    scene.stage.otherwise = grown
    async with scene.crawl() as crawl:
        await scene.seed(crawl, "/?q=")
        await crawl.run()
        most = crawl.settings.limits.path_repeats_max
    wanted = ["/?" + "&".join(["q="] * times) for times in range(1, most + 1)]
    assert scene.stage.paths == wanted, "values may matter, so they are kept; the growth is capped"
