"""The commands that only look: `status`, `ring`, `owner`, `site` and `handoffs`, for readers and as JSON.

What they print as JSON is what scripts rely on: names are added, never changed. None is "not known".
"""

import argparse
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from coordinator import cli, steering
from shared import config, errors, records

if TYPE_CHECKING:
    from coordinator import agreed
    from shared import frontier

RING_COLUMNS = ("id", "incarnation", "weight", "share", "sites")
SUMS = ("pending", "later", "in_flight", "pages")
SILENT_MS = 5_000  # a node reports every second; its last report stays in the store for a minute

Answer = TypeVar("Answer")

EXAMPLES = {
    "status": "  crawlring status\n  crawlring status --json | jq '.nodes[] | select(.state == \"silent\")'",
    "ring": "  crawlring ring\n  crawlring ring --json | jq '.nodes[].share'",
    "owner": "  crawlring owner https://www.example.org/a/page\n  crawlring owner example.org --json",
    "site": "  crawlring site example.org\n  crawlring site example.org --json | jq .due_term",
    "handoffs": "  crawlring handoffs --node n2\n  crawlring handoffs --site example.org --json\n"
    "  crawlring handoffs --follow",
}


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    _command(commands, "status", "show the nodes and how far the crawl is", status)
    _command(commands, "ring", "show the nodes' shares of the ring", show_ring)
    owner = _command(commands, "owner", "tell which node owns a URL's site", show_owner)
    owner.add_argument("url", metavar="URL")
    site = _command(commands, "site", "show all that is known of a site", show_site)
    site.add_argument("site", metavar="SITE", help="a site, or a host or URL of it")
    handoffs = _command(commands, "handoffs", "print the handoff log, in the order it was written", show_handoffs)
    handoffs.add_argument("--site", dest="site", metavar="S", help="only the moves of this site")
    handoffs.add_argument("--node", dest="node", metavar="ID", help="only what this node gained or lost")
    handoffs.add_argument("--epoch", dest="epoch", metavar="E", type=int, help="only this epoch")
    handoffs.add_argument("--follow", dest="follow", action="store_true", help="go on as entries come")


def status(args: argparse.Namespace) -> int:
    """Every member of the view with its own figures; the sums are over the members that report."""
    settings = cli.settings(args)
    rules = _rules(settings)
    names = sorted(rules.snapshot.view.members) if rules.snapshot.view else []

    async def ask(
        store: "frontier.Frontier",
    ) -> tuple[dict[str, records.NodeReport], int, int, records.Pauses | None]:
        return await store.reports(names), await store.site_count(), await store.ping(), await store.pauses()

    reports, sites, now_ms, pauses = _asked(settings, ask)
    nodes = [_node(rules, name, reports.get(name), now_ms=now_ms) for name in names]
    figures: dict[str, Any] = {
        "epoch": rules.snapshot.epoch,
        "nodes": nodes,
        "sites": sites,
        "joining": sorted(rules.snapshot.members.keys() - set(names)),
        "paused": steering.shown(pauses or records.Pauses()),
    } | {name: _sum(nodes, name) for name in SUMS}
    if args.json:
        cli.print_json(figures)
        return cli.DONE
    columns = ("id", "state", "weight", "share", "sites", "pending", "later", "in_flight", "pages")
    print(f"epoch {figures['epoch']}, {len(nodes)} nodes, {sites} sites")
    sums = (f"{name} {_word(figures[name])}" for name in SUMS)
    print(", ".join(sums))
    _table(columns, nodes)
    if figures["paused"]["all"]:
        print("the whole crawl is paused (crawlring resume --all)")
    if figures["paused"]["sites"]:
        print(f"paused: {', '.join(figures['paused']['sites'])}")
    if len({node["scope"] for node in nodes if node["scope"]}) > 1:
        print("the nodes' scope settings differ: a link that one node drops another would follow")
    for name in figures["joining"]:
        print(f"{name} has joined, and no view lists it yet")
    return cli.DONE


