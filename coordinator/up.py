"""`crawlring up`: etcd, Valkey and some nodes on this machine, until interrupted or until nothing is pending.

It starts, watches and stops processes and reads the nodes' own reports; it takes no part in the crawl. What
dies is told and stays dead, so that a failure can be watched.
"""

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from coordinator import cli, control, local, nodes, relay, watching
from shared import config, errors

if TYPE_CHECKING:
    from shared import frontier

LOOK_S = 0.5  # between two looks at the nodes
ETCD_PORT, REDIS_PORT = 2379, 6379  # where an address names none
DRAIN_GRACE_S = 10.0  # beyond the nodes' own limit

EPILOG = """examples:
  crawlring up --user-agent 'Name/1.0 (+https://example.org/bot)'
  crawlring up --nodes 3 --seeds seeds.txt --until-idle --user-agent 'Name/1.0 (+https://example.org/bot)'
  crawlring up --data crawl --connect-to 127.0.0.1:8080 --user-agent 'Name/1.0 (+https://example.org/bot)'
  crawlring up --nodes 3 --drills --user-agent 'Name/1.0 (+https://example.org/bot)'
  crawlring drill partition                 break something, and see what is kept

The first Ctrl-C drains the nodes, a second one stops at once. The same --data resumes."""


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `up` to the command line."""
    parser = cli.add_command(
        commands, "up", summary="start etcd, Valkey and nodes on this machine and crawl", epilog=EPILOG
    )
    parser.add_argument("--nodes", type=_count, default=1, metavar="N", help="how many nodes, n1..nN (default 1)")
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("data"),
        metavar="DIR",
        help="stores, logs and DIR/out (default data)",
    )
    parser.add_argument("--seeds", metavar="FILE", help="URLs to begin with, one a line; - reads standard input")
    parser.add_argument("--until-idle", action="store_true", help="end when nothing is pending")
    parser.add_argument(
        "--drills",
        action="store_true",
        help="put a relay between each node and its stores, for `crawlring drill partition`",
    )
    cli.node_options(parser, leave_out={"--id", "--out"})
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Check all that can be wrong before anything is started."""
    chosen = cli.settings(args)
    config.require_user_agent(chosen)
    cli.check_scope(chosen)
    seeds = _read_seeds(args.seeds)
    data = args.data.resolve()
    etcd = given(args.etcd, chosen.etcd, usual=config.Config().etcd)
    redis = given(args.redis, chosen.redis, usual=config.Config().redis)
    if etcd is None and chosen.etcd_security != config.EtcdSecurity():
        raise errors.ConfigError("etcd_security is for an etcd of your own: say where it is (--etcd)")
    with local.lock(data), stores(data, etcd=etcd, redis=redis, settings=chosen) as where:
        place = nodes.Place(
            etcd=where.etcd,
            redis=where.redis,
            cluster=chosen.cluster,
            out=data / "out",
            logs=data / "logs",
            arguments=cli.node_arguments(args),
        )
        crew = nodes.Crew(place)
        names = [f"n{i}" for i in range(1, args.nodes + 1)]
        play = Play(crew, names, chosen, where, data, seeds, until_idle=args.until_idle, relayed=args.drills)
        if args.drills:
            _behind(where)  # told before any node is started
        try:
            return asyncio.run(_crawl(play))
        finally:
            crew.kill()


def given(option: str | None, configured: str, *, usual: str) -> str | None:
    """Where a store is, if the operator said so by option, variable or file; None: start our own."""
    if option is not None:
        return option
    return configured if configured != usual else None


@dataclass(frozen=True, slots=True)
class Stores:
    """Where the stores are, and those among them that are ours."""

    etcd: str
    redis: str
    ours: tuple[local.Server, ...]


