"""Real membership sessions without crawlers, some to a process, to load one etcd as that many nodes would.

Each session joins, looks, confirms and keeps its lease as a node's does, and acknowledges each view at once.
Started by `tests.bench.growth`, as `python -m tests.bench.growth_members --etcd ADDRESS --first 0 --count 25`; runs
until SIGTERM, prints `ready` when every session is in the view of `--of` members, and its counters at the end.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import resource
import signal
import sys
from collections.abc import Sequence
from functools import partial

import structlog

from shared import agreement, config, etcd, membership, records
from tests.bench import growth_counts

LOOK_S = 0.1


async def hold(args: argparse.Namespace) -> None:
    """Hold the sessions until SIGTERM."""
    settings = config.load(environ={}, options={"etcd": args.etcd, "cluster": growth_counts.CLUSTER})
    prints = membership.fingerprint(settings, sites_digest="growth")
    over = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
    sessions: list[membership.Session] = []
    quiet = structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr), wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING)
    )

    def heard(number: int, effect: membership.OwnerEffect, _now_s: float) -> None:
        match effect:
            case agreement.Adopt():
                sessions[number].feed(agreement.Applied(effect.views[-1][0]))
            case agreement.StopAll():
                sessions[number].feed(agreement.Stopped(effect.incarnation))

    for number in range(args.count):
        value = records.MemberValue(weight=1.0, address="http://192.0.2.1:8080", fingerprint=prints)
        store = etcd.Etcd.of(settings)  # a channel each, as nodes have
        session = membership.Session(
            store,
            growth_counts.CLUSTER,
            node=f"node-{args.first + number:04}",
            value=value,
            settings=membership.settings_of(settings.membership),
            on_effect=partial(heard, number),
            log=quiet,
        )
        sessions.append(session)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(session.run()) for session in sessions]
        while not over.is_set() and not all(_whole(session, args.of) for session in sessions):
            await asyncio.sleep(LOOK_S)
        print("ready", flush=True)
        await over.wait()
        flickers = sum(not session.authority() for session in sessions)
        print(json.dumps({"without_authority": flickers}), flush=True)
        for task in tasks:
            task.cancel()


def _whole(session: membership.Session, members: int) -> bool:
    view = session.state.view
    return view is not None and len(view.members) >= members and session.authority() and not session.state.waiting


def main(argv: Sequence[str] | None = None) -> int:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth_members")
    parser.add_argument("--etcd", required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--of", type=int, required=True, help="members to wait for, in all processes")
    args = parser.parse_args(argv)
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, max(files, 16_384)), most))
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(hold(args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
