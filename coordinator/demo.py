"""`crawlring demo`: a whole crawl on this machine; a node is lost half way, and the origins' own log is the judge.

It starts the small web, both stores and three nodes, kills one node's lease while it owns many sites, and ends
with status 0 only if every page is accounted for and no gap was too short.
"""

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from coordinator import cli, demo_report, local, nodes, origin_log, small_web, up, watching
from shared import clock, config, errors, keys

if TYPE_CHECKING:
    from shared import frontier, records

NODES = ("n1", "n2", "n3")
DELAY_S = 0.5
REJOIN_S = 12.0  # long enough to watch its sites move, short enough to see it come back
SITES_MIN = 60  # the node that is lost owns at least this many
AGAIN_MIN = 200  # requests of the recrawl before the kill, so that change rates are known and move too
CRAWL_S = 170.0  # the whole of it, on two cores
LOOK_S = 0.25
USER_AGENT = "crawlring-demo/1.0 (+https://localhost/demo)"
SETTINGS = {
    "CRAWLRING_RECRAWL__INTERVAL_MIN_S": "4",
    "CRAWLRING_RECRAWL__INTERVAL_START_S": "4",
    "CRAWLRING_RECRAWL__INTERVAL_MAX_S": "60",
    "CRAWLRING_RECRAWL__VISITS_PER_PAGE_DAY": "6000",  # more, and the nodes of a busy machine do little else
    "CRAWLRING_POLITENESS__BACKOFF_MIN_S": "3",  # a broken page is tried again within the demo
    "CRAWLRING_POLITENESS__ROBOTS_ERROR_TTL_S": "5",
    "CRAWLRING_LIMITS__ATTEMPTS_MAX": "2",
}
EPILOG = """examples:
  crawlring demo
  crawlring demo --data demo-data      keep everything there, to look at afterwards

exit status: 0 every promise was kept, 1 one was not"""


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything the demo plays with."""

    web: small_web.Web
    settings: config.Config
    data: Path
    crew: nodes.Crew
    store: "frontier.Frontier"
    ledger: origin_log.Ledger
    interrupts: watching.Interrupts
    ticker: watching.Ticker
    started_s: float


class Ended(errors.CrawlError):
    """The demo ends without a verdict, with this exit status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `demo` to the command line."""
    parser = commands.add_parser(
        "demo",
        help="a whole crawl on this machine, with a node lost half way",
        description="A small web, both stores and three nodes on this machine; one node is lost half way.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="an empty folder (default: a temporary one)")
    parser.add_argument("--seed", type=int, default=7, metavar="N", help="which web (default 7)")
    parser.add_argument(
        "--sites", type=int, default=small_web.SITES, metavar="N", help=f"how many sites (default {small_web.SITES})"
    )
    parser.add_argument(
        "--largest",
        type=int,
        default=small_web.LARGEST,
        metavar="N",
        help=f"pages of the largest site (default {small_web.LARGEST})",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Play it; 0 only if all holds."""
    from coordinator import web_demo  # noqa: PLC0415 - heavy: `crawlring --help` must not wait for it

    data = _empty_folder(args.data)
    web = small_web.build(args.seed, sites=args.sites, largest=args.largest)
    wanted = sum(1 for _ in web.pages())
    print(f"the web: {len(web.sites)} sites, {wanted:,} URLs, {len(web.seeds())} of them seeds; all in {data}")
    origins = web_demo.process(data / "web", seed=args.seed, sites=args.sites, largest=args.largest)
    settings = config.load(
        environ={**os.environ, **SETTINGS}, options={"cluster": "demo", "politeness.delay_min_s": DELAY_S}
    )
    with local.lock(data), local.running(origins), up.stores(data, settings=settings) as where:
        print(f"web {origins.address}", flush=True)
        place = nodes.Place(
            etcd=where.etcd,
            redis=where.redis,
            cluster="demo",
            out=data / "out",
            logs=data / "logs",
            arguments=(
                f"--user-agent={USER_AGENT}",
                f"--delay={DELAY_S}",
                f"--connect-to={origins.address}",
                "--recrawl",
            ),
            environ=SETTINGS,
        )
        crew = nodes.Crew(place)
        try:
            return asyncio.run(_play(web, crew, data))
        except Ended as end:
            return end.status
        finally:
            crew.kill()


