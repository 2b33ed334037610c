"""A drill under way: connected to a running `up`, with what there was before, and what is seen meanwhile.

It only looks: at the records, the nodes' reports, the view and the handoff log. What may fail on purpose is looked at
again.
"""

import argparse
import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from coordinator import auditing, control, demo_report, drill_report, watching
from shared import clock, config, errors, keys, records

if TYPE_CHECKING:
    from shared import agreement, frontier

LOOK_S = 0.3
BEFORE_S = 60  # of the logs before the fault: a page that is asked for again was asked for within this time
REJOIN_S = 12.0  # a killed lease's node stays out so long: its sites are asked for by others meanwhile
SILENT_S = 3.0  # a freeze or a cut outlasts by this much what a node may be silent for
LOOKS_AT_ONCE = 64
FRESH_MS = 3_000  # a node reports every second


@dataclass(slots=True)
class Scene:
    """A drill under way."""

    fault: drill_report.Fault
    link: control.Link
    store: "frontier.Frontier"
    node: str | None
    stores: tuple[control.Store, ...]
    seconds: float
    interrupts: watching.Interrupts
    ticker: watching.Ticker
    store_ahead_ms: int = 0
    """The store's TIME less this machine's wall clock: the handoff log has the store's."""
    began_ms: int = 0
    healed_ms: int | None = None
    first_s: float = 0.0
    """Of boot time, when it began."""
    entries: list[records.Handoff] = field(default_factory=list)
    """The handoff log since a little before it began."""
    last_entry: str = "-"

    @property
    def settings(self) -> config.Config:
        return self.link.hello.settings

    @property
    def moves(self) -> list[demo_report.Move]:
        """Sites that left the node, for whatever reason, since it began."""
        if self.node is None:
            return []
        return demo_report.moves_from(self.node, self.entries, since_ms=self.began_ms + self.store_ahead_ms)


@dataclass(frozen=True, slots=True)
class Before:
    """What there was when it began."""

    counts: dict[str, drill_report.Counts]
    owned: frozenset[str]
    """Sites of the node, or of all."""
    incarnation: int | None

    @property
    def pending(self) -> int:
        return sum(self.counts[site].pending for site in self.owned)


class Interrupted(errors.CrawlError):
    """Ctrl-C: heal, and report nothing."""


@contextlib.asynccontextmanager
async def opened(args: argparse.Namespace) -> AsyncIterator[Scene]:
    """Connected to `up` and to its store; all that can be wrong is told before anything is broken."""
    from shared import frontier  # noqa: PLC0415 - heavy: `crawlring --help` must not wait for it

    link = await control.Link.open(args.data)
    async with contextlib.AsyncExitStack() as closing:
        closing.push_async_callback(link.close)
        hello = link.hello
        store = await frontier.Frontier.open(hello.settings.redis, hello.settings.cluster)
        closing.push_async_callback(store.close)
        scene = Scene(
            fault=args.fault,
            link=link,
            store=store,
            node=None if args.fault == "restart-store" else await _victim(args.node, hello, store),
            stores=_stores(args, hello),
            seconds=_lasts(args, hello.settings.membership),
            interrupts=watching.Interrupts(),
            ticker=watching.Ticker(),
        )
        asked_ms = clock.wall_ms()
        stored_ms = await store.ping()
        scene.store_ahead_ms = stored_ms - (asked_ms + clock.wall_ms()) // 2
        scene.last_entry = f"{stored_ms - BEFORE_S * 1000}-0"
        yield scene


async def _victim(wanted: str | None, hello: control.Hello, store: "frontier.Frontier") -> str:
    """The node to break: it runs, is a member, and is not the only one."""
    seen = await asyncio.to_thread(look, hello.settings)
    members = set(seen.view.members if seen.view else ()) & set(hello.nodes)
    if wanted is not None and wanted not in members:
        raise errors.ConfigError(
            f"{wanted} is no node that runs and has joined: {', '.join(sorted(members)) or 'none'}"
        )
    if len(members) < 2:
        raise errors.ConfigError("its sites would have nowhere to go: start `crawlring up` with --nodes 2 or more")
    if wanted is not None:
        return wanted
    reports = await store.reports(sorted(members))
    return max(sorted(members), key=lambda node: reports[node].pending if node in reports else -1)


def _stores(args: argparse.Namespace, hello: control.Hello) -> tuple[control.Store, ...]:
    """Which stores are restarted, or cut off; ConfigError where this `up` cannot."""
    chosen: dict[str | None, tuple[control.Store, ...]] = {"etcd": ("etcd",), "redis": ("redis",)}
    both: tuple[control.Store, ...] = ("redis", "etcd")
    if args.fault == "partition":
        if not hello.relayed:
            raise errors.ConfigError(
                "no relay stands between the nodes and their stores: start `crawlring up --drills`"
            )
        return chosen.get(args.cut_from or "etcd", both)
    if args.fault != "restart-store":
        return ()
    stores = chosen.get(args.store, both)
    if not set(stores) <= set(hello.stores):
        raise errors.ConfigError("only a store that `crawlring up` has started itself can be restarted")
    return stores


