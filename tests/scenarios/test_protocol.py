"""P1 in virtual time: no two requests of a site start closer than its delay, whatever the network and processes do."""

import pytest

from node import ownership
from shared import agreement, records, views
from tests.scenarios import world

SEEDS = 40  # in each of the five settings: 200 runs
UNTIL_S = 90.0


@pytest.mark.parametrize("name", sorted(world.SETTINGS))
def test_no_gap_is_too_short(name):
    """200 seeded clusters of six processes and four ids: gaps kept, and sites do change hands."""
    contacts = moves = 0
    for seed in range(SEEDS):
        run = world.World(seed, world.SETTINGS[name])
        assert run.run(UNTIL_S) == [], f"seed {seed}"
        contacts += len(run.contacts)
        moves += world.moves(run.contacts)
    assert contacts > SEEDS * 50
    assert moves > SEEDS * 3


def test_every_site_is_visited_again_once_the_trouble_ends():
    """Liveness: after the last fault every site is contacted within TTL + VL + G + delay + 5 s."""
    calm = dict.fromkeys(world.SETTINGS["calm"], 0.0) | {"late": 0.5}
    for seed in range(10):
        run = world.World(seed, world.SETTINGS["churn"])
        run.run(60.0)
        healed = run.t
        run.p = calm
        for process in run.nodes:
            process.cut.clear()
            process.frozen_until = min(process.frozen_until, healed)
        bound_s = 10 + run.settings.rejoin_s + run.settings.silence_s + world.DELAY_S + 5
        assert run.run(healed + bound_s) == []
        late = {contact.site for contact in run.contacts if contact.at > healed}
        assert late == set(world.SITES), f"seed {seed}"


def test_a_drained_node_gives_up_its_overrides_before_it_leaves():
    """A site placed on the node that drains moves with the rest, and its next owner waits for the ack (rule 8)."""

    class Prompt(world.World):
        def latency(self):
            return 0.01

    quiet = dict.fromkeys(world.SETTINGS["calm"], 0.0)
    for seed in range(40):
        run = Prompt(seed, quiet)
        run.nodes = run.nodes[:3]
        run.run(20)
        run.etcd.overrides[world.SITES[0]] = "n0"
        run.etcd.write()
        run.run(40)
        assert run.contacts[-1].at > 30
        run.feed(run.nodes[0], agreement.Drain())
        assert run.run(60) == [], f"seed {seed}"
        assert {contact.site for contact in run.contacts if contact.at > 45} == set(world.SITES)


def test_an_emptied_etcd_beside_a_store_that_remembers_does_not_stop_the_crawl():
    """All nodes down, etcd new, the store's tenures later than any epoch of the new one: told by the store (rule 9)."""
    quiet = dict.fromkeys(world.SETTINGS["calm"], 0.0) | {"late": 0.1}
    run = world.World(3, quiet)
    run.run(30)
    for process in run.nodes:
        run.boot(process)
        process.down_until = 31.0
    run.etcd = world.Etcd()
    run.remembers = True
    run.claims = {site: (epoch + 5_000, owner) for site, (epoch, owner) in run.claims.items()}
    assert run.run(110) == []
    assert {contact.site for contact in run.contacts if contact.at > 40} == set(world.SITES)


# Each weakening of the rules below must be caught: a simulation that passes them all would prove nothing.


def caught(*settings: str, seeds: int = 80) -> bool:
    """Does any run show a gap that is too short? The first one that does ends the search."""
    return any(world.World(seed, world.SETTINGS[name]).run(UNTIL_S) for seed in range(seeds) for name in settings)


def test_no_wait_for_silent_owners_is_caught(monkeypatch):
    """Without VL + G a silent owner is overtaken (rule 6)."""
    monkeypatch.setattr(agreement.Settings, "silence_s", property(lambda _: 0.0))
    assert caught("strike")


def test_no_view_lease_is_caught(monkeypatch):
    """With G alone, authority of the earlier owner outlives the wait (rules 3 and 6)."""
    monkeypatch.setattr(agreement.Settings, "silence_s", property(lambda self: self.wire_s))
    assert caught("late")


def test_no_full_delay_is_caught(monkeypatch):
    """An owner that starts as soon as the others are past comes too close to their last request (rule 6)."""
    monkeypatch.setattr(ownership.Ownership, "_first_contact", lambda _self, now_s, _record: now_s)
    assert caught("calm")


def test_an_ack_before_the_stop_is_caught(monkeypatch):
    """A beat that names a view whose losses are still in flight lets the next owner in too early (rule 4)."""

    def at_once(self):
        if self._stopping is not None:
            stopped, self._stopping = self._stopping, None
            return [ownership.Stopped(stopped)]
        epoch = self.eras[-1].placement.epoch if self.eras else 0
        if epoch <= self.applied:
            return []
        self.applied = epoch
        return [ownership.Acknowledge(epoch)]

    monkeypatch.setattr(ownership.Ownership, "_acknowledge", at_once)
    assert caught("calm")


def test_views_without_elders_are_caught(monkeypatch):
    """Asking only the members of the newest view forgets who was in the one before (rule 2)."""
    whole = views._wanted

    def without(state: agreement.State, snapshot: agreement.Snapshot, _elders: object) -> records.View:
        return whole(state, snapshot, ())

    monkeypatch.setattr(views, "_wanted", without)
    assert caught("strike", "calm")
