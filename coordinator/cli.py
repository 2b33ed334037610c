"""The one entry point: every command's parser, the options they share, and errors turned into exit statuses.

It knows no store and no node: a command's module brings `register(commands)`, which adds its parser and sets
`run`, a function from the parsed arguments to an exit status. What is heavy is imported inside `run`.
"""

import argparse
import asyncio
import contextlib
import importlib
import importlib.metadata
import io
import json
import os
import re
import signal
import sys
from collections.abc import Collection, Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from shared import config, errors

DONE, NO, USAGE, UNREACHABLE = 0, 1, 2, 3
INTERRUPTED = 128 + 2  # as a shell reports SIGINT
BROKEN_PIPE = 128 + 13  # as a shell reports SIGPIPE: `crawlring audit | head` is not "the answer is no"

INTERRUPT_AGAIN_S = 0.3  # longer than a connection takes to close

Answer = TypeVar("Answer")

COMMAND_MODULES = (
    "coordinator.up",
    "coordinator.demo",
    "coordinator.seeding",
    "coordinator.steering",
    "coordinator.reading",
    "coordinator.auditing",
    "coordinator.warc",
    "coordinator.simulate",
    "coordinator.drills",
    "coordinator.drill",
    "coordinator.shard",
)
"""Each has `register(commands)`; the order is that of `crawlring --help`."""

EPILOG = """examples:
  crawlring demo                                    a whole crawl on this machine, with a node lost half way
  crawlring up --nodes 3 --seeds seeds.txt --user-agent 'Name/1.0 (+https://example.org/bot)'
  crawlring status --etcd 10.0.0.1:2379 --redis redis://10.0.0.2:6379/0
  crawlring audit out --json

exit status: 0 done, 1 the answer is no, 2 wrong usage, 3 a store cannot be reached"""

NODE_EPILOG = """examples:
  crawlring node --id n1 --user-agent 'Name/1.0 (+https://example.org/bot)'
  crawlring node --id n2 --user-agent 'Name/1.0 (+https://example.org/bot)' --weight 2 --out /var/crawl
  crawlring node --config crawl.toml --id n3 --check-config
  crawlring node --id n4 --user-agent 'Name/1.0 (+https://example.org/bot)' --allow example.org --deny '~[?&]sort='

SIGTERM drains: its sites move on with all they know, then it exits 0. A second one stops at once."""


class NodeOption(NamedTuple):
    """An option that sets one value of the configuration tree; without a metavar it is a switch."""

    flag: str
    setting: str
    metavar: str | None
    help: str
    many: bool = False
    """Given once for each value of a list."""


NODE_OPTIONS = (
    NodeOption("--id", "node.id", "ID", "this node's name, one per running node"),
    NodeOption("--user-agent", "identity.user_agent", "TEXT", "product token and contact; required"),
    NodeOption("--delay", "politeness.delay_min_s", "S", "least seconds between two fetches of a site"),
    NodeOption("--weight", "node.weight", "W", "share of the sites against the others' weights"),
    NodeOption(
        "--lease-ttl",
        "membership.lease_ttl_s",
        "S",
        "seconds until a silent node is taken for dead; at least 3",
    ),
    NodeOption("--concurrency", "node.concurrency", "N", "sites visited at one time"),
    NodeOption("--out", "node.out", "DIR", "where the crawl log and the pages go"),
    NodeOption("--listen", "node.listen", "HOST:PORT", "status endpoint; port 0 = any free one"),
    NodeOption("--connect-to", "node.connect_to", "HOST:PORT", "send every connection there (a staging web)"),
    NodeOption("--allow-private", "node.allow_private", None, "allow private, loopback and link-local addresses"),
    NodeOption(
        "--recrawl",
        "recrawl.enabled",
        None,
        "visit pages again, by how often they change, within each site's budget; from the first run on",
    ),
    NodeOption(
        "--allow",
        "scope.allow",
        "RULE",
        "ask only for what such a rule matches: example.com, https://example.com/docs/ or ~regex; may be repeated",
        many=True,
    ),
    NodeOption("--deny", "scope.deny", "RULE", "never ask for what such a rule matches; may be repeated", many=True),
    NodeOption("--depth", "scope.depth_max", "N", "links from a seed"),
    NodeOption("--pages-per-site", "scope.pages_per_site", "N", "page visits of one site"),
    NodeOption("--warc", "archive.warc", None, "write WARC files to DIR of --out"),
    NodeOption("--handler", "archive.handler", "MODULE:FUNCTION", "Python that is given every page"),
)


