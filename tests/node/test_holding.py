"""More sites than memory is to hold: whatever comes and goes, gaps are kept and nothing is forgotten (P1, P2)."""

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from node import holding, ownership, schedule
from shared import agreement, records
from tests.node.test_ownership import adopt, of, view
from tests.scenarios.world import record_of

DELAY_S = 1.0
HELD_MAX = 3
SITES = [f"site{i}.example" for i in range(9)]
ALONE, BOTH = {"a": (1, 1.0)}, {"a": (1, 1.0), "b": (2, 1.0)}
some_sites = st.lists(st.sampled_from(SITES), max_size=4)


def owner(held_max=HELD_MAX, *, share_visits=2):
    """Node a, alone since epoch 10."""
    me = ownership.Ownership("a", silence_s=7.0, delay_min_s=DELAY_S, held_max=held_max, share_visits=share_visits)
    me.adopted(0.0, adopt((10, view(ALONE)), whole=False))
    me.settled(0.0, agreement.Settle(10, {}))
    return me


def answer(site, *, pending=1, later_in_s=None, due_in_s=0.0, n=0, owned_by=None, epoch=0):
    head = tuple(records.QueuedUrl(url=f"http://{site}/{i}", priority=5) for i in range(min(pending, 8)))
    return msgspec.structs.replace(
        record_of(site, owned_by, epoch),
        head=head, pending=pending, later=int(later_in_s is not None), later_in_s=later_in_s, due_in_s=due_in_s, n=n,
    )  # fmt: skip


def take(me, site, at_s=1.0, **what):
    me.found([site])
    return me.claimed(at_s, site, me.claim_epoch(site), answer(site, **what))


def visited(me, site):
    """Its visit, all but its end."""
    me.found([site])
    me.claimed(2.0, site, me.claim_epoch(site), answer(site))
    held = me.start(10.0, site)
    assert held is not None
    return held


def round_of(me, count):
    """A round that found nothing to do outside."""
    me.holding.begin_round()
    me.holding.saw(count)
    me.holding.end_round()


