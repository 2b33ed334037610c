"""Every size of a cluster that grows, worked out: the lines of `crawlring simulate growth`.

Membership, ring, ownership and schedule are the project's own code in virtual time; what the store, etcd and a node
can do are measured costs (`growth_costs`); the heavy tail is drawn by rank (`growth_sites`).
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from coordinator import growth_costs, growth_sessions, growth_sites, growth_table, growth_takeover
from shared import agreement, config, membership, ring

WITNESSED = 500  # sites of one node whose first requests are followed through `ownership` and `schedule`
READ_AGAIN_S = 60.0  # claiming.READ_AGAIN_S
SITES_PER_PAGE = 1_000  # frontier.PAGE_OF_SITES


def lines_of(
    sizes: Sequence[int],
    population: growth_sites.Population,
    settings: config.Config,
    *,
    costs: growth_costs.Costs,
    days: float,
) -> Iterator[growth_table.Line]:
    circle: ring.Ring | None = None
    for nodes in sizes:
        print(f"{nodes} nodes ...", file=sys.stderr, flush=True)
        weights = {f"node-{number:04}": 1.0 for number in range(nodes)}
        circle = (
            ring.Ring.build(weights, algorithm=settings.ring.algorithm, vnodes=settings.ring.vnodes)
            if circle is None
            else circle.with_weights(weights)
        )
        yield line_of(nodes, circle, population, settings, costs=costs, days=days)


def line_of(
    nodes: int,
    circle: ring.Ring,
    population: growth_sites.Population,
    settings: config.Config,
    *,
    costs: growth_costs.Costs,
    days: float,
) -> growth_table.Line:
    """One cluster size."""
    protocol = membership.settings_of(settings.membership)
    delay_s = settings.politeness.delay_min_s
    cluster = growth_sessions.Cluster(
        nodes,
        settings=protocol,
        fingerprint=membership.fingerprint(settings, sites_digest="growth"),
        fetch_s=costs.fetch_s,
        seed=population.seed,
    )
    start = cluster.begin()
    quiet = cluster.steady()
    events, takeovers = _events(cluster, quiet, circle, population, protocol, costs=costs, delay_s=delay_s)
    seconds = days * growth_sites.DAY_S
    most = seconds / (delay_s + costs.fetch_s)
    skew = growth_sites.skew(population, circle, most=most)
    rate = costs.node_cores * 1000 / costs.node_ms_per_fetch
    # While every site has something to fetch: the nodes' own pace, or all sites at their delay.
    per_s = min(rate * nodes, population.sites / (delay_s + costs.fetch_s))
    dns = population.dns_per_fetch(interval_s=population.sites / per_s, ttl_s=costs.dns_ttl_s)
    commands = costs.store_commands_per_node_s * nodes + _reads_per_s(circle, population.sites)
    joined = next((event for event in events if event.cause == "join"), None)
    return growth_table.Line(
        nodes=nodes,
        quiet={name: round(value, 1) for name, value in quiet.items()},
        start=dict(start),
        events={event.cause: dict(event.cost) for event in events},
        takeovers=tuple(takeovers),
        sites_peak=skew.sites,
        urls_peak=skew.urls,
        fetchable_peak=skew.fetchable,
        nodes_worth=sum(skew.loads) / (rate * seconds),
        error=skew.error,
        pages_per_s=per_s,
        store_per_fetch=costs.store_commands_per_fetch + commands / per_s,
        store_per_s=costs.store_commands_per_fetch * per_s + commands,
        dns_per_fetch=dns,
        etcd_per_fetch=sum(quiet.get(name, 0.0) for name in ("look", "confirm", "keepalive")) / per_s,
        uses=tuple(
            growth_costs.uses(
                costs,
                members=nodes,
                quiet=quiet,
                join=joined.cost if joined else Counter(),
                join_s=joined.settled_s[-1][0] if joined else 0.0,
                store_ms_per_s=costs.store_ms_per_fetch * per_s + costs.store_command_ms * commands,
                dns_per_s=dns * per_s,
            )
        ),
    )


def _events(
    cluster: growth_sessions.Cluster,
    quiet: dict[str, float],
    circle: ring.Ring,
    population: growth_sites.Population,
    protocol: agreement.Settings,
    *,
    costs: growth_costs.Costs,
    delay_s: float,
) -> tuple[list[growth_sessions.Event], list[growth_table.Takeover]]:
    """One node drains, joins, crashes, joins and loses its lease; nothing of it where it is alone."""
    events: list[growth_sessions.Event] = []
    takeovers: list[growth_table.Takeover] = []
    small = circle.with_weights({node: 1.0 for node in circle.weights if node != cluster.subject})
    for cause in ("drain", "join", "crash", "join", "kill-lease") if len(circle.weights) > 1 else ():
        event = cluster.event(cause, quiet)
        if any(event.cause == earlier.cause for earlier in events):
            continue  # it only brings the node back
        moved = growth_sites.moves(small, circle) if cause == "join" else growth_sites.moves(circle, small)
        events.append(event)
        takeovers.append(_takeover(event, moved, cluster, population, protocol, costs=costs, delay_s=delay_s))
    return events, takeovers


def _takeover(
    event: growth_sessions.Event,
    moved: growth_sites.Moves,
    cluster: growth_sessions.Cluster,
    population: growth_sites.Population,
    protocol: agreement.Settings,
    *,
    costs: growth_costs.Costs,
    delay_s: float,
) -> growth_table.Takeover:
    """Every session's moment from the protocol; one node's sites through the product's own ownership."""
    running = [session for session in cluster.sessions if session.running and session.nodes[0] in moved.gains]
    if event.cause == "kill-lease":
        running = [session for session in running if session.nodes[0] != event.node]
    witness = max(running, key=lambda session: moved.gains[session.nodes[0]])
    me = witness.nodes[0]
    arcs = [arc for arc in moved.arcs if arc.target == me]
    circle = ring.Ring.build({me: 1.0}, algorithm=population.algorithm, vnodes=1)  # only for the form of its arcs
    sites = population.within(circle, arcs)[:WITNESSED]
    first = growth_takeover.Witness(event, node=me, settings=protocol, delay_s=delay_s).run(
        witness.heard, sites=sites, claims_per_s=costs.claims_per_s
    )
    # A joiner gains alone: what counts is its own moment.
    gainers = {session.nodes[0] for session in running}
    settled = [at_s for at_s, _ in event.settled_s]
    if event.cause == "join":
        settled = [witness.settled[event.epochs[1]] - event.began_s]
    largest = max(moved.gains.values()) * population.sites
    return growth_table.Takeover(
        cause=event.cause,
        views=event.views,
        moved=moved.fraction * population.sites,
        gainers=len(moved.gains) if gainers else 0,
        settled_s=(settled[0], settled[len(settled) // 2], settled[-1]),
        witnessed=len(first),
        unseen=len(sites) - len(first),
        first_s=(min(first.values(), default=0.0), max(first.values(), default=0.0)),
        claimed_s=largest / costs.claims_per_s,
        slowest_s=settled[-1] + delay_s * agreement.SLACK + growth_takeover.TRIP_S + 2 * growth_takeover.WATCH_S,
        bound_s=growth_table.bound_s(event.cause, protocol, delay_s=delay_s, fetch_s=costs.fetch_s),
    )


def _reads_per_s(circle: ring.Ring, sites: int) -> float:
    """Commands by which all owners read their own arcs of the site index again."""
    node = next(iter(circle.weights))
    own = [arc for arc in circle.arcs() if arc.target == node]
    ranges = len(ring.index_ranges(circle, own)) * len(circle.weights)
    return (ranges + sites / SITES_PER_PAGE) / READ_AGAIN_S