def main(argv: Sequence[str] | None = None, *, modules: Sequence[str] = COMMAND_MODULES) -> int:
    """Run one command; returns its exit status and never raises for what an operator can cause."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show is no reason to stop
    try:
        status = _run(argv, modules)
        sys.stdout.flush()  # a reader that has gone must show here, not at interpreter exit
    except SystemExit as stop:  # argparse: --help, --version or wrong usage
        return stop.code if isinstance(stop.code, int) else USAGE
    except (errors.ConfigError, errors.DamagedSite, errors.StoreUnavailable) as error:
        return _fail(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        with contextlib.suppress(OSError):  # what is still buffered has nowhere to go
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    return status


def common(parser: argparse.ArgumentParser) -> None:
    """Add the options every command has; `settings` reads them."""
    group = parser.add_argument_group("where the cluster is")
    group.add_argument(
        "--etcd", dest="etcd", metavar="HOST:PORT[,...]", help="default CRAWLRING_ETCD; https://HOST:PORT for TLS"
    )
    group.add_argument("--redis", dest="redis", metavar="URL", help="default CRAWLRING_REDIS")
    group.add_argument("--cluster", dest="cluster", metavar="NAME", help="default CRAWLRING_CLUSTER")
    group.add_argument(
        "--config", dest="config", metavar="FILE", type=Path, help="TOML; variables and options win over it"
    )
    parser.add_argument("--json", dest="json", action="store_true", help="print JSON")


def node_options(parser: argparse.ArgumentParser, *, leave_out: Collection[str] = ()) -> None:
    """Add what shapes a node (`node`, `up`), less the flags in `leave_out`."""
    group = parser.add_argument_group("the node")
    for option in NODE_OPTIONS:
        if option.flag in leave_out:
            continue
        if option.metavar is None:
            group.add_argument(option.flag, dest=option.setting, action="store_const", const=True, help=option.help)
        else:
            action = "append" if option.many else "store"
            group.add_argument(
                option.flag, dest=option.setting, metavar=option.metavar, help=option.help, action=action
            )
    group.add_argument(
        "--check-config", dest="check_config", action="store_true", help="print the configuration and stop"
    )


def node_arguments(args: argparse.Namespace) -> list[str]:
    """The node options that were given, as a command line again: what `up` hands to its nodes."""
    given = vars(args)
    line: list[str] = []
    if given.get("config") is not None:
        line.append(f"--config={given['config']}")
    for option in NODE_OPTIONS:
        value = given.get(option.setting)
        if value is not None:
            values = value if option.many else [value]
            line += [option.flag if option.metavar is None else f"{option.flag}={one}" for one in values]
    return line


def settings(args: argparse.Namespace) -> config.Config:
    """The configuration of this call. An option whose `dest` is a dotted name sets that value of the tree."""
    given = vars(args)
    options = {name: value for name, value in given.items() if "." in name or name in {"etcd", "redis", "cluster"}}
    return config.load(given.get("config"), options=options)


def awaited(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Run to its end what a command waits for; Ctrl-C is a KeyboardInterrupt.

    One cancellation is not enough: Python 3.11's `asyncio.wait_for`, which the store's client writes with, drops
    one that comes together with its answer. So it is repeated until it is heard.
    """

    async def interruptible() -> Answer:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def interrupt() -> None:
            if not task.done():
                task.cancel()
                loop.call_later(INTERRUPT_AGAIN_S, interrupt)

        loop.add_signal_handler(signal.SIGINT, interrupt)
        return await work

    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def print_json(value: Any) -> None:
    """One JSON document on a line, at once: whoever follows must not wait for a full buffer."""
    print(msgspec.json.encode(value).decode(), flush=True)


