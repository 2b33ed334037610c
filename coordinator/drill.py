"""`crawlring drill`: break one thing of a running `up`, heal it, and report what the promises were worth.

It breaks nothing itself but a lease: `up` does, and heals when this process ends, however it ends. What it reports
comes from the handoff log, the nodes' crawl logs and the sites' records.
"""

import argparse
import asyncio
from pathlib import Path
from typing import get_args

from coordinator import cli, drill_logs, drill_report, drill_scene, drills
from shared import clock, errors, keys

SLACK_S = 15.0  # beyond what was promised: later than this nothing is waited for
ASKS_S = 5.0  # until a node that is back has something in flight; it may have nothing to ask for
BACK_S = 20.0  # for a node or a store to be at work again after it was healed

FAULTS = "kill-lease, kill, freeze, partition or restart-store"

EPILOG = """examples:
  crawlring up --nodes 3 --drills --seeds seeds.txt --user-agent 'Name/1.0 (+https://example.org/bot)'
  crawlring drill kill-lease               revoke the lease of the node with most to do; it joins again
  crawlring drill kill --node n2           SIGKILL; `up` does not start it again
  crawlring drill freeze --seconds 8       SIGSTOP, then SIGCONT
  crawlring drill partition --from both    the node cut off from etcd and Redis; needs `up --drills`
  crawlring drill restart-store --store redis --json

Ctrl-C heals what was broken. exit status: 0 every promise held, 1 one did not, 2 wrong usage, 3 a store is away"""


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `drill` to the command line."""
    parser = commands.add_parser(
        "drill",
        help="break something of a running `up`, and report what was kept",
        description="Break something of a running `crawlring up`, and report what was kept.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("fault", choices=get_args(drill_report.Fault), metavar="FAULT", help=FAULTS)
    parser.add_argument(
        "--data", type=Path, default=Path("data"), metavar="DIR", help="the --data of `up` (default data)"
    )
    parser.add_argument("--node", metavar="NODE", help="which node (default: the one with most URLs pending)")
    parser.add_argument(
        "--seconds", type=_seconds, metavar="S", help="how long it lasts, or a killed lease's node stays out"
    )
    parser.add_argument(
        "--from", dest="cut_from", choices=("etcd", "redis", "both"), help="what a partition cuts off (default etcd)"
    )
    parser.add_argument(
        "--store", choices=("etcd", "redis", "both"), help="what restart-store restarts (default: one, then the other)"
    )
    parser.add_argument("--json", dest="json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Play it; 0 only if every promise held."""
    for option, value, fault in (("--store", args.store, "restart-store"), ("--from", args.cut_from, "partition")):
        if value is not None and args.fault != fault:
            raise errors.ConfigError(f"{option} goes with `drill {fault}`")
    if args.seconds is not None and args.fault == "kill":
        raise errors.ConfigError("a killed node stays dead: `drill kill` takes no --seconds")
    if args.node is not None and args.fault == "restart-store":
        raise errors.ConfigError("--node goes with faults of a node: a store is everybody's")
    try:
        report = asyncio.run(_drill(args))
    except drill_scene.Interrupted:
        return cli.INTERRUPTED
    if args.json:
        cli.print_json(report)
    else:
        print("\n".join(drill_report.told(report)))
    return cli.DONE if report.kept else cli.NO


async def _drill(args: argparse.Namespace) -> drill_report.Report:
    async with drill_scene.opened(args) as scene:
        before = await drill_scene.before(scene)
        said = f"{len(before.owned)} sites with {before.pending:,} URLs pending"
        scene.ticker.say(f"{scene.node} owns {said}" if scene.node else f"the nodes own {said}")
        try:
            trouble = await _play(scene, before)
        except drill_scene.Interrupted:
            await scene.link.ask("heal")
            scene.ticker.say("interrupted: what was broken is healed")
            raise
        scene.ticker.say("reading the logs and the records")
        return await drill_logs.report(scene, before, trouble)


async def _play(scene: drill_scene.Scene, before: drill_scene.Before) -> str:
    """Break, wait, heal, wait; returns what has not come back by itself, if anything has not."""
    if scene.interrupts.count:
        raise drill_scene.Interrupted
    scene.began_ms, scene.first_s = clock.wall_ms(), clock.boot_s()
    match scene.fault:
        case "restart-store":
            return await _restart(scene)
        case "kill":
            scene.began_ms = await scene.link.ask("kill", node=scene.node or "")
            scene.ticker.say(f"{scene.node} was killed")
            await _taken_over(scene, before)
            return ""
        case "kill-lease":
            scene.began_ms = clock.wall_ms()
            if not await asyncio.to_thread(_kill_lease, scene):
                raise errors.ConfigError(f"{scene.node} is no member any more")
            scene.ticker.say(f"the lease of {scene.node} is gone; it stays out for {scene.seconds:g} s")
            await _taken_over(scene, before)
            return await _member_again(scene, before, within_s=scene.seconds + BACK_S)
        case "freeze" | "partition":
            return await _silence(scene, before)