class Crowded(RuleBasedStateMachine):
    """One node, a store that answers claims and commits, views that come and go, and an origin that counts."""

    def __init__(self):
        super().__init__()
        self.me = owner()
        self.due = schedule.Schedule()
        self.now_s = 0.0
        self.epoch = 10
        self.tenures: dict[str, tuple[int, str, int]] = {}  # site -> (epoch, owner, n)
        self.pending = dict.fromkeys(SITES, 0)
        self.claims: list[str] = []
        self.asked_s: dict[str, float] = {}
        self.uncommitted: set[str] = set()
        self.visits: list[ownership.Held] = []

    def apply(self, effects, *, lost=False):
        for effect in effects:
            match effect:
                case ownership.Claim():
                    self.claims += effect.sites
                case ownership.Ready():
                    self.due.put(effect.site, effect.at_s, priority=effect.priority)
                case ownership.Released():
                    self.due.drop(effect.sites)
                    if not lost:  # they make room: nothing is on, all is committed
                        assert not self.uncommitted & set(effect.sites)

    def store(self, site, **what):
        return answer(site, pending=self.pending[site], **what)

    @initialize(pending=st.lists(st.integers(0, 3), min_size=len(SITES), max_size=len(SITES)))
    def begin(self, pending):
        self.pending = dict(zip(SITES, pending, strict=True))

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.1, 30.0]))
    def time_passes(self, seconds):
        self.now_s += seconds
        self.apply(self.me.ticked(self.now_s))

    @rule(sites=some_sites)
    def hints(self, sites):
        self.apply(self.me.found(sites))

    @rule(site=st.sampled_from(SITES))
    def offered(self, site):
        self.pending[site] += 1
        self.apply(self.me.found([site]))

    @rule()
    def goes_round(self):
        held = self.me.holding
        held.begin_round()
        ours = [site for site in SITES if self.me.owner_of(site) == "a"]
        held.saw(len(ours))
        for site in ours:
            if site not in self.me.sites:
                if held.room():
                    self.apply(self.me.found([site]))
                else:
                    held.refused()
            self.answers(pause=False)
        held.end_round()

    @rule(pause=st.booleans())
    def answers(self, pause):
        claims, self.claims = self.claims, []
        for site in claims:
            epoch = self.me.claim_epoch(site)
            if epoch is None:
                continue
            stored, by, n = self.tenures.get(site, (0, None, 0))
            if epoch < stored:
                self.apply(self.me.claimed(self.now_s, site, epoch, None))
                continue
            self.tenures[site] = (epoch, "a", n if epoch == stored else 0)
            if not any(held.site == site for held in self.visits):
                self.uncommitted.discard(site)
            found = self.store(
                site, owned_by=by, epoch=stored, n=self.tenures[site][2], due_in_s=500.0 if pause else 0.0
            )
            self.apply(self.me.claimed(self.now_s, site, epoch, found))

    @rule()
    def starts(self):
        site = self.due.take(self.now_s)
        if any(held.site == site for held in self.visits):  # as the runner does: one of an earlier tenure is ending
            self.due.put(site, self.now_s + 0.05, priority=0)
            return
        held = self.me.start(self.now_s, site) if site else None
        if held is not None:
            last_s = self.asked_s.get(site, -100.0)
            assert self.now_s - last_s >= DELAY_S, f"{site} was asked {self.now_s - last_s} s ago"
            self.asked_s[site] = self.now_s
            self.uncommitted.add(site)
            self.visits.append(held)

    @precondition(lambda self: self.visits)
    @rule(how=st.sampled_from(["committed", "committed", "paused", "failed"]))
    def ends(self, how):
        held = self.visits.pop(0)
        if held.phase is ownership.Phase.VISITING:
            self.asked_s[held.site] = self.now_s  # within a tenure a delay counts from the end, else from the start
        held.ready_s = max(held.ready_s, self.now_s + DELAY_S * agreement.SLACK)
        epoch, by, n = self.tenures[held.site]
        if (epoch, by) != (held.tenure, "a"):
            self.apply(self.me.fenced(held))
            return
        if how == "failed":
            self.apply(self.me.finished(self.now_s, held, None))
            return
        held.n += 1
        assert held.n == n + 1, "the running number goes on from the store's"
        self.tenures[held.site] = (epoch, by, held.n)
        self.pending[held.site] -= 1
        self.uncommitted.discard(held.site)
        record = self.store(held.site, n=held.n, due_in_s=500.0 if how == "paused" else 0.0)
        self.apply(self.me.finished(self.now_s, held, records.Committed(record=record)))

    @rule(members=st.sampled_from([ALONE, BOTH]), whole=st.booleans(), settled=st.booleans())
    def view_changes(self, members, whole, settled):
        before = self.epoch
        self.epoch += 10
        self.apply(
            self.me.adopted(self.now_s, adopt((self.epoch, view(members, previous=before)), whole=whole)), lost=True
        )
        # What is lost with its visit on is no longer waited for: taken up again it has a tenure of its own.
        self.uncommitted -= {held.site for held in self.visits if held.phase is ownership.Phase.LEAVING}
        if settled:
            self.apply(self.me.settled(self.now_s, agreement.Settle(self.epoch, {})))

    @invariant()
    def no_more_is_held_than_is_to_be(self):
        assert len(self.me.sites) <= HELD_MAX
        held = self.me.holding
        assert sorted(site for bucket in held._buckets.values() for site in bucket) == sorted(self.me.sites)
        assert set(held._spare) <= set(self.me.sites)
        walked = dict.fromkeys(self.me.phases(), 0)
        for one in self.me.sites.values():
            walked[one.phase] += 1
            assert self.me.owner_of(one.site) == "a"
        assert self.me.phases() == walked

    @invariant()
    def what_is_counted_is_what_is_held(self):
        self.me.ticked(self.now_s)  # what was lost is given back
        known = [held.record for held in self.me.sites.values() if held.record]
        assert self.me.holding.pending == sum(record.pending for record in known)
        assert self.me.holding.later == sum(record.later for record in known)

    @invariant()
    def it_is_not_quiet_while_one_outside_has_work(self):
        held = self.me.holding
        if held.outside and not held.unlooked():
            outside = [site for site in SITES if self.me.owner_of(site) == "a" and site not in self.me.sites]
            assert not any(self.pending[site] for site in outside)


Crowded.TestCase.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
test_sites_come_and_go = Crowded.TestCase


def test_an_idle_site_makes_room_first_and_one_with_work_not_before_its_share():
    me = owner()
    take(me, SITES[0], pending=0)
    take(me, SITES[1])
    take(me, SITES[2])
    assert of(me.found([SITES[3]]), ownership.Released) == [ownership.Released((SITES[0],))]
    assert me.found([SITES[4]]) == []
    assert SITES[4] not in me.sites
    for at_s in (10.0, 20.0):
        held = me.start(at_s, SITES[1])
        assert of(me.found([SITES[4]]), ownership.Released) == [], "a visit is on"
        me.finished(at_s, held, records.Committed(record=answer(SITES[1], n=1)))
    assert of(me.found([SITES[4]]), ownership.Released) == [ownership.Released((SITES[1],))]