@contextlib.contextmanager
def stores(
    data: Path, *, etcd: str | None = None, redis: str | None = None, settings: config.Config | None = None
) -> Iterator[Stores]:
    """Start what is not given, print where it is, and stop at the exit what was started.

    Where both are ours and new, the cluster of `settings` is founded: its nodes need not wait for unknown ones.
    """
    fresh = etcd is None and redis is None and not (data / "etcd").exists() and not (data / "valkey").exists()
    with contextlib.ExitStack() as stack:
        ours: list[local.Server] = []
        if etcd is None:
            ours.append(stack.enter_context(local.running(local.etcd(data / "etcd"))))
            etcd = ours[-1].address
        print(f"etcd {etcd}", flush=True)
        if redis is None:
            # Strict is to be had of one server only where it syncs before each answer.
            strict = settings is not None and settings.durability == "strict"
            options = ("--appendfsync", "always") if strict else ()
            ours.append(stack.enter_context(local.running(local.valkey(data / "valkey", options=options))))
            redis = local.redis_url(ours[-1])
        print(f"redis {config.without_password(redis)}", flush=True)
        if fresh and settings is not None:
            _found(settings, etcd)
        yield Stores(etcd, redis, tuple(ours))


def _found(settings: config.Config, etcd: str) -> None:
    """Say in a store that has just been made that nobody has acted before: else its first view waits VL + G."""
    from shared import etcd as keeper  # noqa: PLC0415 - heavy, as below
    from shared import keys, membership, sites  # noqa: PLC0415

    fingerprint = membership.fingerprint(settings, sites_digest=sites.Sites(settings.sites.private_suffixes).digest)
    with contextlib.closing(keeper.Etcd(etcd)) as store:
        store.found(keys.EtcdKeys(settings.cluster), fingerprint)


@dataclass(frozen=True, slots=True)
class Play:
    """What is to run."""

    crew: nodes.Crew
    names: Sequence[str]
    chosen: config.Config
    where: Stores
    data: Path
    seeds: Sequence[str]
    until_idle: bool
    relayed: bool


async def _crawl(play: Play) -> int:
    from shared import frontier  # noqa: PLC0415 - heavy: `crawlring --help` must not wait for it

    crew, chosen, where = play.crew, play.chosen, play.where
    interrupts, ticker = watching.Interrupts(), watching.Ticker()
    async with contextlib.AsyncExitStack() as closing:
        relays = await _relays(play, closing)
        for name in play.names:
            place = _relayed(crew.place, relays[name]) if play.relayed else crew.place
            print(f"node {name} {crew.start(name, place=place)}", flush=True)
        async with contextlib.AsyncExitStack() as watched:
            store = await frontier.Frontier.open(where.redis, chosen.cluster)
            watched.push_async_callback(store.close)
            settings = _settings(play)
            drills = control.Control(control.Stage(settings, crew, where.ours, relays), play.data)
            watched.push_async_callback(drills.close)  # which heals: nothing broken could be drained
            await drills.start()
            if play.seeds:
                await _unless_interrupted(_seed(settings, play.seeds, ticker=ticker), interrupts)
            status = await _watch(play, store, drills=drills, interrupts=interrupts, ticker=ticker)
        drained = await drain(crew, interrupts, limit_s=chosen.membership.drain_s + DRAIN_GRACE_S, ticker=ticker)
    return status if drained else cli.INTERRUPTED


def _settings(play: Play) -> config.Config:
    """What was chosen, with the stores where they are."""
    import msgspec  # noqa: PLC0415 - heavy, as above

    settings: config.Config = msgspec.structs.replace(play.chosen, etcd=play.where.etcd, redis=play.where.redis)
    return settings


Relays = dict[str, dict[control.Store, list[relay.Relay]]]


async def _relays(play: Play, closing: contextlib.AsyncExitStack) -> Relays:
    """For each node one relay to each address of its stores, until the end; none if none are asked for."""
    made: Relays = {}
    for name in play.names if play.relayed else ():
        made[name] = {}
        for store, addresses in _behind(play.where).items():
            made[name][store] = [relay.Relay(*address) for address in addresses]
            for between in made[name][store]:
                await between.start()
                closing.push_async_callback(between.close)
    return made


def _behind(where: Stores) -> dict[control.Store, list[tuple[str, int]]]:
    """The stores' addresses; ConfigError where a relay would be noticed, since certificates name their host."""
    redis = urlsplit(where.redis)
    etcd = [urlsplit(f"//{part.strip()}") for part in where.etcd.split(",")]
    if "//" in where.etcd or redis.scheme != "redis" or "," in redis.netloc or not redis.hostname:
        raise errors.ConfigError("--drills goes with plain connections to etcd and to one Redis")
    return {
        "etcd": [(one.hostname or local.LOOPBACK, one.port or ETCD_PORT) for one in etcd],
        "redis": [(redis.hostname, redis.port or REDIS_PORT)],
    }


