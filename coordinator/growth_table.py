"""The figures of `simulate growth`: a line for each size, the answer they give together, and both as text.

Pure.
"""

from collections.abc import Mapping, Sequence

import msgspec

from coordinator import growth_costs, growth_sites
from shared import agreement


class Takeover(msgspec.Struct, frozen=True, kw_only=True):
    """One membership event as its sites see it; seconds from its beginning."""

    cause: str
    views: int
    moved: float
    """Sites."""
    gainers: int
    settled_s: tuple[float, float, float]
    """First, median and last node that may claim."""
    witnessed: int
    """Sites followed to their first request through ownership and schedule."""
    unseen: int
    """Of those, without one: none."""
    first_s: tuple[float, float]
    slowest_s: float
    """The slowest node's first request, if it claims within the second."""
    claimed_s: float
    """What the node that gains most needs to claim it all, on top."""
    bound_s: float
    """P5."""

    @property
    def kept(self) -> bool:
        return self.unseen == 0 and max(self.slowest_s, self.first_s[1]) <= self.bound_s


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster size. Rates are per second."""

    nodes: int
    quiet: Mapping[str, float]
    start: Mapping[str, int]
    events: Mapping[str, Mapping[str, int]]
    """Cause -> calls and events beyond those of a quiet cluster."""
    takeovers: tuple[Takeover, ...]
    sites_peak: float
    urls_peak: float
    fetchable_peak: float
    nodes_worth: float
    """What all sites can give in the days asked for, in nodes at work all the time."""
    error: float
    pages_per_s: float
    """While every site has something to fetch, and if nothing but the nodes and politeness holds them back."""
    store_per_fetch: float
    store_per_s: float
    dns_per_fetch: float
    etcd_per_fetch: float
    uses: tuple[growth_costs.Use, ...]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Where the cluster stops growing."""

    stops: Mapping[str, float | None]
    """Part -> number of nodes at which it is full; None: not by the largest size."""
    first: str | None
    stops_at: float | None
    days: float
    nodes_worth: float
    """What politeness lets be fetched in these days, in nodes at work all the time."""
    largest_site_days: float
    """What the largest site takes alone, at its delay."""
    store_spread: float
    """Store operations per fetch: the difference between sizes, as a part of their mean."""


def bound_s(cause: str, protocol: agreement.Settings, *, delay_s: float, fetch_s: float) -> float:
    """P5, with a request in flight where one may be."""
    if cause == "crash":
        return max(protocol.lease_ttl_s, protocol.view_lease_s + protocol.wire_s) + delay_s + 2.0
    return delay_s + (2.0 if cause == "join" else 1.0) + fetch_s


def answered(
    lines: Sequence[Line],
    population: growth_sites.Population,
    *,
    costs: growth_costs.Costs,
    delay_s: float,
    days: float,
) -> Answer:
    """Which part is full first."""
    parts = [use.part for use in lines[0].uses]
    stops = {
        part: growth_costs.full_at(
            (line.nodes, next(use.used for use in line.uses if use.part == part)) for line in lines
        )
        for part in parts
    }
    full = {part: at for part, at in stops.items() if at is not None}
    first = min(full, key=lambda part: full[part], default=None)
    per_fetch = [line.store_per_fetch for line in lines]
    return Answer(
        stops=stops,
        first=first,
        stops_at=full[first] if first is not None else None,
        days=days,
        nodes_worth=lines[-1].nodes_worth,
        largest_site_days=population.heavy[0] * (delay_s + costs.fetch_s) / growth_sites.DAY_S,
        store_spread=(max(per_fetch) - min(per_fetch)) / (sum(per_fetch) / len(per_fetch)),
    )


