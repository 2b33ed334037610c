"""`crawlring pause` and `resume`: sites, or all of them, at which nothing new is started until further notice.

What is said stands in the store, by site: it outlasts every node, and moves with nothing. This room also knows how to
wait until the nodes have heard what was said.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

from coordinator import cli
from shared import config, errors, records

if TYPE_CHECKING:
    from coordinator import agreed
    from shared import frontier

HEARD_S = 5.0  # a second more than the age at which a node's own knowledge is too old for it to act on
LOOK_S = 0.05
ALL = "*"

Answer = TypeVar("Answer")

PAUSE_EPILOG = """examples:
  crawlring pause example.org            start nothing new there; the rest of the crawl goes on
  crawlring pause --all                  start nothing new anywhere; nodes stay members, sites move as ever
  crawlring pause --list --json | jq .sites

It returns when every node has heard of it, or can only have stopped by itself: from then on no request starts.
One that is on its way ends. What is paused stays so when nodes restart and sites move, until `resume`.

exit status: 0 done"""

RESUME_EPILOG = """examples:
  crawlring resume example.org
  crawlring resume --all                 sites that were paused by name stay paused

exit status: 0 done, 1 it was not paused"""


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    pause = cli.add_command(commands, "pause", summary="start nothing new at some sites", epilog=PAUSE_EPILOG)
    pause.add_argument("sites", nargs="*", metavar="SITE", help="a site, or a host or URL of it")
    pause.add_argument("--all", action="store_true", help="the whole crawl")
    pause.add_argument("--list", action="store_true", help="only show what is paused")
    pause.set_defaults(run=pause_sites)
    resume = cli.add_command(commands, "resume", summary="go on where a crawl was paused", epilog=RESUME_EPILOG)
    resume.add_argument("sites", nargs="*", metavar="SITE", help="a site, or a host or URL of it")
    resume.add_argument("--all", action="store_true", help="end the pause of the whole crawl")
    resume.set_defaults(run=resume_sites)


def pause_sites(args: argparse.Namespace) -> int:
    """Write it, and wait until no node acts on an older word."""
    settings = cli.settings(args)
    if args.list:
        if args.sites or args.all:
            raise errors.ConfigError("--list only shows: it takes no sites and no --all")
        return _tell(args, _asked(settings, _now), silent=())
    rules = _rules(settings)
    names = _named(args, rules)

    async def say(store: "frontier.Frontier") -> tuple[records.Pauses, list[str]]:
        version = await store.pause(names)
        silent = await unheard(store, live(rules), lambda report: report.pause_version >= version)
        return await _now(store), silent

    now, silent = _asked(settings, say)
    return _tell(args, now, silent=silent)


def resume_sites(args: argparse.Namespace) -> int:
    """1 where none of it was paused."""
    settings = cli.settings(args)
    names = _named(args, _rules(settings))

    async def say(store: "frontier.Frontier") -> tuple[records.Pauses, bool]:
        found = sorted((await _now(store)).sites.intersection(names))
        if found:
            await store.resume(found)
        return await _now(store), bool(found)

    now, done = _asked(settings, say)
    _tell(args, now, silent=())
    return cli.DONE if done else cli.NO


def live(rules: "agreed.Rules") -> list[str]:
    """The nodes that may be at work now; one that joins later hears first."""
    return sorted(rules.snapshot.members)


async def unheard(
    store: "frontier.Frontier",
    nodes: Collection[str],
    heard: Callable[[records.NodeReport], bool],
    *,
    within_s: float = HEARD_S,
) -> list[str]:
    """Wait until every node's report says that it has heard; those that did not say so in time."""
    deadline_s = time.monotonic() + within_s
    waiting = set(nodes)
    while waiting:
        reports = await store.reports(sorted(waiting))
        waiting = {node for node in waiting if node not in reports or not heard(reports[node])}
        if time.monotonic() >= deadline_s:
            break
        if waiting:
            await asyncio.sleep(LOOK_S)
    return sorted(waiting)


def shown(pauses: records.Pauses) -> dict[str, Any]:
    """What is paused, for `--json`."""
    return {"all": ALL in pauses.sites, "sites": sorted(pauses.sites - {ALL})}


def _rules(settings: config.Config) -> "agreed.Rules":
    from coordinator import agreed  # noqa: PLC0415 - etcd's client is not needed for --help

    return agreed.rules(settings)


def _named(args: argparse.Namespace, rules: "agreed.Rules") -> list[str]:
    from shared import urls  # noqa: PLC0415 - not needed for --help

    if bool(args.sites) == args.all:
        raise errors.ConfigError("name the sites, or say --all")
    names = {ALL} if args.all else set()
    for text in args.sites:
        try:
            names.add(rules.sites.site_of(urls.canonical(text if "://" in text else f"https://{text}")))
        except errors.InvalidUrl as error:
            raise errors.ConfigError(f"{text}: {error}") from error
    return sorted(names)


async def _now(store: "frontier.Frontier") -> records.Pauses:
    found = await store.pauses()
    assert found is not None  # asked without a version, it always answers
    return found


def _asked(settings: config.Config, ask: "Callable[[frontier.Frontier], Awaitable[Answer]]") -> Answer:
    """The answer of one visit to the store."""
    from shared import frontier  # noqa: PLC0415 - a store's client is not needed for --help

    async def visit() -> Answer:
        store = await frontier.Frontier.open(settings.redis, settings.cluster, durability=settings.durability)
        try:
            return await ask(store)
        finally:
            await store.close()

    return cli.awaited(visit())


def _tell(args: argparse.Namespace, now: records.Pauses, *, silent: Collection[str]) -> int:
    if args.json:
        cli.print_json(shown(now) | {"unheard": sorted(silent)})
        return cli.DONE
    if ALL in now.sites:
        print("the whole crawl is paused")
    for site in sorted(now.sites - {ALL}):
        print(f"{site} is paused")
    if not now.sites:
        print("nothing is paused")
    for node in silent:
        print(f"{node} has not said that it heard; it starts nothing before it has")
    return cli.DONE
