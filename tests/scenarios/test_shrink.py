"""A run can be had again from its moves alone, made shorter, and read."""

import re

import pytest

from tests.scenarios import chaos, directed, moves, mutations, shrink, world
from tests.scenarios.moves import Move


@pytest.mark.parametrize("name", sorted(chaos.SETTINGS))
def test_the_moves_of_a_run_give_the_same_run_again(name):
    """Nothing is left to chance once what was drawn is written down; as JSON too."""
    run = chaos.world(5, name)
    run.run(40.0)
    again = world.World(moves.from_json(moves.to_json(chaos.played(run))))
    again.run(40.0)
    assert again.contacts == run.contacts
    assert again.etcd.revision == run.etcd.revision
    assert len(run.played) > 50


def test_a_failing_run_shrinks_to_a_few_moves_and_is_told():
    """Without VL + G: a node that lost etcd, a site that moves on at once, two requests; nothing else is left."""
    with mutations.weakened("no-silence"):
        run = chaos.world(0, "calm")
        assert run.run() is not None
        plan, runs = shrink.shortest(chaos.played(run), runs_max=400)
        text = shrink.told(plan, head="without VL + G")
    assert runs <= 400
    assert len(plan.moves) <= 4 < len(run.played)
    assert len(plan.sites) == 1
    head, *lines = text.splitlines()
    assert head == "without VL + G"
    events, (verdict, first, second) = lines[:-4], lines[-3:]
    assert all(re.fullmatch(r" *\d+\.\d\d  \S* +\S.*", line) for line in events), events
    assert re.fullmatch(r"s\d\.example: two requests \d\.\d{3} s apart, 1 s are owed", verdict)
    told = r" *\d+\.\d\d  n\d'? +gained with view \d+, .*; tenure \d+, authority for another \d+\.\d\d s.*"
    assert re.fullmatch(told, first)
    assert re.fullmatch(told, second)


def test_a_transcript_says_why_the_second_node_thought_that_it_might():
    """The schedule against a wait of G alone, word for word at its end."""
    with mutations.weakened("no-VL"):
        text = shrink.told(directed.PLANS["no-VL"], since_s=directed.AT_S - 1.2)
    assert text == TOLD


TOLD = """\
   13.04        s0.example is asked to be placed on n1
   13.12  n0    asks s0.example
   13.12  n2    asks s1.example
   14.00        n0 cannot reach etcd with its watch for 9 s
   14.00        n0 cannot reach etcd with its look for 9 s
   14.00        n0 cannot reach etcd with its confirm for 9 s
   14.00        n0 cannot reach etcd with its propose for 9 s
   14.24  n0    asks s0.example
   14.24  n2    asks s1.example
   14.48  n1    proposed view 47 of n0/2, n1/3, n2/4; elders n0/2, n1/3, n2/4; s0.example on n1; s1.example on n2
   14.56  n1    adopts view 47
   14.56  n2    adopts view 47
   14.64  n1    has acknowledged view 47
   14.64  n2    has acknowledged view 47
   15.36  n0    asks s0.example
   15.36  n2    asks s1.example
   16.48  n0    asks s0.example
   16.48  n2    asks s1.example
   16.88  n1    claims s0.example under view 47: gained with view 47, seen 2.32 s before
   17.60  n0    asks s0.example
   17.60  n2    asks s1.example
   18.00  n1    asks s0.example

s0.example: two requests 0.400 s apart, 1 s are owed
   17.60  n0    gained with view 7, seen 2.32 s before; tenure 7, authority for another 0.68 s
   18.00  n1    gained with view 47, seen 2.32 s before; tenure 47, authority for another 4.68 s"""


def test_a_plan_that_does_not_fail_is_not_shortened():
    with pytest.raises(ValueError, match="does not fail"):
        shrink.shortest(directed.PLANS["no-VL"])


def test_without_a_process_the_others_keep_their_moves():
    plan = moves.Plan(moves.cast("a", "b", "c"), (Move(1, "freeze", 0), Move(2, "freeze", 1), Move(3, "freeze", 2)))
    less = shrink.without(plan, 1)
    assert [actor.name for actor in less.actors] == ["a", "c"]
    assert [(move.at_s, move.who) for move in less.moves] == [(1, 0), (3, 1)]
