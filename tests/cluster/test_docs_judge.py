"""Each verdict on the crawl of real pages can fail: one literal log each that holds, and one that does not."""

from tests.cluster import docs_judge, docs_pages, docs_web

SITE = "python.example"
LOSS = docs_judge.Loss(SITE, "a", 10_100)


def asked(node: str, start_ms: int, path: str, *, status: int = 200, kind: str = "text/html") -> docs_web.Request:
    agent = "Wget/1.21" if node == "wget" else f"{docs_judge.AGENT}-{node}/1.0"
    return docs_web.Request(
        end_s=start_ms / 1000,
        took_s=0.0,
        host=f"docs.{SITE}",
        uri=path,
        status=status,
        type=kind,
        agent=agent,
    )


def url(path: str) -> str:
    return f"http://docs.{SITE}{path}"


GOOD = [asked("a", 10_000, "/"), asked("a", 10_050, "/1"), asked("b", 10_200, "/2"), asked("b", 10_230, "/3")]


def test_a_page_that_only_one_of_the_two_reached_is_told():
    theirs = docs_web.Answers(asked("wget", 0, one.uri) for one in GOOD)
    assert all(one.holds for one in docs_judge.against_wget(docs_web.Answers(GOOD), theirs, {}))
    fewer, more = docs_web.Answers(GOOD[:-1]), docs_web.Answers([*GOOD, asked("b", 10_260, "/4")])
    assert [one.holds for one in docs_judge.against_wget(fewer, theirs, {})] == [False, True, True]
    assert [one.holds for one in docs_judge.against_wget(more, theirs, {})] == [True, False, True]


def test_what_is_no_page_counts_only_where_a_link_names_it():
    theirs = docs_web.Answers([asked("wget", 0, "/"), asked("wget", 1, "/x.png", kind="image/png")])
    ours = docs_web.Answers(GOOD[:1])
    shown, linked = docs_pages.Read(), docs_pages.Read(links={url("/x.png")})
    assert docs_judge.against_wget(ours, theirs, {url("/"): shown})[2].holds
    assert not docs_judge.against_wget(ours, theirs, {url("/"): linked})[2].holds


def test_only_the_lost_owners_last_request_may_be_asked_again():
    again = asked("b", 10_260, "/1")
    assert docs_judge.repeats({SITE: GOOD}, LOSS).holds
    assert docs_judge.repeats({SITE: [*GOOD, again]}, LOSS).holds
    assert not docs_judge.repeats({SITE: [*GOOD, again, asked("b", 10_290, "/1")]}, LOSS).holds
    assert not docs_judge.repeats({SITE: [*GOOD, asked("b", 10_260, "/")]}, LOSS).holds
    assert not docs_judge.repeats({SITE: [*GOOD, again]}, docs_judge.Loss(SITE, "c", 10_100)).holds
    assert not docs_judge.repeats({SITE: [*GOOD, again]}, docs_judge.Loss(SITE, "a", 99_000)).holds
    assert not docs_judge.repeats({SITE: []}, LOSS).holds


def test_a_short_gap_is_told_within_an_owners_time_and_across_a_move():
    assert docs_judge.gaps(SITE, GOOD, 0.03).holds
    assert not docs_judge.gaps(SITE, [*GOOD, asked("b", 10_250, "/4")], 0.03).holds
    assert not docs_judge.gaps(SITE, [*GOOD, asked("c", 10_250, "/4")], 0.03).holds
    assert not docs_judge.gaps(SITE, [], 0.03).holds


def test_each_run_of_a_node_needs_its_move_in_the_handoff_log():
    back = [*GOOD, asked("a", 10_300, "/4")]
    assert docs_judge.owners(SITE, GOOD, ["b"], LOSS).holds
    assert docs_judge.owners(SITE, back, ["b", "a"], LOSS).holds
    assert not docs_judge.owners(SITE, back, ["b"], LOSS).holds
    assert not docs_judge.owners(SITE, GOOD[:2], [], LOSS).holds  # it never moved


def test_a_wrong_title_a_missing_link_and_a_missing_line_are_told():
    files = {url("/"): docs_pages.Read(title="T", links={url("/1"), url("/2")})}
    line = {"title": "T", "links": [url("/1"), url("/2")]}
    assert docs_judge.reading(files, {url("/"): line}).holds
    assert not docs_judge.reading(files, {url("/"): line | {"title": "U"}}).holds
    assert not docs_judge.reading(files, {url("/"): line | {"links": [url("/1")]}}).holds
    assert not docs_judge.reading(files, {}).holds
    assert not docs_judge.reading({}, {}).holds
