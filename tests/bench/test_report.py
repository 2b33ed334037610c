"""Claims about what the comparison makes of its samples; nothing is measured here."""

import itertools
import json
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench import chart, contenders, environments, page, profile, readings, report, web

SVG = "{http://www.w3.org/2000/svg}"


def sample(pages_per_cpu_s: float, **more) -> report.Sample:
    return report.Sample(
        pages=1_000, wall_s=2.0, cpu_s=1_000 / pages_per_cpu_s, rss_bytes=50_000_000, requests=1_100, **more
    )


def row(name: str, *speeds: float, **more) -> report.Row:
    return report.Row(
        name=name, about=f"what {name} is", versions="1.0", samples=[sample(one) for one in speeds], **more
    )


def results(*rows: report.Row, memory: dict[str, int] | None = None) -> report.Results:
    return report.Results(rows, {"python": "CPython 3"}, memory or {})


# --- samples and ratios ---------------------------------------------------------------------------------------------


def test_a_sample_is_what_lies_between_two_moments():
    first = report.Mark(pages=200, wall_s=10.0, cpu_s=1.0, rss_bytes=5, requests=260)
    last = report.Mark(pages=700, wall_s=14.0, cpu_s=2.0, rss_bytes=9, requests=800)
    found = report.sample(first, last, readings.Store(0.5, 10, 4), readings.Store(0.75, 1_010, 504))
    assert (found.pages, found.wall_s, found.cpu_s, found.rss_bytes, found.requests) == (500, 4.0, 1.0, 9, 540)
    assert (found.store_cpu_s, found.store_commands, found.store_trips) == (0.25, 1_000, 500)
    assert (found.pages_per_cpu_s, found.cpu_ms_a_page) == (500.0, 2.0)


def test_without_a_store_nothing_is_said_of_one():
    found = report.sample(report.Mark(1, 0, 0, 0), report.Mark(3, 1, 1, 0), None, None)
    assert (found.store_cpu_s, found.store_commands, found.requests) == (None, None, 2)


def test_a_ratio_is_taken_within_a_round_not_between_medians():
    # The machine was twice as fast in the second round; in each of them we were four times as fast as they.
    ours, theirs = row("crawlring", 400, 800, 600), row("other", 100, 200, 150)
    assert report.ratios(ours, theirs) == (4.0, 4.0, 4.0)
    assert report.ratios(row("crawlring", 400, 800), row("other", 200, 100)) == (5.0, 2.0, 8.0)


@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=9))
def test_the_median_lies_between_the_least_and_the_greatest(values):
    found = report.spread(values)
    assert (found.least, found.greatest) == (min(values), max(values))
    assert sum(value <= found.median for value in values) * 2 >= len(values)
    assert sum(value >= found.median for value in values) * 2 >= len(values)


@pytest.mark.parametrize(
    ("value", "text"), [(0.1234, "0.12"), (9.87, "9.87"), (12.34, "12.3"), (123.4, "123"), (12_345.6, "12,346")]
)
def test_a_figure_has_the_digits_that_count(value, text):
    assert report.figure(value) == text


# --- tables, page and chart -----------------------------------------------------------------------------------------


def test_a_table_is_markdown_with_columns_that_line_up():
    lines = report.table(("name", "n"), [("a", "1,000"), ("longer", "2")]).splitlines()
    assert lines == ["| name   |     n |", "| ------ | ----: |", "| a      | 1,000 |", "| longer |     2 |"]


def test_who_did_not_run_is_named_with_the_reason_and_counts_as_missed():
    found = results(row("crawlring", 800), row("scrapy", missing="no network", floor=8))
    for text in (report.speed_table(found), page.markdown(found), *page.missed(found)):
        assert "scrapy" in text
        assert "not run: no network" in text
    assert [bar.name for bar in page.bars(found)] == ["crawlring"]


@pytest.mark.parametrize(("speed", "missed"), [(100, 0), (101, 1)])
def test_a_floor_is_missed_below_it(speed, missed):
    assert len(page.missed(results(row("crawlring", 800), row("scrapy", speed, floor=8, aim=12)))) == missed


def test_the_page_says_the_figures_the_robots_share_and_the_memory():
    ours = replace(
        row("crawlring", 800), samples=[sample(800, store_cpu_s=0.2, store_commands=5_000, store_trips=1_100)]
    )
    found = results(ours, row("scrapy", 80, floor=8, aim=12), memory={"crawlring": 80_000_000, "scrapy": 680_000_000})
    text = page.markdown(found)
    for said in ("10.0 [10.0-10.0]x", "8x / 12x", "0.10\n", "1.10 [1.10-1.10]", "0.20 [0.20-0.20]", "1/8.5 of it"):
        assert said in text.replace("a page)", "\n"), said
    assert "{" not in text