async def _play(web: small_web.Web, crew: nodes.Crew, data: Path) -> int:
    from shared import frontier  # noqa: PLC0415 - heavy, as above

    place = crew.place
    settings = config.load(
        environ=SETTINGS,
        options={
            "etcd": place.etcd,
            "redis": place.redis,
            "cluster": place.cluster,
            "politeness.delay_min_s": DELAY_S,
        },
    )
    store = await frontier.Frontier.open(place.redis, place.cluster)
    scene = Scene(
        web=web,
        settings=settings,
        data=data,
        crew=crew,
        store=store,
        ledger=origin_log.Ledger(web, minimum_s=DELAY_S),
        interrupts=watching.Interrupts(),
        ticker=watching.Ticker(),
        started_s=time.monotonic(),
    )
    try:
        return await _acts(scene)
    finally:
        await store.close()


async def _acts(scene: Scene) -> int:
    """Crawl, lose a node, finish, judge."""
    for node in NODES:
        print(f"node {node} {scene.crew.start(node)}", flush=True)
    await _seed(scene)
    with (scene.data / "web" / "requests.jsonl").open("rb") as log:
        await _until(scene, log, lambda: _half_way(scene.ledger))
        victim, killed_ms = await _kill(scene)
        await _until(scene, log, lambda: _finished(scene, victim, killed_ms))
        scene.ticker.say(f"all done after {time.monotonic() - scene.started_s:.0f} s")
        await up.drain(scene.crew, scene.interrupts, limit_s=40, ticker=scene.ticker)
        _read(scene.ledger, log)
    return await _judge(scene, victim, killed_ms)


async def _seed(scene: Scene) -> None:
    from coordinator import seeding  # noqa: PLC0415 - heavy, as above

    report = await seeding.seed_lines(scene.settings, scene.web.seeds(), 5)
    print(f"seeds: {report.accepted} accepted", flush=True)


async def _until(scene: Scene, log: BinaryIO, condition: Callable[[], Awaitable[bool]]) -> None:
    """Follow the origins' log and show progress until the condition holds, or the demo's time is over."""
    while not await condition():
        _read(scene.ledger, log)
        for end in scene.crew.ended():
            scene.ticker.say(f"node {end.node} {end.pid} {end.how}; its log is {scene.crew.log(end.node)}")
        if scene.interrupts.count:
            await up.drain(scene.crew, scene.interrupts, limit_s=40, ticker=scene.ticker)
            raise Ended(cli.INTERRUPTED)
        elapsed_s = time.monotonic() - scene.started_s
        if not scene.crew.alive():
            scene.ticker.say("no node is left")
            raise Ended(cli.NO)
        if elapsed_s > CRAWL_S:
            scene.ticker.say(f"more than {CRAWL_S:.0f} s: it ends here, whatever is missing")
            return
        ledger = scene.ledger
        scene.ticker.show(
            f"{elapsed_s:3.0f} s  pages {ledger.found:,} of {ledger.wanted:,}  again {ledger.again:,}  "
            f"not modified {ledger.not_modified:,}  {ledger.requests / max(elapsed_s, 1):.0f} requests/s"
        )
        await scene.interrupts.wait(LOOK_S)


async def _half_way(ledger: origin_log.Ledger) -> bool:
    """Half of the pages are done, and some were looked at again: only then are change rates known."""
    return ledger.found >= ledger.wanted // 2 and ledger.again >= min(AGAIN_MIN, ledger.wanted // 20)


async def _kill(scene: Scene) -> tuple[str, int]:
    """Revoke the lease of the node with the most sites; returns it, and when."""
    from shared import etcd  # noqa: PLC0415 - heavy, as above

    reports = await scene.store.reports(scene.crew.alive())
    if not reports:
        raise errors.StoreUnavailable("no node has reported")
    victim = max(reports.values(), key=lambda report: report.sites)
    with contextlib.closing(etcd.Etcd(scene.settings.etcd)) as store:
        killed_ms = clock.wall_ms()
        names = keys.EtcdKeys(scene.settings.cluster)
        done = await asyncio.to_thread(store.kill_lease, names, victim.id, REJOIN_S)
    told = f"killed the lease of {victim.id}, which owned {victim.sites} sites with {victim.pending:,} URLs pending"
    scene.ticker.say(told if done else f"{victim.id} was no member any more")
    return victim.id, killed_ms