def test_a_site_that_might_go_stays_from_the_start_of_a_visit_to_its_commit():
    me = owner(1, share_visits=1)
    me.holding.refused()
    take(me, SITES[0])
    me.finished(10.0, me.start(10.0, SITES[0]), records.Committed(record=answer(SITES[0], n=1)))
    assert me.holding.room() == 1
    held = me.start(20.0, SITES[0])
    assert me.found([SITES[1]]) == [], "its request is on"
    me.finished(21.0, held, None)
    assert me.found([SITES[1]]) == [], "what became of it is asked"
    me.claimed(22.0, SITES[0], 10, answer(SITES[0], n=1))
    assert of(me.found([SITES[1]]), ownership.Released) == [ownership.Released((SITES[0],))]


def test_a_site_that_might_go_stays_when_a_hint_has_come_for_it():
    me = owner(1)
    take(me, SITES[0], pending=0)
    assert of(me.found([SITES[0]]), ownership.Claim) == [ownership.Claim((SITES[0],))]
    assert me.found([SITES[1]]) == []
    me.claimed(2.0, SITES[0], 10, answer(SITES[0]))
    assert list(me.sites) == [SITES[0]]


def test_a_site_with_its_share_stays_while_nobody_waits_outside():
    me = owner(share_visits=1)
    take(me, SITES[0])
    me.finished(10.0, me.start(10.0, SITES[0]), records.Committed(record=answer(SITES[0], n=1)))
    assert me.holding.room() == HELD_MAX - 1


@pytest.mark.parametrize(
    ("what", "spare"),
    [
        ({"pending": 0}, True),
        ({"pending": 0, "later_in_s": 30.0}, False),
        ({"pending": 0, "later_in_s": 90.0}, True),
        ({"pending": 1}, False),
        ({"pending": 1, "due_in_s": 30.0}, False),
        ({"pending": 1, "due_in_s": 90.0}, True),
    ],
)
def test_what_makes_room_has_nothing_to_do_for_a_minute_and_a_delay(what, spare):
    me = owner()
    take(me, SITES[0], **what)
    assert (me.holding.room() == HELD_MAX) == spare


def test_a_slow_site_is_visited_before_it_makes_room():
    """Its delay is longer than a minute: let go at every claim, it would never be asked."""
    me = owner()
    me.found([SITES[0]])
    slow = msgspec.structs.replace(answer(SITES[0]), delay_s=300.0)
    me.claimed(1.0, SITES[0], me.claim_epoch(SITES[0]), slow)
    assert me.holding.room() == HELD_MAX - 1


def test_what_was_spare_and_is_due_soon_now_stays():
    me = owner(1)
    take(me, SITES[0], pending=0, later_in_s=90.0)
    me.ticked(50.0)
    assert me.found([SITES[1]]) == []
    assert list(me.sites) == [SITES[0]]


def test_of_those_that_may_go_one_that_is_due_soon_stays_and_one_that_comes_later_goes():
    me = owner(2)
    take(me, SITES[0], pending=0, later_in_s=90.0)
    take(me, SITES[1], pending=0, later_in_s=900.0)
    me.ticked(50.0)
    assert of(me.found([SITES[2]]), ownership.Released) == [ownership.Released((SITES[1],))]
    assert list(me.sites) == [SITES[0], SITES[2]]


def test_those_go_first_that_could_go_for_longest():
    me = owner()
    for site in SITES[:3]:
        take(me, site, pending=0)
    me.finished(10.0, visited(me, SITES[0]), records.Committed(record=answer(SITES[0], pending=0, n=1)))
    assert of(me.found(SITES[3:5]), ownership.Released) == [ownership.Released((SITES[1], SITES[2]))]


def test_a_robots_txt_that_is_being_followed_keeps_its_site():
    me = owner()
    take(me, SITES[0])
    held = me.start(10.0, SITES[0])
    held.following["http://site0.example/robots.txt"] = ("http://site0.example/r2", 1)
    me.finished(11.0, held, records.Committed(record=answer(SITES[0], pending=1, due_in_s=500.0, n=1)))
    assert me.holding.room() == HELD_MAX - 1
    me.holding.put_by(SITES[0])
    assert me.holding.room() == HELD_MAX - 1, "paused or not"