def show_ring(args: argparse.Namespace) -> int:
    """Who has how much of the circle; the sites are as the nodes report them."""
    settings = cli.settings(args)
    rules = _rules(settings)
    placement = rules.placement
    names = sorted(placement.view.members) if placement else []
    reports = _asked(settings, lambda store: store.reports(names))
    arcs: dict[str | None, int] = {}
    for arc in placement.ring.arcs() if placement else ():
        arcs[arc.target] = arcs.get(arc.target, 0) + 1
    nodes = [
        {name: value for name, value in _node(rules, node, reports.get(node), now_ms=0).items() if name in RING_COLUMNS}
        | {"arcs": arcs.get(node, 0)}
        for node in names
    ]
    if args.json:
        cli.print_json(
            {
                "epoch": rules.snapshot.epoch,
                "algorithm": settings.ring.algorithm,
                "vnodes": settings.ring.vnodes,
                "nodes": nodes,
                "overrides": placement.view.overrides if placement else {},
            }
        )
        return cli.DONE
    print(f"epoch {rules.snapshot.epoch}, {settings.ring.algorithm}, {settings.ring.vnodes} vnodes a weight")
    _table((*RING_COLUMNS, "arcs"), nodes)
    for site, node in sorted(placement.view.overrides.items()) if placement else ():
        print(f"{site} is placed on {node}")
    return cli.DONE


def show_owner(args: argparse.Namespace) -> int:
    """The owner, computed as every node computes it; 1 where nobody owns anything yet."""
    from shared import ring, urls  # noqa: PLC0415 - not needed for --help

    settings = cli.settings(args)
    rules = _rules(settings)
    try:
        named = args.url if "://" in args.url else f"https://{args.url}"
        url = urls.canonical(named, form=urls.Form.of(settings.sites))
    except errors.InvalidUrl as error:
        raise errors.ConfigError(f"{args.url}: {error}") from error
    site = rules.sites.site_of(url)
    node = rules.owner(site)
    position = ring.position(settings.ring.algorithm, site)
    if args.json:
        epoch = rules.snapshot.epoch
        cli.print_json(
            {"url": url, "site": site, "position": str(position), "node": node, "epoch": epoch}
        )  # a position does not fit in a double, so it is a string
    else:
        print(f"{url}\n  site      {site}\n  position  {position}\n  owner     {node or '(no node has joined)'}")
    return cli.DONE if node is not None else cli.NO


def show_site(args: argparse.Namespace) -> int:
    """The record as the store holds it, with the owner of this moment; 1 for a site never heard of."""
    settings = cli.settings(args)
    rules = _rules(settings)
    names = dict.fromkeys((args.site, _site_of(settings, rules, args.site)))

    async def ask(store: "frontier.Frontier") -> dict[str, Any] | None:
        for name in names:
            if (known := await store.look(name)) is not None:
                pauses = await store.pauses() or records.Pauses()
                return known | {"paused": not pauses.sites.isdisjoint((name, steering.ALL))}
        return None

    known = _asked(settings, ask)
    if known is None:
        print(f"{args.site}: never heard of", file=sys.stderr)
        return cli.NO
    if rules.placement is not None:
        # Between a view and the claim these differ: `owner` may act next, `claimed_by` wrote the record.
        known |= {
            "owner": rules.owner(known["site"]),
            "epoch": rules.snapshot.epoch,
            "claimed_by": known["owner"],
        }
    if args.json:
        cli.print_json(known)
        return cli.DONE
    for name, value in known.items():
        if isinstance(value, list | dict) and value:
            print(name)
            rows = value.items() if isinstance(value, dict) else enumerate(value, 1)
            for key, one in rows:
                print(f"  {key}  {_word(one)}")
        else:
            print(f"{name:14}  {_word(value or None if isinstance(value, list | dict) else value)}")
    return cli.DONE


def show_handoffs(args: argparse.Namespace) -> int:
    """The log as it stands, or with --follow for as long as the reader stays."""
    from shared import handoffs  # noqa: PLC0415 - not needed for --help

    filters = {"site": args.site, "node": args.node, "epoch": args.epoch}

    async def ask(store: "frontier.Frontier") -> None:
        entries = handoffs.follow(store, **filters) if args.follow else handoffs.read(store, **filters)
        async for entry in entries:
            print(handoffs.json_line(entry) if args.json else _sentence(entry), flush=True)

    _asked(cli.settings(args), ask)
    return cli.DONE