async def _finished(scene: Scene, victim: str, killed_ms: int) -> bool:
    """Every page is accounted for, every site that was taken over is crawled again, the lost node is back."""
    if scene.ledger.missing() or await _unaccounted(scene):
        return False
    entries = await _handoffs(scene)
    moves = demo_report.moves_from(victim, entries, since_ms=killed_ms, cause="lease_lost")
    back = any(
        entry.kind == "epoch" and entry.time_ms > killed_ms and victim in (entry.after or ()) for entry in entries
    )
    return back and bool(moves) and all(move.first or not move.moved.pending for move in moves)


async def _unaccounted(scene: Scene) -> list[str]:
    """Sites whose record does not account for all their pages."""
    names = [site.name for site in scene.web.sites]
    looks = await asyncio.gather(*(scene.store.look(name) for name in names))
    aside = {name: look["set_aside"] for name, look in zip(names, looks, strict=True) if look is not None}
    return demo_report.refused_as_recorded(scene.web, aside)


async def _handoffs(scene: Scene) -> "list[records.Handoff]":
    from shared import handoffs  # noqa: PLC0415 - heavy, as above

    return [entry async for entry in handoffs.read(scene.store)]


async def _judge(scene: Scene, victim: str, killed_ms: int) -> int:
    """Tell what was seen, and whether all of it is as promised."""
    from coordinator import auditing  # noqa: PLC0415 - heavy, as above
    from shared import handoffs  # noqa: PLC0415

    entries = await _handoffs(scene)
    saved = scene.data / "handoffs.jsonl"
    saved.write_text("".join(f"{handoffs.json_line(entry)}\n" for entry in entries))
    moves = demo_report.moves_from(victim, entries, since_ms=killed_ms, cause="lease_lost")
    verdicts = demo_report.verdicts(
        scene.ledger,
        moves,
        unaccounted=await _unaccounted(scene),
        sites_min=min(SITES_MIN, len(scene.web.sites) // 6),
    )
    audit = auditing.judge(auditing.crawl_logs([scene.crew.place.out]), entries)
    verdicts.append(demo_report.Verdict(not audit.violations_total, f"audit: {audit.violations_total} violations"))
    print(f"\nthe takeover of {victim}: {demo_report.takeover(moves, killed_ms=killed_ms)}")
    print("\n".join(demo_report.summary(entry) for entry in entries if entry.kind == "epoch"))
    print("\n" + "\n".join(demo_report.table(moves)))
    print("\n" + "\n".join(auditing.told(audit)))
    print("\n" + "\n".join(str(verdict) for verdict in verdicts))
    print(_next_steps(scene.data))
    return cli.DONE if all(verdict.holds for verdict in verdicts) else cli.NO


def _next_steps(data: Path) -> str:
    out = data / "out"
    program = sys.argv[0] if Path(sys.argv[0]).name == "crawlring" else "crawlring"
    return (
        f"\nlook next:\n"
        f"  {program} audit {out} --handoffs {data / 'handoffs.jsonl'}\n"
        f"  head -3 {out}/crawl-n1.jsonl {out}/pages-n1.jsonl {data}/web/requests.jsonl\n"
        f"  {program} up --nodes 3 --seeds FILE --until-idle --user-agent 'Name/1.0 (+https://example.org/bot)'"
    )


def _read(ledger: origin_log.Ledger, log: BinaryIO) -> None:
    """Add the lines that are whole by now."""
    for raw in iter(log.readline, b""):
        if not raw.endswith(b"\n"):
            log.seek(-len(raw), os.SEEK_CUR)
            return
        ledger.add(raw)


def _empty_folder(wanted: Path | None) -> Path:
    if wanted is None:
        return Path(tempfile.mkdtemp(prefix="crawlring-demo-"))
    if wanted.exists() and (not wanted.is_dir() or any(wanted.iterdir())):
        raise errors.ConfigError(f"the demo wants an empty folder, and {wanted} is none")
    wanted.mkdir(parents=True, exist_ok=True)
    return wanted.resolve()
