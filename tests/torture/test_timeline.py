"""The picture of a run: well-formed, small enough for a README, and it shows what the logs say."""

import xml.etree.ElementTree as ET

import pytest

from tests.torture import evidence, forest, stories, timeline

SVG = "{http://www.w3.org/2000/svg}"
SIZE_MAX = 1_500_000


@pytest.fixture
def story() -> stories.Story:
    return stories.Story(ends_s=20.0)


def drawn(run: evidence.Evidence) -> ET.Element:
    text = timeline.picture(run)
    assert len(text) < SIZE_MAX
    return ET.fromstring(text)


def texts(root: ET.Element) -> list[str]:
    return [text.text or "" for text in root.iter(f"{SVG}text")]


def widths(root: ET.Element, colour: str, *, opacity: str = ".42") -> list[float]:
    """Of the bars of one owner."""
    found = [rect for rect in root.iter(f"{SVG}rect") if rect.get("fill") == colour and rect.get("opacity") == opacity]
    return [float(rect.get("width", "0")) for rect in found if float(rect.get("x", "0")) >= timeline.LEFT]


def test_it_names_sites_owners_faults_and_minutes(story, tmp_path):
    story.crawled()
    story.fault(3, "crash", "n1", name="kill", lasts_s=4)
    story.fault(9, "store", name="store-killed & <restarted>", lasts_s=1)
    story.moves(8, story.one.name, "n1", "n2", epoch=2)
    story.asks(9.5, story.pages[0], "n2", tenure=2)
    root = ET.fromstring(timeline.draw(story.write(tmp_path)))
    said = texts(root)
    assert {"t000s4", "t001s4", "n1", "n2", "redis", "kill", "store-killed & <restarted>", "minutes", "0:05"} <= set(
        said
    )
    assert sum("2 sites" in one for one in said) == 1
    assert any(
        one.startswith("kill n1 at 3.0 s, for 4.0 s")
        for one in (title.text or "" for title in root.iter(f"{SVG}title"))
    )


def test_bars_go_from_claim_to_the_last_request_and_pale_to_the_next_claim(story):
    story.asks(1, story.pages[0])
    story.asks(5, story.pages[1])
    story.moves(8, story.one.name, "n1", "n2", epoch=2)
    story.asks(10, story.pages[2], "n2", tenure=2)
    story.asks(19, story.pages[3], "n1")  # of an owner that is none any more
    root = drawn(story.told())
    second = (timeline.WIDTH - timeline.LEFT - timeline.RIGHT) / 20
    first, then = timeline.OWNERS[:2]
    assert widths(root, first) == [pytest.approx(4 * second, abs=0.2)]
    assert widths(root, first, opacity=".13") == [pytest.approx(3 * second, abs=0.2)]
    assert widths(root, then) == [pytest.approx(2 * second, abs=0.2)]


def test_a_gap_too_short_has_a_red_ring(story):
    story.asks(1, story.pages[0])
    story.asks(2.1, story.pages[1])
    assert not list(drawn(story.told()).iter(f"{SVG}circle"))
    story.asks(3, story.pages[2], "n2", tenure=2)
    assert len(list(drawn(story.told()).iter(f"{SVG}circle"))) == 1


def test_a_tick_is_in_the_colour_of_who_asked(story):
    """Whoever owned the site by the handoff log."""
    story.asks(1, story.pages[0])
    story.asks(6, story.pages[1], "n2", tenure=1)
    strokes = [
        path.get("stroke") for path in drawn(story.told()).iter(f"{SVG}path") if path.get("stroke-width") == ".9"
    ]
    assert strokes == list(timeline.OWNERS[:2])


def test_at_most_one_tick_in_two_pixels(story):
    for i in range(50):
        story.asks(5 + i / 1000, story.pages[0])
    (path,) = [path for path in drawn(story.told()).iter(f"{SVG}path") if path.get("stroke-width") == ".9"]
    assert 1 <= path.get("d", "").lower().count("m") <= 3


def test_three_quarters_of_an_hour_stay_small_and_within_the_page():
    """More sites than rows, requests of each in every pixel, a fault every 15 s."""
    story = stories.Story(ends_s=2_700.0)
    story.web = forest.grow(64, 8, 1)
    for site in story.web.sites:
        for at_s in range(1, 2_700, 2):
            story.asks(at_s, site.home, f"n{1 + at_s // 600 % 4}", tenure=at_s // 600)
        for i in range(4):
            story.moves(600 * (i + 1), site.name, f"n{1 + i % 4}", f"n{1 + (i + 1) % 4}", epoch=i + 2)
    for i in range(180):
        story.fault(15 * i, ("crash", "silent", "etcd", "slow")[i % 4], *(("n1",) if i % 2 else ()), lasts_s=6)
    story.in_order()
    root = drawn(story.told())
    assert float(root.get("height", "0")) <= timeline.HEIGHT
    assert sum(one.startswith("t0") for one in texts(root)) == timeline.ROWS_MAX
    for rect in root.iter(f"{SVG}rect"):
        assert float(rect.get("x", "0")) + float(rect.get("width", "0")) <= timeline.WIDTH


def test_a_run_without_moves_or_faults_can_be_drawn(story):
    story.crawled()
    assert "t001s4" in texts(drawn(story.told()))


def test_a_run_without_requests_can_be_drawn(story):
    assert texts(drawn(story.told()))
