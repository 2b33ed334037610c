"""The rule of most octets decides, exactly as a plain reading says, and no file holds the loop for long."""

import gc
import itertools
import re
import time
from collections.abc import Iterator
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node import robots, robots_rules
from shared import records

T = TypeVar("T")
SLICE_S = 0.005  # ten times what a slice takes as a rule
KB = 1_024


def filled(*lines: tuple[bool, str]) -> robots_rules.Matcher:
    matcher = robots_rules.Matcher()
    robots_rules.run(
        matcher.filling((number, allow, pattern) for number, (allow, pattern) in enumerate(lines, start=1))
    )
    return matcher


def decided(matcher: robots_rules.Matcher, path: str) -> tuple[bool, int] | None:
    rule = robots_rules.run(matcher.deciding(path))
    return None if rule is None else (rule.allow, rule.octets)


def plainly(lines: list[tuple[bool, str]], path: str) -> tuple[bool, int] | None:
    """Every pattern as a regular expression, all of them tried."""
    best = None
    for allow, pattern in lines:
        anchored = pattern.endswith("$")
        body = ".*".join(map(re.escape, pattern.removesuffix("$").split("*")))
        if re.match(f"{body}\\Z" if anchored else body, path, re.DOTALL):
            best = max((len(pattern), allow), best or (0, False))
    return None if best is None else (best[1], best[0])


patterns = st.tuples(st.booleans(), st.text("ab*/", max_size=8).map(lambda text: f"/{text}")) | st.tuples(
    st.booleans(), st.sampled_from(["*", "/*$", "*b$", "/a$", "/**b", "/a*b*a$", "/ab*", "/*a*", "/"])
)


@given(st.lists(patterns, max_size=12), st.lists(st.text("ab/", max_size=9), max_size=6))
def test_the_decision_is_that_of_a_plain_reading(lines: list[tuple[bool, str]], paths: list[str]) -> None:
    matcher = filled(*lines)
    for path in paths:
        assert decided(matcher, f"/{path}") == plainly(lines, f"/{path}")


@given(many=st.integers(70, 400), number=st.integers(0, 400), allow=st.booleans())
def test_many_patterns_are_no_other_than_few(*, many: int, number: int, allow: bool) -> None:
    """More than a row of them, and the needle is found in whichever row it is."""
    lines = [(not allow, "/"), *((allow, f"/*x{at}y*z") for at in range(many))]
    found = decided(filled(*lines), f"/aax{number}ybbz")
    assert found == ((allow, len(f"/*x{number}y*z")) if number < many else (not allow, 1))


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("/a-b_c.d~e", "/a-b_c.d~e"),
        ("/%61%2D%5f%2E%7e", "/a-_.~"),
        ("/%3a%40%21", "/:@!"),
        ("/a%2fb%3Fc%23d", "/a%2Fb%3Fc%23d"),
        ("/?u=http%3A%2F%2Fh%2f%3fq", "/?u=http://h/?q"),
        ("/\u30c4", "/%E3%83%84"),
        ("/%e3%83%84", "/%E3%83%84"),
        ("/a b\t", "/a%20b%09"),
        ("/%", "/%25"),
        ("/%zz%4", "/%25zz%254"),
        ("/100%25", "/100%25"),
        ("/*$", "/%2A%24"),
        ("/%2a%24", "/%2A%24"),
        ("/\udce9", "/%E9"),
    ],
)
def test_paths_are_compared_in_one_spelling(text: str, spelling: str) -> None:
    assert robots_rules.normal(text) == spelling
    assert robots_rules.normal(spelling) == spelling
    assert robots_rules.normal(text.replace("*", ""), pattern=True) == spelling.replace("%2A", "", text.count("*"))


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_the_spelling_is_stable(text: str) -> None:
    once = robots_rules.normal(f"/{text}")
    assert robots_rules.normal(once) == once


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/x$", "/x%24", True),  # Google's and Protego's reading: perhaps a character was meant
        ("/d/index.html", "/d/", True),
        ("/d/index.html", "/d/a", False),
        ("http://h/x", "/http://h/x", True),
        ("x", "/x", False),
        ("?x", "/?x", False),
        ("", "/x", False),
        ("$", "/", False),
    ],
)
def test_what_others_read_into_a_pattern(pattern: str, path: str, *, matches: bool) -> None:
    assert (decided(filled((True, pattern)), path) is not None) is matches


HOSTILE = {
    "wildcards": "".join(f"Disallow: /*{number:x}z*q{number}\n" for number in range(5_000)),
    "every needle found": "".join(f"Disallow: /*{'a' * (number % 90 + 1)}*{number}b\n" for number in range(5_000)),
    "long needles": "".join(f"Disallow: *{'a' * 100}b{'a' * 97}{number}\n" for number in range(2_400)),
    "short patterns": "".join(f"allow:*{number:x}\n" for number in range(20_000)),
    "stars": "Disallow: /" + "*a" * 250_000 + "b\n",
    "lines of stars": "".join(f"Disallow: /{'*a' * 1_000}{number}b\n" for number in range(240)),
    "agents": "User-agent: x\n" * 35_000,
    "no lines": "\n" * 500_000,
    "markup": ("Disallow: /x" + "<br>" * 1_000 + "\n") * 120,
    "one line": "x" * 500_000,
    "not ASCII": "Disallow: /\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\n" * 22_000,
    "escapes": "".join(f"Disallow: /{'%41%c3' * 300}{number}\n" for number in range(280)),
    "prefixes": "".join(f"Disallow: /{'b' * number}\n" for number in range(1, 990)),
}


@pytest.fixture
def _no_collections() -> Iterator[None]:
    """A collection of garbage goes through all that the tests hold, and falls into whichever slice is on."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collections")
@pytest.mark.parametrize("name", HOSTILE)
def test_no_file_and_no_question_about_it_holds_the_loop(name: str) -> None:
    body = ("User-agent: *\n" + HOSTILE[name]).encode()[: 500 * KB]
    rules = _in_slices(robots.parsing(records.RobotsRecord(verdict="rules", body=body), "ourbot"))
    for path in ("/" + "a" * 2_000, "/" + "ab" * 1_000, "/usual/page?x=1"):
        allowed, _ = _in_slices(rules.judging(path))
        assert allowed


def _in_slices(steps: robots_rules.Steps[T]) -> T:
    """The result, most of it from slices that were short."""
    total_s = long_s = 0.0
    while True:
        began_s = time.thread_time()
        found = list(itertools.islice(_results(steps), 1))
        spent_s = time.thread_time() - began_s
        total_s += spent_s
        long_s += spent_s if spent_s > SLICE_S else 0.0
        if found:
            assert long_s <= total_s / 4
            return found[0]


def _results(steps: robots_rules.Steps[T]) -> Iterator[T]:
    """Nothing where another step is to come."""
    try:
        next(steps)
    except StopIteration as end:
        yield end.value
