"""From a failing run to the shortest plan that still fails: delta debugging over its moves, then over their numbers."""

from collections.abc import Callable
from dataclasses import replace

from tests.scenarios import judge, moves, world

Fails = Callable[[moves.Plan], bool]
MARGIN_S = 0.2


def shortest(plan: moves.Plan, *, runs_max: int = 4_000) -> tuple[moves.Plan, int]:
    """A plan that fails in the same way with as little in it as can be found; and how many runs that took.

    Call it with the rule weakened that the plan was found with.
    """
    budget = Budget(runs_max)
    plan = budget.cut(plan)
    while True:
        before = plan
        if plan.weather is not None:
            plan = budget.better(plan, replace(plan, weather=None))
        plan = budget.fewer_actors(plan)
        plan = budget.fewer_moves(plan)
        plan = budget.fewer_sites(plan)
        plan = budget.plainer(plan)
        if plan == before or budget.left <= 0:
            return plan, runs_max - budget.left


class Budget:
    """Tries candidates, so many and no more."""

    def __init__(self, runs: int) -> None:
        self.left = runs

    def fails(self, plan: moves.Plan) -> judge.Pair | None:
        if self.left <= 0:
            return None
        self.left -= 1
        return world.World(plan).run()

    def cut(self, plan: moves.Plan) -> moves.Plan:
        """Nothing after the second request matters."""
        run = world.World(plan)
        self.left -= 1
        if run.run() is None:
            raise ValueError("the plan to be shortened does not fail")
        return replace(
            plan, until_s=round(run.t + MARGIN_S, 2), moves=tuple(move for move in plan.moves if move.at_s <= run.t)
        )

    def better(self, plan: moves.Plan, candidate: moves.Plan) -> moves.Plan:
        return self.cut(candidate) if self.fails(candidate) else plan

    def fewer_moves(self, plan: moves.Plan) -> moves.Plan:
        """Zeller's ddmin, complements only: take away ever smaller pieces."""
        size = max(len(plan.moves) // 2, 1)
        while plan.moves and self.left > 0:
            at, taken = 0, False
            while at < len(plan.moves):
                candidate = replace(plan, moves=plan.moves[:at] + plan.moves[at + size :])
                if self.fails(candidate):
                    plan, taken = self.cut(candidate), True
                else:
                    at += size
            if size > 1:
                size = max(size // 2, 1)
            elif not taken:
                break
        return plan

    def fewer_actors(self, plan: moves.Plan) -> moves.Plan:
        """Leave processes away, and let the rest be there from the start, on equal clocks."""
        for slot in reversed(range(len(plan.actors))):
            plan = self.better(plan, without(plan, slot))
        for slot, actor in enumerate(plan.actors):
            for simple in (replace(actor, rate=1.0), replace(actor, starts_s=0.0)):
                if simple != plan.actors[slot]:
                    plan = self.better(plan, replace(plan, actors=swapped(plan.actors, slot, simple)))
        return plan

    def fewer_sites(self, plan: moves.Plan) -> moves.Plan:
        for site in plan.sites:
            if len(plan.sites) > 1:
                rest = tuple(other for other in plan.sites if other != site)
                kept = tuple(move for move in plan.moves if move.site != site)
                plan = self.better(plan, replace(plan, sites=rest, moves=kept))
        return plan

    def plainer(self, plan: moves.Plan) -> moves.Plan:
        """Round numbers read better."""
        for at in range(len(plan.moves)):
            for digits in (0, 1, 2):
                if at >= len(plan.moves):
                    break
                move = plan.moves[at]
                simple = replace(move, at_s=round(move.at_s, digits), seconds=round(move.seconds, digits))
                if simple == move:
                    break
                candidate = replace(plan, moves=swapped(plan.moves, at, simple))
                if self.fails(candidate):
                    plan = replace(candidate, moves=tuple(sorted(candidate.moves, key=lambda move: move.at_s)))
                    break
        return plan


def swapped(items: tuple, at: int, item: object) -> tuple:  # type: ignore[type-arg]
    return (*items[:at], item, *items[at + 1 :])


def without(plan: moves.Plan, slot: int) -> moves.Plan:
    """The plan with one process less, and none of its moves."""
    kept = [
        replace(move, who=move.who - (move.who > slot)) if move.who >= 0 else move
        for move in plan.moves
        if move.who != slot
    ]
    return replace(plan, actors=plan.actors[:slot] + plan.actors[slot + 1 :], moves=tuple(kept))


def told(plan: moves.Plan, *, head: str = "", since_s: float = 0.0) -> str:
    """The transcript of a failing plan."""
    run = world.World(plan, telling=True)
    pair = run.run()
    if pair is None:
        return f"{head}\nno two requests came too close"
    return judge.transcript((line for line in run.told if line[0] >= since_s), pair, head=head)
