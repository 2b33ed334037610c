"""Each verdict on the crawl of real pages can fail: one literal log each that holds, and one that does not."""

import base64
import hashlib
from pathlib import Path
from typing import Any

import msgspec

from tests.cluster import docs_archive, docs_judge, docs_pages, docs_web

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


def test_a_wrong_title_or_charset_a_missing_link_and_a_missing_line_are_told():
    files = {url("/"): docs_pages.Read(title="T", links={url("/1"), url("/2")}, charset="utf-8")}
    line = {"title": "T", "links": [url("/1"), url("/2")], "charset": "utf-8"}
    assert docs_judge.reading(files, {url("/"): line}).holds
    assert not docs_judge.reading(files, {url("/"): line | {"title": "U"}}).holds
    assert not docs_judge.reading(files, {url("/"): line | {"charset": "cp1252"}}).holds
    assert not docs_judge.reading(files, {url("/"): line | {"links": [url("/1")]}}).holds
    assert not docs_judge.reading(files, {}).holds
    assert not docs_judge.reading({}, {}).holds


def test_a_file_is_read_for_title_charset_and_links(tmp_path: Path):
    page = tmp_path / "page.html"
    page.write_bytes(
        b"<html><head><meta charset=ISO-8859-2><title> A\n \xa3 </title><meta http-equiv=Refresh content='0;url=next'>"
        b"</head><body><a href='x#part'>x</a><a href='#top'>up</a><a rel=nofollow href=no>n</a>"
        b"<a href='mailto:a@b.example'>m</a><iframe src=/frame></iframe></body></html>"
    )
    read = docs_pages.read(page, url("/d/page.html"))
    assert read == docs_pages.Read(
        title="A \u0141", links={url("/d/x"), url("/d/next"), url("/frame")}, charset="iso8859-2"
    )


def test_a_digest_is_that_of_the_file(tmp_path: Path):
    page = tmp_path / "page.html"
    body = b"a page\n"
    page.write_bytes(body)
    digest = f"sha1:{base64.b32encode(hashlib.sha1(body, usedforsecurity=False).digest()).decode()}"
    digests = {url("/"): docs_pages.digests([page])[page]}
    assert docs_judge.payloads(digests, {url("/"): {"payload": digest}}).holds
    assert not docs_judge.payloads(digests, {url("/"): {"payload": "sha1:" + "A" * 32}}).holds
    assert not docs_judge.payloads(digests, {}).holds
    assert not docs_judge.payloads({}, {}).holds


def test_a_host_out_of_scope_is_told():
    other = msgspec.structs.replace(GOOD[0], host="elsewhere.example")
    assert docs_judge.scope(GOOD).holds
    assert not docs_judge.scope([*GOOD, other]).holds
    assert docs_judge.scope([*GOOD, msgspec.structs.replace(other, agent="Wget/1.21")]).holds
    assert not docs_judge.scope([]).holds


def test_the_second_pass_is_a_304_for_each_page_and_nothing_more():
    first = docs_web.Answers([*GOOD, asked("b", 10_300, "/old", status=301), asked("b", 10_400, "/robots.txt")])
    again = docs_web.Answers(asked("a", 90_000, one.uri, status=304) for one in GOOD)
    again.append(asked("a", 90_300, "/old", status=301))
    lines = [{"url": one.url, "status": one.status} for one in again]

    def held(answers: list[docs_web.Request]) -> list[bool]:
        return [one.holds for one in docs_judge.second_pass(first, docs_web.Answers(answers), lines)]

    assert held(again) == [True, True, True]
    assert held([*again, asked("a", 90_400, "/robots.txt")]) == [True, True, True]
    assert held([asked("a", 90_000, "/"), *again[1:]]) == [False, False, False]
    assert held([*again, again[1]]) == [False, True, False]
    assert held(again[1:]) == [False, True, False]
    assert held([]) == [False, True, False]


def archived(kind: str, path: str, status: int | None = None, **fields: str) -> docs_archive.Entry:
    return docs_archive.Entry(kind, url(path), status, fields.get("payload"), fields.get("profile"))


def test_an_answer_that_is_missing_in_the_archive_or_has_another_digest_is_told():
    group = [archived("request", "/"), archived("metadata", "/"), archived("response", "/", 200, payload="sha1:A")]
    again = [archived("request", "/"), archived("metadata", "/")]
    again.append(archived("revisit", "/", 304, profile="server-not-modified"))
    log = [{"url": url("/"), "status": 200}, {"url": url("/"), "status": 304}, {"url": url("/x"), "status": None}]
    pages = [{"status": 200, "duplicate_of": None}, {"status": 304, "duplicate_of": None}]
    digests = {url("/"): "sha1:A"}

    def held(
        found: list[docs_archive.Entry],
        requests: list[dict[str, Any]] = log,
        sums: dict[str, str] = digests,
        said: list[dict[str, Any]] = pages,
    ) -> list[bool]:
        return [one.holds for one in docs_archive.against_logs(found, requests, said, sums)]

    assert held([*group, *again]) == [True, True, True]
    assert held([*group, *again[1:]]) == [False, True, True]
    assert held([*group, *again[:2]]) == [False, False, True]
    assert held(group, log[:1], digests, pages[:1]) == [True, False, True]
    assert held(again) == [False, True, False]
    assert held([*group, *again], log[1:]) == [False, True, True]
    assert held([*group, *again], log, {url("/"): "sha1:B"}) == [True, True, False]
    assert held([*group, *again], log, digests, [pages[0] | {"duplicate_of": url("/y")}, pages[1]]) == [
        True,
        False,
        True,
    ]