def _relayed(place: nodes.Place, relays: dict[control.Store, list[relay.Relay]]) -> nodes.Place:
    """The same place, seen through its relays."""
    redis = urlsplit(place.redis)
    user, at, _ = redis.netloc.rpartition("@")
    (between,) = relays["redis"]
    return replace(
        place,
        etcd=",".join(one.address for one in relays["etcd"]),
        redis=urlunsplit(redis._replace(netloc=f"{user}{at}{between.address}")),
    )


async def _seed(settings: config.Config, seeds: Sequence[str], *, ticker: watching.Ticker) -> None:
    from coordinator import seeding  # noqa: PLC0415 - heavy, as above

    report = await seeding.seed_lines(settings, seeds, 5)
    for refused in report.refused:
        ticker.say(f"seed line {refused.line}: {refused.reason}: {refused.url}")
    ticker.say(f"seeds: {report.accepted} accepted, {report.known} known, {len(report.refused)} refused")


async def _unless_interrupted(work: Coroutine[None, None, None], interrupts: watching.Interrupts) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        while not task.done():
            await asyncio.wait({task}, timeout=LOOK_S / 5)
            if interrupts.count:
                task.cancel()


async def _watch(
    play: Play,
    store: "frontier.Frontier",
    *,
    drills: control.Control,
    interrupts: watching.Interrupts,
    ticker: watching.Ticker,
) -> int:
    """Look on until there is a reason to end; returns the exit status. A drill is seen to its end."""
    crew = play.crew
    started_s, quiet, dead = time.monotonic(), watching.Quiet(), set[str]()
    while not interrupts.count:
        for end in crew.ended():
            ticker.say(f"node {end.node} {end.pid} {end.how}; its log is {crew.log(end.node)}")
        for server in play.where.ours:
            if server.exit_status is None and server.name in dead:
                dead.remove(server.name)
                ticker.say(f"{server.name} {server.pid} was started again")
            elif server.exit_status is not None and server.name not in dead:
                dead.add(server.name)
                ticker.say(f"{server.name} {server.pid} ended with status {server.exit_status}")
        alive = crew.alive()
        if play.until_idle and dead and not drills.busy:
            return cli.UNREACHABLE
        if not alive:
            ticker.say("no node is left")
            return cli.NO
        with contextlib.suppress(errors.StoreUnavailable):  # a store may be stopped on purpose: look again
            reports = await store.reports(alive)
            ticker.show(watching.progress(reports, elapsed_s=time.monotonic() - started_s))
            sites = await store.site_count()
            idle = quiet.see(reports, alive=alive, sites=sites, now_s=time.monotonic())
            if idle and play.until_idle and not drills.busy:
                ticker.say(f"idle: {watching.progress(reports, elapsed_s=time.monotonic() - started_s)}")
                return cli.DONE
        await interrupts.wait(LOOK_S)
    return cli.DONE


async def drain(crew: nodes.Crew, interrupts: watching.Interrupts, *, limit_s: float, ticker: watching.Ticker) -> bool:
    """SIGTERM to all nodes and wait for their end; False when told to stop at once, or out of time."""
    if not crew.alive():
        return True
    asked = interrupts.count
    ticker.say("draining: the nodes hand their sites on; Ctrl-C again stops at once")
    crew.drain()
    deadline_s = time.monotonic() + limit_s
    while crew.alive():
        if interrupts.count > asked or time.monotonic() > deadline_s:
            return False
        await interrupts.wait(LOOK_S / 5)
    return True


def _read_seeds(name: str | None) -> list[str]:
    if name is None:
        return []
    try:
        return (sys.stdin.read() if name == "-" else Path(name).read_text(errors="replace")).splitlines()
    except OSError as error:
        raise errors.ConfigError(f"cannot read the seeds: {error}") from error


def _count(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 64:
        raise argparse.ArgumentTypeError("between 1 and 64 nodes fit on one machine")
    return number