def test_json_holds_every_sample(tmp_path):
    found = results(row("crawlring", 800, 900), row("scrapy", 80, 90, floor=8))
    report.write_json(tmp_path / "bench.json", "crawlers", report.as_json(found), found.machine)
    read = json.loads((tmp_path / "bench.json").read_text())
    assert read["machine"] == {"python": "CPython 3"}
    assert [len(one["samples"]) for one in read["rows"]] == [2, 2]
    assert read["rows"][1]["ratio"] == [10.0, 10.0, 10.0]


def test_the_chart_is_well_formed_and_its_bars_are_in_proportion():
    found = results(row("crawlring", 400), row('<scrapy> & "co"', 100), row("bare-parse", 800))
    root = ET.fromstring(chart.bars(page.TITLE, page.bars(found), note=page.note(found)))
    rects = root.findall(f"{SVG}rect")
    assert [rect.get("class") for rect in rects] == ["bare", "ours", "other"]
    widths = [float(rect.get("width")) for rect in rects]
    assert widths == pytest.approx([widths[0], widths[0] / 2, widths[0] / 8], abs=0.1)
    wide, high = (float(root.get(name)) for name in ("width", "height"))
    assert all(0 <= float(text.get("x")) < wide and float(text.get("y")) < high for text in root.findall(f"{SVG}text"))
    assert "prefers-color-scheme: dark" in root.findtext(f"{SVG}style")


# --- the web and the contenders -------------------------------------------------------------------------------------


def test_the_web_is_the_same_in_each_run_and_a_page_is_as_said():
    pages = web.links()
    assert pages == web.links()
    text = web.body(3, pages[3], 8_080)
    assert 18_000 < len(text) < 22_000
    hrefs = re.findall(r'<p>[^<]* <a href="([^"]+)">', text)
    outside = [href for href in hrefs if href.startswith("http://")]
    assert (len(hrefs), len(outside)) == (40, 20)
    assert all(":8080/" in href for href in outside)


def test_the_walk_begins_at_the_seeds_and_comes_by_no_url_twice():
    origin = web.Origin(8_080, "nginx")
    urls = list(origin.walk(5_000))
    assert urls[:3] == origin.seeds()
    assert len(set(urls)) == len(urls) == 5_000
    hosts = [url.split("/")[2] for url in urls]
    changes = sum(before != after for before, after in itertools.pairwise(hosts))
    assert changes > 2_500


@pytest.mark.parametrize("contender", contenders.CONTENDERS, ids=lambda one: one.name)
def test_a_contender_has_a_script_and_versions_that_are_pinned(contender):
    if not contender.script:
        assert contender is contenders.CONTENDERS[0]
        return
    assert (environments.PEERS / contender.script).exists()
    wanted = (environments.PEERS / f"requirements-{contender.environment}.txt").read_text().split()
    assert wanted
    assert all(re.fullmatch(r"[\w.\[\]-]+==[\w.]+", one) for one in wanted)


# --- profiles -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("file", "owner"),
    [
        ("/x/crawlring/node/links.py", "node/links.py"),
        ("/x/crawlring/node/sinks/jsonl.py", "node/sinks/jsonl.py"),
        ("/v/lib/python3.11/site-packages/redis/asyncio/client.py", "redis"),
        ("/v/lib/python3.11/site-packages/six.py", "six"),
        ("/usr/lib/python3.11/asyncio/events.py", "python asyncio"),
        ("/usr/lib/python3.11/json/decoder.py", "python"),
        ("<string>", "python"),
        ("libc.so.6", "C"),
    ],
)
def test_a_function_is_of_a_module_of_ours_or_of_a_library(file, owner):
    assert profile.owner_of(file) == owner


def test_own_time_is_the_innermost_frames_and_a_recursion_counts_once():
    ours, theirs = "visit (/x/node/visit.py:3)", "get (/v/site-packages/aiohttp/client.py:7)"
    found = profile.of_stacks([f"{ours};{theirs} 6", f"{ours};{ours} 2", f"{ours} 2"])
    visit, get = profile.Place("node/visit.py", "visit"), profile.Place("aiohttp", "get")
    assert found.whole == 10
    assert found.own == {visit: 4, get: 6}
    assert found.total == {visit: 10, get: 6}
    assert found.owners_total == {"node/visit.py": 10, "aiohttp": 6}