def test_what_is_paused_makes_room_and_counts_as_work_outside():
    me = owner(1)
    round_of(me, 2)
    take(me, SITES[0])
    me.holding.put_by(SITES[0])
    assert of(me.found([SITES[1]]), ownership.Released) == [ownership.Released((SITES[0],))]
    assert me.holding.unlooked()


def test_one_with_its_share_and_a_retry_in_a_moment_is_waited_for_though_it_went():
    me = owner(1, share_visits=1)
    me.holding.refused()
    take(me, SITES[0])
    round_of(me, 2)
    assert not me.holding.unlooked()
    retry = answer(SITES[0], pending=0, later_in_s=30.0, n=1)
    me.finished(10.0, me.start(10.0, SITES[0]), records.Committed(record=retry))
    assert of(me.found([SITES[1]]), ownership.Released) == [ownership.Released((SITES[0],))]
    assert me.holding.unlooked()


def test_what_went_last_is_left_alone_as_long_as_it_was_to_be_whatever_the_store_remembers():
    """P1: a store that crashed may have lost what lengthened its due a moment before it was let go."""
    me = owner(1)
    take(me, SITES[0])
    held = me.start(10.0, SITES[0])
    held.ready_s = 710.0
    me.finished(11.0, held, records.Committed(record=answer(SITES[0], due_in_s=699.0, n=1)))
    take(me, SITES[1], at_s=12.0, pending=0)
    assert me.holding.known() == [SITES[1], SITES[0]]
    take(me, SITES[0], at_s=20.0)
    assert me.sites[SITES[0]].ready_s == pytest.approx(712.0, abs=2.0)
    me.holding.put_by(SITES[0])
    me.found([SITES[2], SITES[3]])
    assert me.holding.known() == [SITES[2], SITES[1], SITES[0], SITES[3]]


def test_so_many_are_known_that_went_last():
    me = owner(1)
    names = [f"s{i}.example" for i in range(holding.LATELY_MAX + 5)]
    me.found(names)
    assert me.holding.known() == [names[0], *names[5:]]


def test_a_site_taken_up_again_is_no_move_and_goes_on_from_the_stores_number():
    me = owner(1)
    assert of(take(me, SITES[0], pending=0, owned_by="b", epoch=5, due_in_s=1.0), ownership.Moved)
    take(me, SITES[1], at_s=3.0, pending=0)
    assert of(take(me, SITES[0], at_s=5.0, pending=0, owned_by="b", epoch=5), ownership.Moved) == []
    take(me, SITES[1], at_s=6.0, pending=0)
    again = take(me, SITES[0], at_s=7.0, pending=0, n=4, owned_by="b", epoch=5, due_in_s=9.0)
    assert of(again, ownership.Moved) == []
    assert me.sites[SITES[0]].n == 4
    # Under a newer view its own last stay is the tenure before.
    take(me, SITES[1], at_s=8.0, pending=0)
    me.adopted(9.0, adopt((20, view(ALONE, previous=10))))
    me.settled(9.0, agreement.Settle(20, {}))
    assert of(take(me, SITES[0], at_s=9.0, owned_by="a", epoch=10, due_in_s=1.0), ownership.Moved) == []
    (ready_s,) = {held.ready_s for held in me.sites.values()}
    assert ready_s >= 10.0, "a full delay after the claim, as after any"


def test_memory_that_is_bounded_says_what_it_does_not_know():
    me = owner(2)
    held = me.holding
    assert (held.owned(), held.unlooked()) == (0, 0)
    me.found(SITES[:5])
    assert (held.owned(), held.unlooked()) == (2, 1)
    for site in SITES[:2]:
        me.claimed(1.0, site, 10, answer(site, pending=0))
    held.begin_round()
    held.saw(5)
    for site in SITES[2:5]:
        take(me, site, at_s=2.0, pending=0)
    held.end_round()
    assert (held.owned(), held.unlooked()) == (5, 0)
    me.found(SITES[5:9])
    assert held.unlooked() > 0, "two found no room, and who knows what they have to do"


def test_a_large_head_is_kept_short_where_many_are_held():
    me = owner(holding.LEAN_FROM + 10)
    names = [f"s{i}.example" for i in range(holding.LEAN_FROM + 1)]
    me.found(names)
    me.claimed(1.0, names[0], 10, answer(names[0], pending=20))
    record = me.sites[names[0]].record
    assert (len(record.head), record.pending) == (holding.LEAN_HEAD, 20)