def build_parser(modules: Sequence[str] = COMMAND_MODULES) -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="crawlring",
        description="A polite web crawler for many machines: each site has one owner, and the log proves it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"crawlring {_version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _register_node(commands)
    for name in modules:
        importlib.import_module(name).register(commands)
    return parser


def add_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, *, summary: str, epilog: str
) -> argparse.ArgumentParser:
    """One command's parser with the common options; the epilog holds its examples, line for line."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    common(parser)
    return parser


def _run(argv: Sequence[str] | None, modules: Sequence[str]) -> int:
    given = sys.argv[1:] if argv is None else argv
    # A node runs for weeks: what only other commands need stays out of its memory.
    args = build_parser(() if given[:1] == ["node"] else modules).parse_args(given)
    if getattr(args, "check_config", False):
        return _check_config(args)
    redis = getattr(args, "redis", None)  # `demo` and `drill` are told of no store
    if redis and config.without_password(redis) != redis:
        print(
            "crawlring: everybody on this machine can read a password on a command line; "
            "CRAWLRING_REDIS or a file (--config) keeps it",
            file=sys.stderr,
        )
    status: int = args.run(args)
    return status


def _register_node(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands, "node", summary="crawl the sites this node owns, until told to stop", epilog=NODE_EPILOG
    )
    node_options(parser)
    parser.set_defaults(run=_node)


def _node(args: argparse.Namespace) -> int:
    chosen = settings(args)
    config.require_user_agent(chosen)
    if not chosen.node.id:
        raise errors.ConfigError("a node needs a name: --id n1")
    check_scope(chosen)
    from node import agent  # noqa: PLC0415 - a whole node; --help must not wait for it

    return agent.run(chosen)


def check_scope(chosen: config.Config) -> None:
    """Raises ConfigError for a rule that cannot be read; what is started would only say so in its log."""
    from shared import scope, urls  # noqa: PLC0415 - --help needs no rules

    scope.Scope.of(chosen.scope, form=urls.Form.of(chosen.sites))


def _check_config(args: argparse.Namespace) -> int:
    chosen = settings(args)
    check_scope(chosen)
    tree = msgspec.to_builtins(msgspec.structs.replace(chosen, redis=config.without_password(chosen.redis)))
    if tree["etcd_security"]["password"]:
        tree["etcd_security"]["password"] = config.HIDDEN
    if args.json:
        print_json(tree)
    else:
        print(_toml(tree))
    return DONE


def _toml(tree: dict[str, Any], table: str = "") -> str:
    """The tree as TOML: JSON's strings, numbers and lists of strings are TOML's too; what is not set has no line."""
    plain = {name: value for name, value in tree.items() if not isinstance(value, dict) and value is not None}
    lines = [f"{_toml_key(name)} = {json.dumps(value, ensure_ascii=False)}" for name, value in plain.items()]
    for name, inner in tree.items():
        if isinstance(inner, dict):
            dotted = f"{table}.{_toml_key(name)}" if table else _toml_key(name)
            lines += ["", f"[{dotted}]", _toml(inner, dotted)]
    return "\n".join(lines)


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _version() -> str:
    try:
        return importlib.metadata.version("crawlring")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _fail(error: errors.CrawlError) -> int:
    print(f"crawlring: {error}", file=sys.stderr)
    match error:
        case errors.DamagedSite():
            return NO
        case errors.StoreUnavailable() if not isinstance(error, errors.StoreForbidden):
            return UNREACHABLE
        case _:  # only the operator can change it: to try again later would not help
            return USAGE


if __name__ == "__main__":
    sys.exit(main())
