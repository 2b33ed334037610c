"""One run of a schedule on a real store: nodes that ask as the runner does, and after each call the judgement."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import redis

from shared import errors, frontier, records
from tests.stores import shapes
from tests.stores.amnesia import ledger, schedules
from tests.stores.amnesia.schedules import CLASSES, DELAY_S, PAGES_MAX, SITES, URLS, Move, Plan

SAVES_MAX = 6
START_S = 1_800_000_000
CLOCK = "schedule-clock"

READ = """
local out = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  local kind, held = redis.call('TYPE', key).ok, {}
  if kind == 'hash' then held = redis.call('HGETALL', key)
  elseif kind == 'list' then held = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'set' then held = redis.call('SMEMBERS', key)
  elseif kind == 'zset' then held = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
  out[#out + 1] = {key, kind, held}
end
return out
"""
SAVE = """
local out = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
  out[#out + 1] = key
  out[#out + 1] = redis.call('DUMP', key)
end
return out
"""
LOAD = """
for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end
for i = 2, #ARGV, 2 do redis.call('RESTORE', ARGV[i], 0, ARGV[i + 1]) end
"""


@dataclass(slots=True)
class Call:
    """Something asked of the store, as often as it gets there."""

    says: str
    sites: tuple[str, ...]
    ask: Callable[[frontier.Frontier], Awaitable[Any]]
    judge: Callable[["World", Any], None]
    stands: Callable[["World", Any], bool] = lambda _world, _answer: True
    """Does the store still hold what it answered?"""
    lasting: bool = True


@dataclass(slots=True)
class Hold:
    """What a node knows of a site that it holds, or asks to."""

    tenure: int
    waiting: Call | None
    """Asked for and not answered: it is asked for again before anything else."""
    record: records.SiteRecord | None = None
    n: int = 0


@dataclass(slots=True)
class Saved:
    dumps: list[bytes]
    books: dict[str, ledger.Ledger]


@dataclass(slots=True)
class Figures:
    calls: int = 0
    repeated: int = 0
    fenced: int = 0
    forgotten: int = 0
    lapses: int = 0
    counted: int = 0
    """Attempts told that a tenure before ended at their page."""


@dataclass(slots=True)
class Failure:
    promise: str
    told: list[str] = field(default_factory=list)


class World:
    """One run of a plan on one store."""

    def __init__(self, plan: Plan, desk: frontier.Frontier, raw: "redis.Redis[bytes]", *, figures: Figures) -> None:
        self.plan, self.desk, self.raw, self.figures = plan, desk, raw, figures
        self.told: list[str] = []
        self.pattern = f"cr:{desk.cluster}:*"
        self.clock_s = START_S
        self.epoch = 0
        self.calls: dict[int, Call] = {}
        self.holds: dict[tuple[str, str], Hold] = {}
        self.books = {site: ledger.Ledger(site) for site in SITES}
        self.keys: dict[str, ledger.Keys] = {site: {} for site in SITES}
        self.saves: list[Saved] = []
        self.promised: list[Callable[[], bool]] = []
        """Of each answer that a node heard of a strict store: does it stand?"""

    async def run(self) -> Failure | None:
        self.raw.set(CLOCK, self.clock_s)
        self.save()
        try:
            for move in self.plan.moves:
                await getattr(self, f"do_{move.kind}")(move)
        except ledger.BrokenError as error:
            return Failure(str(error), self.told)
        finally:
            self.raw.eval(LOAD, 0, self.pattern)
        return None

    # --- moves ----------------------------------------------------------------------------------------------

    async def do_offer(self, move: Move) -> None:
        rng = random.Random(move.salt)
        sites = SITES if rng.random() < 0.2 else (move.site,)
        numbers = [rng.randrange(URLS) for _ in range(rng.randint(1, 6))]
        offers = [
            shapes.offer(number, site, priority=CLASSES[number % 3], again=rng.random() < 0.15)
            for site in sites
            for number in numbers
        ]

        def judge(world: World, verdicts: list[str]) -> None:
            expected = []
            for site in sites:
                part = [one for one in offers if one.site == site]
                expected += world.books[site].offer(part, pages_max=PAGES_MAX, now_ms=world.now_ms)
            ledger.must(verdicts == expected, f"the verdicts are {verdicts}, not {expected}")

        def stands(world: World, verdicts: list[str]) -> bool:
            taken = [one for one, verdict in zip(offers, verdicts, strict=True) if verdict in {"accepted", "known"}]
            return all(one.url in world.books[one.site].seen for one in taken)

        said = "offer " + " ".join(
            f"{number}{'!' if one.again else ''}" for number, one in zip(numbers, offers, strict=False)
        )
        call = Call(said, sites, lambda desk: shapes.offered(desk, *offers, pages_max=PAGES_MAX), judge, stands)
        await self.made(move, call)

    async def do_view(self, move: Move) -> None:
        """The next epoch gives the site to this node, which claims it; the owner before it may not know yet."""
        self.epoch += 1
        call = self._claim(move, self.epoch, again=False)
        hold = self.holds[move.node, move.site] = Hold(self.epoch, call)
        self.hear(move, hold, await self.made(move, call))

    async def do_reclaim(self, move: Move) -> None:
        """An owner reads its site again."""
        hold = self.holds.get((move.node, move.site))
        if hold is not None and hold.record and not hold.waiting:
            self.hear(move, hold, await self.made(move, self._claim(move, hold.tenure, again=True)))

    async def do_commit(self, move: Move) -> None:
        """An owner that waits for no answer ends a visit."""
        hold = self.holds.get((move.node, move.site))
        if hold is None or hold.waiting or not hold.record:
            return
        n, tenure, change = hold.n + 1, hold.tenure, schedules.drawn(hold.record, random.Random(move.salt))

        def judge(world: World, answer: records.Committed | str) -> None:
            book = world.books[move.site]
            said = book.commit(move.node, tenure, n, change, now_ms=world.now_ms)
            if isinstance(answer, str):
                ledger.must(said == answer, f"the commit was fenced, not {said}")
                return
            words = {(False, False): "applied", (True, False): "repeated", (False, True): "forgotten"}
            word = words[answer.repeated, answer.forgotten]
            ledger.must(word == said, f"the commit was {word}, not {said}")
            ledger.must(not (world.plan.strict and said == "forgotten"), "strict, and the store forgot")
            book.check_answer(answer.record, world.keys[move.site])
            world.figures.forgotten += said == "forgotten"

        async def ask(desk: frontier.Frontier) -> records.Committed | str:
            try:
                return await desk.commit(move.site, move.node, tenure, n, change)
            except errors.StaleEpoch:
                return "fenced"

        def stands(world: World, answer: records.Committed | str) -> bool:
            return answer == "fenced" or (tenure, n) in world.books[move.site].applied

        says = f"{move.node} commits {move.site} tenure {tenure} n {n}: {schedules.shown(change)}"
        hold.waiting = Call(says, (move.site,), ask, judge, stands)
        self.hear(move, hold, await self.made(move, hold.waiting))

    async def do_attempt(self, move: Move) -> None:
        """An owner notes with which page it begins, where the tenure before ended without a commit."""
        hold = self.holds.get((move.node, move.site))
        if hold is None or hold.waiting or not hold.record or hold.n or not hold.record.barren or not hold.record.head:
            return
        tenure, url = hold.tenure, hold.record.head[0].url

        def judge(world: World, answer: int | str) -> None:
            said = world.books[move.site].attempt(move.node, tenure, url)
            ledger.must(answer == said, f"tenures that ended at this page: {answer}, not {said}")
            world.figures.counted += isinstance(answer, int) and answer > 0

        async def ask(desk: frontier.Frontier) -> int | str:
            try:
                return await desk.attempt(move.site, move.node, tenure, url)
            except errors.StaleEpoch:
                return "fenced"

        says = f"{move.node} begins tenure {tenure} of {move.site} with {schedules.number_of(url)}"
        await self.made(move, Call(says, (move.site,), ask, judge, lasting=False))

    async def do_retry(self, move: Move) -> None:
        """A node that had no answer asks again, and hears."""
        hold = self.holds.get((move.node, move.site))
        if hold is not None and hold.waiting:
            self.hear(move, hold, await self.deliver(move, hold.waiting, heard=move.fate == "heard", again=True))

    async def do_resend(self, move: Move) -> None:
        """A call of long ago arrives, once more or at last, and nobody waits for its answer."""
        call = self.calls.get(move.salt)
        if call is not None:
            self.figures.repeated += 1
            await self.deliver(move, call, heard=False, again=True)

    async def do_tick(self, move: Move) -> None:
        self.clock_s += move.salt
        self.raw.set(CLOCK, self.clock_s)
        self.tell(move, f"{move.salt} s pass")

    async def do_save(self, move: Move) -> None:
        self.tell(move, "what a replica has by now")
        self.save()

    async def do_forget(self, move: Move) -> None:
        """A replica that lags is promoted; its clock may be behind."""
        if not self.saves:
            return
        back = move.salt % len(self.saves)
        self.saves = self.saves[: len(self.saves) - back]
        saved = self.saves[-1]
        self.raw.eval(LOAD, 0, self.pattern, *saved.dumps)
        self.books = {site: book.copy() for site, book in saved.books.items()}
        if move.fate == "behind":
            self.clock_s -= 3
            self.raw.set(CLOCK, self.clock_s)
        self.figures.lapses += 1
        self.tell(
            move, f"the store goes back to an earlier state{', its clock to 3 s ago' if move.fate == 'behind' else ''}"
        )
        self.keys = self.read()
        self.check()

    # --- calls ----------------------------------------------------------------------------------------------

    def _claim(self, move: Move, epoch: int, *, again: bool) -> Call:
        def judge(world: World, record: records.SiteRecord | None) -> None:
            book = world.books[move.site]
            granted = book.claim(move.node, epoch, delay_ms=round(DELAY_S * 1000), now_ms=world.now_ms)
            ledger.must(granted == (record is not None), f"the claim was {'granted' if record else 'refused'}")
            if record is not None:
                book.check_answer(record, world.keys[move.site])

        async def ask(desk: frontier.Frontier) -> Any:
            (answer,) = await desk.claim([move.site], move.node, epoch, delay_s=DELAY_S, again=again)
            return answer

        def stands(world: World, record: records.SiteRecord | None) -> bool:
            book = world.books[move.site]
            return record is None or (book.epoch, book.owner) == (epoch, move.node) or book.epoch > epoch

        says = f"{move.node} claims {move.site} under {epoch}{' again' if again else ''}"
        return Call(says, (move.site,), ask, judge, stands, lasting=not again)

    async def made(self, move: Move, call: Call) -> Any:
        self.calls[move.number] = call
        if move.fate == "lost":
            self.tell(move, f"{call.says} (not there yet)")
            return None
        return await self.deliver(move, call, heard=move.fate == "heard")

    async def deliver(self, move: Move, call: Call, *, heard: bool, again: bool = False) -> Any:
        if not heard:
            self.save()
        self.figures.calls += 1
        before = self.keys
        answer = await call.ask(self.desk)
        self.keys = self.read()
        self.tell(
            move,
            f"{'once more: ' if again else ''}{call.says} -> {schedules.spoken(answer)}{'' if heard else ' (unheard)'}",
        )
        for site in SITES:
            ledger.check_due(before[site], self.keys[site])
            if answer == "fenced" or (answer is None and site in call.sites):
                ledger.check_fenced(before[site], self.keys[site])
            ledger.must(site in call.sites or before[site] == self.keys[site], f"{site} changed, which is not its site")
        self.figures.fenced += answer in ("fenced", None)
        call.judge(self, answer)
        self.check()
        if heard and call.lasting and self.plan.strict:
            if self.plan.honest:
                self.saves.clear()
            self.promised.append(lambda: call.stands(self, answer))
        return answer if heard else None

    def hear(self, move: Move, hold: Hold, answer: Any) -> None:
        """As node.ownership does: a newer tenure ends this one, and its own number never goes back."""
        if answer is None and (move.fate != "heard" or hold.waiting is None):
            return
        if answer is None or answer == "fenced":
            self.holds.pop((move.node, move.site), None)
            return
        hold.waiting = None
        hold.record = answer.record if isinstance(answer, records.Committed) else answer
        assert hold.record is not None
        hold.n = max(hold.n, hold.record.n)

    @property
    def now_ms(self) -> int:
        return self.clock_s * 1000

    def tell(self, move: Move, what: str) -> None:
        self.told.append(f"{move.number:4} {self.clock_s - START_S:5} s  {what}")

    # --- the store's bytes ----------------------------------------------------------------------------------

    def check(self) -> None:
        for site, book in self.books.items():
            book.check(self.keys[site])
            ledger.must(all(stands() for stands in self.promised), "what a strict store answered for is gone")
            ledger.must(not book.seen or site in self.indexed, f"{site} has URLs and is in no index")

    def save(self) -> None:
        dumps = self.raw.eval(SAVE, 0, self.pattern)
        books = {site: book.copy() for site, book in self.books.items()}
        self.saves = [*self.saves[1 - SAVES_MAX :], Saved(dumps, books)]  # type: ignore[arg-type]

    def read(self) -> dict[str, ledger.Keys]:
        found: dict[str, ledger.Keys] = {site: {} for site in SITES}
        self.indexed: set[str] = set()
        for key, kind, held in self.raw.eval(READ, 0, self.pattern):  # type: ignore[union-attr]
            name = key.decode()
            if ":index:" in name:
                self.indexed.update(site.decode() for site in held[::2])
            elif "{" in name:
                site, _, last = name.partition("{")[2].partition("}:")
                found[site][last] = shaped(last, kind.decode(), held)
        return found


def shaped(last: str, kind: str, held: list[bytes]) -> Any:
    if last.startswith("pages:") or last == "robots":
        return {name.decode(): packed for name, packed in zip(held[::2], held[1::2], strict=True)}
    texts = [one.decode() for one in held]
    match kind:
        case "list":
            return texts
        case "set":
            return set(texts)
        case "zset":
            return {name: float(at) for name, at in zip(texts[::2], texts[1::2], strict=True)}
        case _:
            return dict(zip(texts[::2], texts[1::2], strict=True))
