"""The measurement of large moves judges what the origin saw: gaps, takers, and lines that are still being written."""

from collections import Counter

from tests.bench import scale_fill, scale_watch, scale_web

LINES = (
    "10.000000 n1 www.a.example /page-0\n"
    "12.000000 n2 www.b.example /busy-0\n"
    "15.500000 n1 www.a.example /page-1\n"
    "21.000000 n3 www.b.example /busy-1\n"
    "22.000000 n2 www.a.example /page-2\n"
    "23.000000 n2 www.a.example /pa"
)


def test_first_requests_by_takers_after_the_move_count_and_a_gap_is_the_smallest_of_any_site(tmp_path):
    file = tmp_path / "log"
    file.write_text(LINES)
    with file.open() as log:
        seen = scale_watch.Requests(log, since_s=11.0, moving={"a.example"}, takers={"n2", "n3"}, busy={"b.example"})
        assert seen.read() == 1
        assert seen.taken_s == {"a.example": 22.0}  # n1 is who had it, and b.example does not move
        assert (seen.count, seen.first_s, seen.smallest_gap_s) == (5, 10.0, 5.5)
        assert seen.by_second["n1", False] == Counter({10: 1, 15: 1})
        assert seen.rate("n2", 11.0, 23.0, busy=True) == 1 / 11
        with file.open("a") as more:
            more.write("ge-3\n")
        seen.read()
        assert (seen.count, seen.smallest_gap_s) == (6, 1.0)


def test_the_frontier_has_what_moves_what_is_busy_and_what_rests():
    plan = scale_fill.Plan(2_000, ("n1", "n2", "n3"), "n1", busy=5)
    owners = list(plan.owners())
    assert [site for site, _, _ in owners] == [scale_fill.site_name(number) for number in range(2_000)]
    assert {owner for _, owner, kind in owners if kind == "moves"} == {"n1"}
    assert all(kind == "moves" for _, owner, kind in owners if owner == "n1")
    assert Counter(owner for _, owner, kind in owners if kind == "busy") == {"n2": 5, "n3": 5}
    assert {kind for _, _, kind in scale_fill.Plan(50, ("n1", "n2"), None, busy=0).owners()} == {"starts"}


def letters_of(answer: bytes) -> bytes:
    return bytes(byte for byte in answer.partition(b"<p>")[2].partition(b"</p>")[0] if not chr(byte).isdigit())


def test_a_busy_page_leads_to_the_next_and_another_to_nothing():
    assert b'href="/busy-8"' in scale_web.page(b"/busy-7")
    assert b"href" not in scale_web.page(b"/page-7")
    texts = {letters_of(scale_web.page(b"/busy-%d" % number)) for number in range(100)}
    assert len(texts) == 100, "each new to who looks for patterns without an end"
    head, _, body = scale_web.page(b"/page-7").partition(b"\r\n\r\n")
    assert b"Content-Length: %d" % len(body) in head
