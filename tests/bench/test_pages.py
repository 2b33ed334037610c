"""How often a page's links are parsed, hashed and judged: exactly counted, so that none of it creeps back."""

import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import pytest

from node import admission, links
from shared import sites, urls
from tests.bench import pages

COUNTED = {  # parsed: the page's own URL is, once
    urls.canonical.__code__: "parsed",
    urls.digest.__code__: "hashed",
    admission.of_link.__code__: "judged",
    sites.Sites._find.__code__: "looked up",
    links._address.__code__: "read by a tree",
}


def calls(work: Callable[[], Any]) -> Counter[str]:
    """How often each step was called meanwhile."""
    seen: Counter[CodeType] = Counter()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code in COUNTED:
            seen[frame.f_code] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return Counter({COUNTED[code]: count for code, count in seen.items()})


@pytest.fixture(scope="module")
def bench() -> pages.Bench:
    return pages.Bench(2)


def test_a_page_whose_links_are_known_costs_a_hash_each_and_nothing_else(bench):
    bench.know(all_of_them=True)
    assert calls(lambda: bench.repeated(0)) == {"parsed": 1, "hashed": len(bench.found[0])}


def test_a_page_whose_links_are_new_judges_each_once_and_parses_none(bench):
    bench.know(all_of_them=False)
    count = len(bench.found[0])
    bench.fresh(0)
    assert calls(lambda: bench.fresh(0)) == {"parsed": 1, "hashed": count, "judged": count}


def test_the_links_are_those_that_the_libraries_find(bench):
    bare = {urls.canonical(link) for link in bench.bare(0)}
    assert set(bench.found[0]) == bare
