"""`crawlring kill-lease` and `drain`: take a node's sites from it, hard or gently, and say what follows."""

import argparse
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from coordinator import cli
from shared import config, keys

if TYPE_CHECKING:
    from shared import etcd

KILL_EPILOG = """examples:
  crawlring kill-lease n2                the node stays out for its membership.rejoin_s, then joins again
  crawlring kill-lease n2 --rejoin 120   it stays out for two minutes
  crawlring handoffs --node n2 --follow  watch its sites move

exit status: 0 the lease is gone, 1 no such node"""

DRAIN_EPILOG = """examples:
  crawlring drain n2                     its sites move with all they know, then the node exits 0
  crawlring handoffs --node n2 --follow  watch them move

exit status: 0 it was told to drain, 1 no such node"""


class Answer(NamedTuple):
    """What `--json` prints."""

    node: str
    done: bool


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    kill = cli.add_command(
        commands, "kill-lease", summary="revoke a node's lease, as if it had died", epilog=KILL_EPILOG
    )
    kill.add_argument("node", metavar="NODE")
    kill.add_argument("--rejoin", metavar="S", type=_seconds, help="seconds until the node may join again")
    kill.set_defaults(run=kill_lease)
    gently = cli.add_command(commands, "drain", summary="move a node's sites away, then end it", epilog=DRAIN_EPILOG)
    gently.add_argument("node", metavar="NODE")
    gently.set_defaults(run=drain)


def kill_lease(args: argparse.Namespace) -> int:
    """Revoke the lease: the node finds itself gone at its next confirm and lets go of everything."""
    settings = cli.settings(args)
    with etcd_of(settings) as store:
        done = store.kill_lease(keys.EtcdKeys(settings.cluster), args.node, args.rejoin)
    member = settings.membership
    rejoin_s = member.rejoin_s if args.rejoin is None else args.rejoin
    return _tell(
        args,
        done=done,
        text=f"{args.node}: the lease is gone. The others agree on a view without it at once; the next "
        f"owners of its sites wait a full delay after it has resigned, or after "
        f"{member.view_lease_s + member.wire_s:g} s if it stays silent. It may join again in {rejoin_s:g} s.",
    )


def drain(args: argparse.Namespace) -> int:
    """Ask for weight 0: the node finishes what is in flight, commits, and leaves."""
    settings = cli.settings(args)
    with etcd_of(settings) as store:
        done = store.drain(keys.EtcdKeys(settings.cluster), args.node)
    return _tell(
        args,
        done=done,
        text=f"{args.node}: told to drain. Its sites move to the others, which wait a full delay on "
        f"each; then it exits, within "
        f"{settings.membership.drain_s:g} s.",
    )


@contextlib.contextmanager
def etcd_of(settings: config.Config) -> "Iterator[etcd.Etcd]":
    from shared import etcd  # noqa: PLC0415 - etcd's client is not needed for --help

    with etcd.reached(settings) as store:
        yield store


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError("seconds, 0 or more")
    return seconds


def _tell(args: argparse.Namespace, *, done: bool, text: str) -> int:
    if args.json:
        cli.print_json(Answer(args.node, done)._asdict())
    elif done:
        print(text)
    else:
        print(f"{args.node}: no such node is a member now")
    return cli.DONE if done else cli.NO
