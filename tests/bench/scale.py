"""Takeover, join and start on a frontier of many sites, measured with real processes, a real etcd and a real store.

`python -m tests.bench.scale [--only crash,join,start] [--sites N] [--json FILE]`. Three nodes share the sites.

- crash: n1 owns a third of them, each with a URL to fetch, and is killed (SIGKILL) once all are claimed. Measured at
  the origin: the time from the kill to the first request of each site's next owner.
- join: n2 and n3 have all; n1 comes and gets its third. Measured from the view that has it.
- start: all sites have a URL; three nodes start. The time to the first request, to all claimed, memory, store calls.

The other nodes' sites have a URL each too, but rest for an hour, except some that are crawled all the time: their pages
a second before, while sites are claimed, while those have their first requests, and after say what a move costs those
who go on. Sites that move have a long delay of their own (all are claimed within it, so that claims and first requests
can be told apart), the busy ones the default. Exit status 1 where a gap was short or an audit failed.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from coordinator import local, nodes, up
from shared import clock, config
from tests.bench import readings, report, scale_figures, scale_fill, scale_watch, scale_web

NODES = ("n1", "n2", "n3")
MOVER = "n1"
CLUSTER = "scale"
AGENT = "crawlring-scale/1.0"
LOOK_S = 0.25
BEFORE_S = 15.0  # of the nodes' usual work, before something happens
AFTER_S = 10.0
CLAIMS_A_S = 3_000.0  # of all nodes: what the moving sites' delay is chosen from, on the slow side
SLACK_S = 30.0  # and what is added to it: starting nodes, and their usual work before something happens
HELD = (
    200_000  # a survivor has half of all in memory; above `node.sites_held_max` sites take turns, and claims never end
)
BUSY = 40  # busy sites of each node that stays: nearly as many requests a second


@dataclass
class Scene:
    """A cluster at work on a frontier."""

    name: str
    plan: scale_fill.Plan
    delay_s: float
    limit_s: float
    data: Path
    where: up.Stores
    origin: local.Server
    crew: nodes.Crew
    watch: scale_watch.Watch
    filled_s: float = 0.0

    def until(self, what: str, condition: Callable[[scale_watch.Sample], bool], limit_s: float = 0.0) -> bool:
        """Wait; False, and a word about it, where the time is up."""
        deadline_s = time.monotonic() + (limit_s or self.limit_s)
        while time.monotonic() < deadline_s:
            last = self.watch.last
            if last is not None and condition(last):
                return True
            for end in self.crew.ended():
                if end.node != MOVER or self.name != "crash":
                    print(f"  {end.node} {end.how}: {self.crew.log(end.node).read_text()[-2_000:]}", file=sys.stderr)
            time.sleep(LOOK_S)
        print(f"  time is up, still waiting for {what}", file=sys.stderr)
        return False

    def claimed(self, names: Sequence[str]) -> Callable[[scale_watch.Sample], bool]:
        """All of the frontier is these nodes', and claimed as far as they hold it in memory."""

        def condition(last: scale_watch.Sample) -> bool:
            reports = [last.reports.get(name) for name in names]
            if any(one is None or one.state != "member" or one.unclaimed for one in reports):
                return False
            return sum(one.sites for one in reports if one) >= self.plan.sites

        return condition

    def say(self, text: str) -> None:
        print(f"  {self.name} {clock.boot_s() - self.filled_s:6.1f} s  {text}", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", default="crash,join,start", metavar="NAMES", help="crash, join, start (default all)")
    parser.add_argument("--sites", type=int, default=300_000, metavar="N", help="for crash and join (default 300,000)")
    parser.add_argument("--start-sites", type=int, default=1_000_000, metavar="N", help="for start (default 1,000,000)")
    parser.add_argument("--delay", type=float, metavar="S", help="of sites that move; default: from the number of all")
    parser.add_argument("--limit", type=float, default=300.0, metavar="S", help="of each wait (default 300)")
    parser.add_argument("--busy", type=int, default=BUSY, metavar="N", help="busy sites of each node that stays")
    parser.add_argument(
        "--held", type=int, metavar="N", help=f"node.sites_held_max (default: {HELD:,}; for start the product's)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--data", type=Path, metavar="DIR", help="an empty folder to keep all logs in")
    args = parser.parse_args(argv)
    machine = readings.machine()
    print("".join(f"{name}: {value}\n" for name, value in machine.items()))
    rows = []
    for name in args.only.split(","):
        with tempfile.TemporaryDirectory(prefix="crawlring-scale-") as temporary, ExitStack() as stack:
            data = (args.data or Path(temporary)).resolve() / name
            scene = _scene(name, args, data, stack)
            rows.append({"crash": _crash, "join": _join, "start": _start}[name](scene))
        print(scale_figures.told(rows[-1]), flush=True)
        if args.json:
            report.write_json(args.json, "scale", rows, machine)
    return 0 if all(row["holds"] for row in rows) else 1


def _scene(name: str, args: argparse.Namespace, data: Path, stack: ExitStack) -> Scene:
    moving = name != "start"
    sites = args.sites if moving else args.start_sites
    delay_s = config.Politeness().delay_min_s
    plan = scale_fill.Plan(sites, NODES, None, 0)
    if moving:
        delay_s = args.delay or SLACK_S + round(sites / CLAIMS_A_S)
        plan = scale_fill.Plan(sites, NODES, MOVER, args.busy, delay_s)
    founding = config.load(environ={}, options={"cluster": CLUSTER})
    where = stack.enter_context(up.stores(data, settings=founding))
    etcd, store = where.ours
    origin = stack.enter_context(local.running(scale_web.process(data / "web")))
    crew = nodes.Crew(_place(where, origin, data, args.held or (HELD if moving else None)))
    stack.callback(crew.kill)
    began_s = clock.boot_s()
    print(f"{name}: {sites:,} sites, delay {delay_s:g} s, {plan.busy:,} busy sites a node", file=sys.stderr)
    environ = nodes.packages() | {"CRAWLRING_REDIS": where.redis}
    subprocess.run(scale_fill.command(plan, CLUSTER), check=True, env=environ)
    print(f"  filled in {clock.boot_s() - began_s:.1f} s", file=sys.stderr, flush=True)
    servers = {"store": store, "etcd": etcd, "origin": origin}
    watch = stack.enter_context(scale_watch.Watch(servers, crew, NODES, where.redis, CLUSTER))
    return Scene(name, plan, delay_s, args.limit, data, where, origin, crew, watch, clock.boot_s())


def _place(where: up.Stores, origin: local.Server, data: Path, held: int | None) -> nodes.Place:
    return nodes.Place(
        etcd=where.etcd,
        redis=where.redis,
        cluster=CLUSTER,
        out=data / "out",
        logs=data / "logs",
        arguments=(f"--connect-to={origin.address}",),
        environ={} if held is None else {"CRAWLRING_NODE__SITES_HELD_MAX": str(held)},
    )


def _go(scene: Scene, names: Sequence[str]) -> None:
    """Start nodes, each named by its user agent."""
    for name in names:
        place = scene.crew.place
        told = nodes.Place(
            place.etcd,
            place.redis,
            place.cluster,
            place.out,
            place.logs,
            (*place.arguments, f"--user-agent={AGENT} (+https://localhost/scale; {name})"),
            place.environ,
        )
        scene.crew.start(name, place=told)


def _crash(scene: Scene) -> dict[str, object]:
    _go(scene, NODES)
    scene.until("all sites to be claimed", scene.claimed(NODES))
    _usual(scene)
    before_s = clock.boot_s()
    scene.crew.kill_one(MOVER)
    scene.say(f"{MOVER} killed")
    return _moved(scene, before_s, [name for name in NODES if name != MOVER])


def _join(scene: Scene) -> dict[str, object]:
    stay = [name for name in NODES if name != MOVER]
    _go(scene, stay)
    scene.until("all sites to be claimed", scene.claimed(stay))
    _usual(scene)
    before_s = clock.boot_s()
    _go(scene, [MOVER])
    scene.say(f"{MOVER} started")
    return _moved(scene, before_s, list(NODES))


def _usual(scene: Scene) -> None:
    """Until the busy sites of those that stay have been crawled for a while."""
    scene.say("all sites claimed")
    stay = [name for name in NODES if name != MOVER]
    scene.until("busy sites to be asked for", lambda last: all(last.reports[name].requests for name in stay))
    time.sleep(BEFORE_S)


def _moved(scene: Scene, began_s: float, names: Sequence[str]) -> dict[str, object]:
    """Wait for the first requests of all that moved, then work the figures out."""
    scene.until("the sites to be claimed again", scene.claimed(names))
    scene.say("all claimed again")
    takers = [MOVER] if scene.name == "join" else [name for name in NODES if name != MOVER]
    with (scene.data / "web" / scale_web.LOG).open() as log:
        requests = _requests(scene, log)
        requests.since_s, requests.takers = began_s, takers
        deadline_s = time.monotonic() + scene.delay_s + scene.limit_s
        while requests.read() < len(requests.moving) and time.monotonic() < deadline_s:
            time.sleep(1.0)
        scene.say(f"{len(requests.taken_s):,} of {len(requests.moving):,} sites asked for again")
        time.sleep(AFTER_S)
        stay = [name for name in NODES if name != MOVER]
        seen = _evidence(scene, requests)
        return scale_figures.move_row(seen, began_s, stay, before_s=BEFORE_S, after_s=AFTER_S)


def _start(scene: Scene) -> dict[str, object]:
    began_s = clock.boot_s()
    _go(scene, NODES)
    done = scene.until("all sites to be claimed", scene.claimed(NODES))
    claimed_s = scene.watch.last.at_s - began_s if done and scene.watch.last else None
    scene.say("all claimed" if done else "not all claimed")
    time.sleep(AFTER_S)
    with (scene.data / "web" / scale_web.LOG).open() as log:
        return scale_figures.start_row(_evidence(scene, scale_watch.Requests(log)), began_s, claimed_s)


def _requests(scene: Scene, log: IO[str]) -> scale_watch.Requests:
    sites: dict[str, set[str]] = {"moves": set(), "busy": set(), "rests": set()}
    for site, _, kind in scene.plan.owners():
        sites[kind].add(site)
    return scale_watch.Requests(log, moving=sites["moves"], busy=sites["busy"])


def _evidence(scene: Scene, requests: scale_watch.Requests) -> scale_figures.Evidence:
    """Stop the crawl, and read what it left."""
    samples = list(scene.watch.samples)
    scene.crew.kill()
    time.sleep(1.0)  # the origin's last lines
    requests.read()
    offset_s = time.time() - clock.boot_s()
    since_ms = round((samples[0].at_s + offset_s) * 1000)

    async def read() -> list[scale_figures.Move]:
        entries = scale_watch.moves(scene.where.redis, CLUSTER, since_ms=since_ms)
        return [
            scale_figures.Move(one.kind, one.time_ms / 1000 - offset_s, one.site, one.to)
            async for one in entries
            if one.kind != "first_fetch"
        ]

    moves = asyncio.run(read())
    audit = subprocess.run(
        [sys.executable, "-P", "-m", "coordinator.cli", "audit", str(scene.data / "out"), "--cluster", CLUSTER],
        env=nodes.packages() | {"CRAWLRING_REDIS": scene.where.redis},
        capture_output=True,
        text=True,
        check=False,
    )
    print("".join(f"  audit: {line}\n" for line in audit.stdout.splitlines()[:8]), file=sys.stderr)
    return scale_figures.Evidence(
        scene.name, scene.plan.sites, scene.delay_s, samples, moves, requests, audit.returncode
    )


if __name__ == "__main__":
    sys.exit(main())
