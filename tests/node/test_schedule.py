"""The schedule: what is due first, the urgent before the patient, one entry a site."""

from hypothesis import given
from hypothesis import strategies as st

from node import schedule


def test_nothing_comes_before_it_is_due():
    due = schedule.Schedule()
    due.put("a", 10.0, priority=5)
    assert due.take(9.9) is None
    assert due.next_s() == 10.0
    assert due.take(10.0) == "a"
    assert due.take(99.0) is None
    assert due.next_s() is None


def test_among_due_sites_the_urgent_come_first_then_the_longest_waiting():
    due = schedule.Schedule()
    for site, at, priority in (
        ("old", 1.0, 5),
        ("young", 2.0, 5),
        ("urgent", 3.0, 9),
        ("idle", 0.5, 0),
        ("future", 50.0, 9),
    ):
        due.put(site, at, priority=priority)
    assert [due.take(10.0) for _ in range(5)] == ["urgent", "old", "young", "idle", None]


def test_a_later_entry_replaces_the_earlier_one():
    due = schedule.Schedule()
    due.put("a", 1.0, priority=5)
    due.put("a", 7.0, priority=5)
    assert due.take(5.0) is None
    assert due.take(7.0) == "a"
    assert len(due) == 0


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 50), st.integers(0, 9)), max_size=40),
    st.integers(0, 60),
)
def test_take_agrees_with_a_sorted_list(puts, now):
    due = schedule.Schedule()
    model = {}
    for site, at, priority in puts:
        due.put(site, float(at), priority=priority)
        model[site] = (at, priority)
    ripe = [site for site, (at, _) in model.items() if at <= now]
    taken = []
    while (site := due.take(float(now))) is not None:
        taken.append(site)
    assert sorted(taken) == sorted(ripe)
    keys = [(-model[site][1], model[site][0]) for site in taken]
    assert keys == sorted(keys)


def test_after_a_takeover_neither_what_was_had_nor_what_was_gained_waits_for_the_other():
    due = schedule.Schedule()
    for number in range(100):
        due.put(f"gained {number}", 1.0, priority=5, gained=True)
    for number in range(3):
        due.put(f"had {number}", 2.0, priority=5)
    due.put("urgent", 3.0, priority=9)
    taken = [due.take(4.0) for _ in range(8)]
    assert taken[0] == "urgent"
    assert [name.split()[0] for name in taken[1:]] == ["gained", "had"] * 3 + ["gained"]
    assert taken[2::2] == ["had 0", "had 1", "had 2"]


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 50), st.booleans()), max_size=40), st.integers(0, 60)
)
def test_each_line_keeps_its_order_and_the_lines_take_turns(puts, now):
    due = schedule.Schedule()
    model = {}
    for site, at, gained in puts:
        due.put(site, float(at), priority=5, gained=gained)
        model[site] = (at, gained)
    taken = []
    while (site := due.take(float(now))) is not None:
        taken.append(model[site])
    lines = [[at for at, gained in taken if gained is which] for which in (False, True)]
    assert [sorted(line) for line in lines] == lines
    assert sorted(taken) == sorted((at, gained) for at, gained in model.values() if at <= now)
    both = 2 * min(map(len, lines))
    assert [gained for _, gained in taken[:both]] in ([True, False] * (both // 2), [False, True] * (both // 2))


def test_what_is_dropped_never_comes():
    due = schedule.Schedule()
    for site in "abc":
        due.put(site, 1.0, priority=5)
    assert due.take(1.0) == "a"
    due.drop(["b", "never held"])
    assert len(due) == 1
    assert [due.take(9.0), due.take(9.0)] == ["c", None]
    due.put("b", 2.0, priority=5)
    assert due.take(9.0) == "b"


def test_entries_that_were_replaced_do_not_pile_up():
    """A site that is put off again and again, and one that is dropped before its far moment, leave nothing behind."""
    due = schedule.Schedule()
    for number in range(20_000):
        due.put("a", 1e6 + number, priority=5)
        due.put(f"gone {number}", 1e9, priority=5)
        due.drop([f"gone {number}"])
    assert len(due._future) + sum(map(len, due._ready)) <= 2 * len(due) + schedule.STALE_MIN + 1
    assert due.take(2e6) == "a"