async def _silence(scene: drill_scene.Scene, before: drill_scene.Before) -> str:
    """Freeze or cut off the node, and let it return."""
    member = scene.settings.membership
    if scene.fault == "freeze":
        scene.began_ms = await scene.link.ask("freeze", node=scene.node or "")
    else:
        scene.began_ms = await scene.link.ask("cut", node=scene.node or "", stores=scene.stores)
    what = "frozen" if scene.fault == "freeze" else f"cut off from {' and '.join(scene.stores)}"
    scene.ticker.say(f"{scene.node} is {what} for {scene.seconds:g} s")
    await drill_scene.until(scene, drill_scene.elapsed(scene, scene.seconds), within_s=scene.seconds + SLACK_S)
    scene.healed_ms = await scene.link.ask("heal")
    scene.ticker.say(f"{scene.node} is healed")
    dead = scene.fault == "freeze" or "etcd" in scene.stores
    if not dead or scene.seconds < drill_report.silence_s(member):
        return await _member_again(scene, before, within_s=BACK_S + member.lease_ttl_s + member.rejoin_s)
    await _taken_over(scene, before)
    return await _member_again(scene, before, within_s=BACK_S + member.rejoin_s)


async def _restart(scene: drill_scene.Scene) -> str:
    """Kill one store after the other, and start each again on its data."""
    nodes = sorted(scene.link.hello.nodes)

    async def all_at_work() -> bool:
        return await drill_scene.at_work(scene, nodes)

    for store in scene.stores:
        killed_ms = await scene.link.ask("stop_store", stores=(store,))
        scene.began_ms = scene.began_ms if scene.healed_ms else killed_ms
        scene.ticker.say(f"{store} was killed, and stays away for {scene.seconds:g} s")
        down_s = clock.boot_s()
        await drill_scene.until(
            scene, drill_scene.elapsed(scene, scene.seconds, since_s=down_s), within_s=scene.seconds + SLACK_S
        )
        scene.healed_ms = await scene.link.ask("heal")
        scene.ticker.say(f"{store} answers again")
        if not await drill_scene.until(scene, all_at_work, within_s=BACK_S):
            return f"{store} is back, and not all of {', '.join(nodes)} are at work again"
    return ""


async def _taken_over(scene: drill_scene.Scene, before: drill_scene.Before) -> None:
    """Wait until others have claimed all that the node owned, and asked where there is something to ask for."""
    promised_s = drill_report.promised_s(scene.fault, scene.settings.membership)

    async def done() -> bool:
        moves = scene.moves
        if not before.owned <= {move.moved.site for move in moves}:
            return False
        unasked = [move.moved.site or "" for move in drill_report.waiting(moves)]
        return set(unasked) <= await drill_scene.idle(scene)

    limit_s = promised_s + drill_report.LONG_S + SLACK_S
    await drill_scene.until(scene, done, within_s=limit_s + clock.boot_s() - scene.first_s)


async def _member_again(scene: drill_scene.Scene, before: drill_scene.Before, *, within_s: float) -> str:
    node = scene.node or ""

    async def back() -> bool:
        seen = await asyncio.to_thread(drill_scene.look, scene.settings)
        member = seen.view.members.get(node) if seen.view else None
        if member is None or (scene.fault == "kill-lease" and member.incarnation == before.incarnation):
            return False
        return node in seen.members and await drill_scene.at_work(scene, [node])

    async def asks() -> bool:
        report = (await scene.store.reports([node])).get(node)
        return report is not None and (report.in_flight > 0 or (report.sites > 0 and not report.pending))

    if not await drill_scene.until(scene, back, within_s=within_s):
        return f"{node} is not back within {within_s:g} s"
    scene.ticker.say(f"{node} is at work again")
    await drill_scene.until(scene, asks, within_s=ASKS_S)
    return ""


def _kill_lease(scene: drill_scene.Scene) -> bool:
    settings = scene.settings
    with drills.etcd_of(settings) as store:
        return store.kill_lease(keys.EtcdKeys(settings.cluster), scene.node or "", scene.seconds)


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= 3_600:
        raise argparse.ArgumentTypeError("seconds, more than 0 and an hour at most")
    return seconds