def _command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    summary: str,
    run: Callable[[argparse.Namespace], int],
) -> argparse.ArgumentParser:
    parser = cli.add_command(commands, name, summary=summary, epilog=f"examples:\n{EXAMPLES[name]}")
    parser.set_defaults(run=run)
    return parser


def _rules(settings: config.Config) -> "agreed.Rules":
    from coordinator import agreed  # noqa: PLC0415 - etcd's client is not needed for --help

    return agreed.rules(settings)


def _asked(settings: config.Config, ask: "Callable[[frontier.Frontier], Awaitable[Answer]]") -> Answer:
    """The answer of one visit to the store."""
    from shared import frontier  # noqa: PLC0415 - a store's client is not needed for --help

    async def visit() -> Answer:
        store = await frontier.Frontier.open(settings.redis, settings.cluster)
        try:
            return await ask(store)
        finally:
            await store.close()

    return cli.awaited(visit())


def _node(rules: "agreed.Rules", name: str, report: records.NodeReport | None, *, now_ms: int) -> dict[str, Any]:
    """One member of the view; its figures are None where it gave none in this life, the last if silent."""
    assert rules.placement is not None
    member = rules.placement.view.members[name]
    known = report if report is not None and report.incarnation == member.incarnation else None
    return {
        "id": name,
        "incarnation": member.incarnation,
        "weight": member.weight,
        "share": round(rules.placement.ring.share(name), 6),
        "state": known.state if known and now_ms - known.time_ms <= SILENT_MS else "silent",
        "address": member.address,
        "sites": known.sites if known else None,
        "pending": known.pending if known else None,
        "later": known.later if known else None,
        "in_flight": known.in_flight if known else None,
        "pages": known.pages if known else None,
        "reported_ms": known.time_ms if known else None,
        "scope": known.scope or None if known else None,
    }


def _sum(nodes: Sequence[dict[str, Any]], name: str) -> int | None:
    """The sum over the nodes that report; None where none does: zero would say that nothing is left to do."""
    known = [node[name] for node in nodes if node[name] is not None]
    return sum(known) if known else None


def _site_of(settings: "config.Config", rules: "agreed.Rules", text: str) -> str:
    from shared import urls  # noqa: PLC0415 - not needed for --help

    try:
        named = text if "://" in text else f"https://{text}"
        return rules.sites.site_of(urls.canonical(named, form=urls.Form.of(settings.sites)))
    except errors.InvalidUrl as error:
        raise errors.ConfigError(f"{text}: {error}") from error


def _sentence(entry: records.Handoff) -> str:
    if entry.kind == "epoch":
        return (
            f"{_when(entry.time_ms)} epoch {entry.epoch}: {_names(entry.before)} -> {_names(entry.after)}, "
            f"{_word(entry.sites)} sites in {_word(entry.arcs)} arcs"
        )
    head = f"{_when(entry.time_ms)} {entry.site}: {entry.from_node or 'nobody'} -> {_word(entry.to)} at {entry.epoch}"
    if entry.kind == "first_fetch":
        return f"{head}, first request {_word(entry.gap_ms)} ms after the last committed fetch"
    return (
        f"{head}, {entry.cause}, settled by {_word(entry.settled_by)}: {_word(entry.pending)} pending, "
        f"{_word(entry.validators)} with validators, {_word(entry.change_rate)} changes a day, "
        f"due by {entry.due_term or '-'}"
    )


def _when(time_ms: int) -> str:
    """UTC, to the millisecond."""
    seconds, ms = divmod(time_ms, 1000)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(seconds))}.{ms:03}"


def _names(nodes: Sequence[str] | None) -> str:
    return ", ".join(nodes or ()) or "nobody"


def _table(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> None:
    """Plain columns as wide as they must be, numbers to the right."""
    if not rows:
        print("no node has joined")
        return
    words = [[_word(row[column]) for column in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *words, strict=True)]
    for line in (columns, *words):
        cells = [line[0].ljust(widths[0])]
        cells += [word.rjust(width) for word, width in zip(line[1:], widths[1:], strict=True)]
        print("  ".join(cells))


def _word(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_word(one)}" for name, one in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)