def written(lines: Sequence[Line], answer: Answer, *, markdown: bool) -> str:
    """Four tables and the answer."""
    parts = [
        _table(
            "Each second in quiet",
            ("nodes", "pages", "etcd looks", "confirms", "keep-alives", "MiB read", "MiB confirmed", "etcd / fetch"),
            [
                (
                    f"{line.nodes:,}", f"{line.pages_per_s:,.0f}", f"{line.quiet.get('look', 0):,.0f}",
                    f"{line.quiet.get('confirm', 0):,.0f}", f"{line.quiet.get('keepalive', 0):,.0f}",
                    f"{line.quiet.get('look bytes', 0) / 2**20:,.2f}",
                    f"{line.quiet.get('confirm bytes', 0) / 2**20:,.2f}", f"{line.etcd_per_fetch:.4f}",
                )
                for line in lines
            ],
            markdown=markdown,
        ),
        _table(
            "For each fetch, and the busiest node against the mean",
            ("nodes", "store", "DNS", "store / s", "sites", "URLs", "fetchable URLs", "error"),
            [
                (
                    f"{line.nodes:,}", f"{line.store_per_fetch:.2f}", f"{line.dns_per_fetch:.4f}",
                    f"{line.store_per_s:,.0f}", f"{line.sites_peak:.3f}", f"{line.urls_peak:.2f}",
                    f"{line.fetchable_peak:.3f}", f"{line.error:.4f}",
                )
                for line in lines
            ],
            markdown=markdown,
        ),
        _table(
            "Membership events: etcd's work, and seconds until a moved site is asked for",
            (
                "nodes", "event", "looks", "writes", "refused", "watch events", "sites moved", "to nodes",
                "may claim: first, last", "first request", "P5", "claiming all",
            ),
            [_event(line, takeover) for line in lines for takeover in line.takeovers],
            markdown=markdown,
        ),
        _table(
            "How full each part is (1 = full), were all nodes to fetch all they can",
            ("nodes", *(use.part for use in lines[0].uses)),
            [(f"{line.nodes:,}", *(f"{use.used:.3f}" for use in line.uses)) for line in lines],
            markdown=markdown,
        ),
    ]  # fmt: skip
    return "\n\n".join([*parts, *_told(answer)])


def _event(line: Line, takeover: Takeover) -> tuple[str, ...]:
    cost = line.events[takeover.cause]
    writes = sum(cost.get(name, 0) for name in ("confirm", "propose", "join", "leave", "weigh", "resign"))
    return (
        f"{line.nodes:,}", takeover.cause, f"{cost.get('look', 0):,}", f"{writes:,}", f"{cost.get('denied', 0):,}",
        f"{cost.get('watch events', 0):,}", f"{takeover.moved:,.0f}", f"{takeover.gainers:,}",
        f"{takeover.settled_s[0]:.2f}, {takeover.settled_s[2]:.2f}",
        (f"{takeover.first_s[0]:.2f} to " if takeover.witnessed else "to ") + f"{takeover.slowest_s:.2f}",
        f"{takeover.bound_s:.2f}" + ("" if takeover.kept else " missed"), f"{takeover.claimed_s:,.1f}",
    )  # fmt: skip


def _told(answer: Answer) -> list[str]:
    full = ", ".join(f"{part} {_at(at)}" for part, at in answer.stops.items())
    first = "no part is full by the largest size" if answer.first is None else f"{answer.first}, {_at(answer.stops_at)}"
    return [
        f"Stops first: {first}.",
        f"Full at this many nodes: {full}.",
        f"In {answer.days:g} days the sites' delays let so much be fetched as {answer.nodes_worth:,.1f} nodes can.",
        f"The largest site takes {answer.largest_site_days:,.0f} days at its delay, with however many nodes.",
        f"Store operations per fetch differ by {answer.store_spread:.1%} between sizes.",
    ]


def _at(nodes: float | None) -> str:
    return "never" if nodes is None else f"at {nodes:,.0f}"


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, markdown: bool) -> str:
    if markdown:
        lines = ["| " + " | ".join(row) + " |" for row in (head, ["---:"] * len(head), *rows)]
        return "\n".join([f"**{title}**", "", *lines])
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    told = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)]
    return "\n".join([title, *told])
