"""The handoff log: its lines as they are built, printed, filtered, followed and read back from a file.

It knows no store: the frontier holds the log. Moments are the store's TIME, as in the site's record.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from shared import frontier, placement, records, ring

PAGE = 1_000  # entries of one read

# What scripts rely on: these fields, on every line, in this order; unknown = null.
CONTRACT = (
    "kind",
    "time_ms",
    "epoch",
    "site",
    "cause",
    "from",
    "to",
    "settled_by",
    "pending",
    "validators",
    "change_rate",
    "last_fetch_ms",
    "due_ms",
    "due_term",
    "first_fetch_ms",
    "gap_ms",
)
SUMMARY = ("node", "before", "after", "arcs", "sites", "moved_fraction", "ideal_fraction")  # epoch lines only

_decoder = msgspec.json.Decoder(dict[str, Any])


def moved(
    record: records.SiteRecord, *, epoch: int, node: str, cause: records.Cause, settled_by: records.Settled
) -> records.Handoff:
    """The line of a site that `node` has just claimed at `epoch`, from the claim's answer."""
    return records.Handoff(
        kind="moved",
        time_ms=record.answered_ms,
        epoch=epoch,
        node=node,
        site=record.site,
        cause=cause,
        from_node=record.owner,
        to=node,
        settled_by=settled_by,
        pending=record.pending,
        validators=record.validators,
        change_rate=records.change_rate(record.checks, record.changes, record.observed_s),
        last_fetch_ms=record.last_fetch_ms,
        due_ms=record.due_ms,
        due_term=record.due_term,
        delay_ms=round(record.delay_s * 1000),
    )


def epoch_line(
    before: placement.Placement | None, after: placement.Placement, *, arcs: int, sites: int, node: str, time_ms: int
) -> records.Handoff:
    """The summary of one view: who was there and is now, what moved, and the least that had to."""
    old = dict(before.ring.weights) if before else {}
    new = dict(after.ring.weights)
    # Of the circle, only what leavers had and joiners get has to change hands.
    shares_old, shares_new = _shares(old), _shares(new)
    gained = sum(max(share - shares_old.get(name, 0.0), 0.0) for name, share in shares_new.items())
    lost = sum(max(share - shares_new.get(name, 0.0), 0.0) for name, share in shares_old.items())
    moved_span = sum(end - start for start, end, _, _ in ring.moved_arcs(before.ring, after.ring)) if before else 0
    return records.Handoff(
        kind="epoch",
        time_ms=time_ms,
        epoch=after.epoch,
        node=node,
        before=tuple(sorted(old)),
        after=tuple(sorted(new)),
        arcs=arcs,
        sites=sites,
        moved_fraction=moved_span / after.ring.top if before else 1.0,
        ideal_fraction=max(gained, lost),
    )


def _shares(weights: dict[str, float]) -> dict[str, float]:
    whole = sum(weights.values())
    return {name: weight / whole for name, weight in weights.items()} if whole else {}


def first_fetch(line: records.Handoff, *, first_fetch_ms: int) -> records.Handoff:
    """The `moved` line again, filled in when the first request of the tenure has started.

    Both moments must be of the store's clock, or the gap is off by the node's clock error.
    """
    gap_ms = None if line.last_fetch_ms is None else first_fetch_ms - line.last_fetch_ms
    return msgspec.structs.replace(
        line, kind="first_fetch", time_ms=first_fetch_ms, first_fetch_ms=first_fetch_ms, gap_ms=gap_ms
    )


def json_line(entry: records.Handoff) -> str:
    """One line of `crawlring handoffs --json`, without the newline."""
    whole = msgspec.to_builtins(entry)
    names = CONTRACT + SUMMARY if entry.kind == "epoch" else CONTRACT
    return records.encode_json({name: whole[name] for name in names}).decode()


def parse_line(line: str | bytes) -> records.Handoff:
    """The entry of a printed line. Raises ValueError (msgspec.DecodeError is one) for anything else."""
    try:
        read = _decoder.decode(line)
    except RecursionError as error:
        raise ValueError("nested deeper than any entry") from error
    # A site's lines are written by the node it went to, so they do not name their writer again.
    writer = read.get("to") or ""
    return msgspec.convert({"node": writer} | read, records.Handoff)


def read_file(path: Path, *, on_bad: Callable[[], None] | None = None) -> Iterator[records.Handoff]:
    """The entries of a file of printed lines; `on_bad` hears of each line that is none."""
    with path.open("rb") as lines:
        for line in lines:
            if not line.strip():
                continue
            try:
                yield parse_line(line)
            except ValueError:
                if on_bad is not None:
                    on_bad()


def matches(
    entry: records.Handoff, *, site: str | None = None, node: str | None = None, epoch: int | None = None
) -> bool:
    """Whether an entry passes the filters that are given; a node's lines are those it gained or lost by."""
    if site is not None and entry.site != site:
        return False
    if epoch is not None and entry.epoch != epoch:
        return False
    if node is None or node in (entry.from_node, entry.to):
        return True
    return entry.kind == "epoch" and node in (*(entry.before or ()), *(entry.after or ()))


async def read(
    store: frontier.Frontier,
    *,
    site: str | None = None,
    node: str | None = None,
    epoch: int | None = None,
    follow_ms: int | None = None,
) -> AsyncIterator[records.Handoff]:
    """The entries that pass the filters, oldest first; with `follow_ms` it goes on for ever.

    `follow_ms` is how long one call waits for news; a generator that is closed stops after the call it is in.
    """
    after = "-"
    while True:
        entries = await store.read_handoffs(after, at_most=PAGE, block_ms=follow_ms)
        for _, entry in entries:
            if matches(entry, site=site, node=node, epoch=epoch):
                yield entry
        if entries:
            after = entries[-1][0]
        elif follow_ms is None:
            return


async def follow(
    store: frontier.Frontier, *, site: str | None = None, node: str | None = None, epoch: int | None = None
) -> AsyncIterator[records.Handoff]:
    """All entries that pass the filters, those to come included."""
    async for entry in read(store, site=site, node=node, epoch=epoch, follow_ms=1_000):
        yield entry