def _lasts(args: argparse.Namespace, member: config.Membership) -> float:
    """What was asked for, or long enough that something happens."""
    if args.seconds is not None:
        seconds: float = args.seconds
        return seconds
    match args.fault:
        case "kill-lease":
            return REJOIN_S
        case "restart-store":
            return member.view_lease_s + member.wire_s + SILENT_S
        case _:
            return drill_report.silence_s(member) + SILENT_S


async def before(scene: Scene) -> Before:
    known = await counts(scene.store)
    seen = await asyncio.to_thread(look, scene.settings)
    if scene.node is None or seen.view is None:
        return Before(known, frozenset(known), None)
    from shared import placement  # noqa: PLC0415 - heavy, as above

    owners = placement.Placement.of(seen.view, seen.epoch)
    owned = frozenset(site for site in known if owners.owner(site) == scene.node)
    return Before(known, owned, seen.view.members[scene.node].incarnation)


async def at_work(scene: Scene, nodes: Sequence[str]) -> bool:
    """All of them say so, of a moment ago."""
    reports = await scene.store.reports(nodes)
    now_ms = clock.wall_ms()
    since_ms = max(scene.healed_ms or scene.began_ms, now_ms - FRESH_MS)
    return all(
        node in reports and reports[node].state == "member" and reports[node].time_ms > since_ms for node in nodes
    )


def elapsed(scene: Scene, seconds: float, *, since_s: float | None = None) -> Callable[[], Awaitable[bool]]:
    begin_s = scene.first_s if since_s is None else since_s

    async def over() -> bool:
        return clock.boot_s() - begin_s >= seconds

    return over


async def until(scene: Scene, condition: Callable[[], Awaitable[bool]], *, within_s: float) -> bool:
    """Follow the handoff log and show progress until the condition holds; False when the time is over."""
    deadline_s = clock.boot_s() + within_s
    while clock.boot_s() < deadline_s:
        with contextlib.suppress(errors.StoreUnavailable):  # a store may be away on purpose: look again
            await follow(scene)
        with contextlib.suppress(errors.StoreUnavailable):
            if await condition():
                return True
        moves = scene.moves
        asked = sum(move.first is not None for move in moves)
        elapsed_s = clock.boot_s() - scene.first_s
        moved = f"{len(moves)} sites moved, {asked} of them asked again" if scene.node else "no site moves"
        scene.ticker.show(f"{elapsed_s:3.0f} s  {moved}")
        await scene.interrupts.wait(LOOK_S)
        if scene.interrupts.count:
            raise Interrupted
        if scene.link.ended:
            raise errors.StoreUnavailable("`crawlring up` has ended, and the drill with it")
    return False


async def follow(scene: Scene) -> None:
    """Take in what the handoff log has got since."""
    while page := await scene.store.read_handoffs(scene.last_entry, at_most=auditing.HANDOFFS_AT_A_TIME):
        scene.entries += [entry for _, entry in page]
        scene.last_entry = page[-1][0]


async def idle(scene: Scene) -> set[str]:
    """Sites that moved with something pending and now have nothing (robots.txt forbids it), or have moved on."""
    newest: dict[str, int] = {}
    for entry in scene.entries:
        if entry.kind == "moved" and entry.site is not None:
            newest[entry.site] = max(newest.get(entry.site, 0), entry.epoch)
    found = set()
    for move in drill_report.waiting(scene.moves):
        site = move.moved.site or ""
        look = await scene.store.look(site) if newest[site] == move.moved.epoch else None
        if look is None or not look["pending"]:
            found.add(site)
    return found


async def counts(store: "frontier.Frontier") -> dict[str, drill_report.Counts]:
    """Of every site there is."""
    whole = [(shard, shard << 40, (shard + 1 << 40) - 1) for shard in range(keys.INDEX_SHARDS)]
    found: dict[str, drill_report.Counts] = {}
    async for page in store.sites_in(whole):
        for at in range(0, len(page), LOOKS_AT_ONCE):
            part = page[at : at + LOOKS_AT_ONCE]
            looks = await asyncio.gather(*(store.look(site) for site in part))
            found |= {site: drill_report.counts(look) for site, look in zip(part, looks, strict=True) if look}
    return found


def look(settings: config.Config) -> "agreement.Snapshot":
    from coordinator import agreed  # noqa: PLC0415 - etcd's client is not needed for --help

    return agreed.look(settings)
