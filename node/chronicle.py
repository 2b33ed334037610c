"""What one node writes into the handoff log: its gains, their first requests, and the views it proposed.

Lines wait here until the store takes them; nothing in the crawl waits for them.
"""

from collections import deque
from collections.abc import Callable

from node import fetch, ownership
from shared import frontier, handoffs, placement, records, ring

LINES_PER_CALL = 500


class Chronicle:
    """The lines of one node, in order."""

    def __init__(self, node: str, *, store_ms_at: Callable[[float], int]) -> None:
        self._node = node
        self._store_ms_at = store_ms_at
        """From this machine's boot time in seconds to the store's TIME in milliseconds."""
        self._lines: deque[records.Handoff] = deque()
        self._views: deque[tuple[placement.Placement | None, placement.Placement, float]] = deque()

    @property
    def waiting(self) -> bool:
        return bool(self._lines or self._views)

    def moved(self, move: ownership.Moved) -> None:
        """A site came from another tenure."""
        line = handoffs.moved(
            move.record, epoch=move.held.tenure, node=self._node, cause=move.cause, settled_by=move.settled_by
        )
        move.held.handoff = line
        self._lines.append(line)

    def first_request(self, held: ownership.Held, answer: fetch.Answer) -> None:
        """The first request of a tenure went out: the move's line again, filled in."""
        if held.handoff is not None:
            at_ms = self._store_ms_at(answer.start_boot_s)
            self._lines.append(handoffs.first_fetch(held.handoff, first_fetch_ms=at_ms))
            held.handoff = None

    def agreed(self, before: placement.Placement | None, view: records.View, epoch: int, *, boot_s: float) -> None:
        """Our proposal became the view: its summary is ours to write."""
        after = placement.Placement.of(view, epoch, before)
        if before is not None and before.ring.algorithm != after.ring.algorithm:
            before = None  # a cluster that came back with another ring: there is nothing to compare
        self._views.append((before, after, boot_s))

    async def write(self, store: frontier.Frontier) -> None:
        """Append what waits. Raises StoreUnavailable, and then nothing is forgotten (a line may stand twice)."""
        while self._views:
            self._lines.append(await self._summary(store, *self._views[0]))
            self._views.popleft()
        while self._lines:
            lines = [self._lines[at] for at in range(min(len(self._lines), LINES_PER_CALL))]
            await store.append_handoffs(lines)
            for _ in lines:
                self._lines.popleft()

    async def _summary(
        self,
        store: frontier.Frontier,
        before: placement.Placement | None,
        after: placement.Placement,
        boot_s: float,
    ) -> records.Handoff:
        """Reads the sites of the arcs that moved and no others (P6)."""
        arcs = ring.moved_arcs(before.ring, after.ring) if before else after.ring.arcs()
        moved = 0
        async for page in store.sites_in(ring.index_ranges(after.ring, arcs)):
            moved += sum(1 for site in page if before is None or before.owner(site) != after.owner(site))
        return handoffs.epoch_line(
            before, after, arcs=len(arcs), sites=moved, node=self._node, time_ms=self._store_ms_at(boot_s)
        )
