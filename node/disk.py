"""The disk that pages and logs are written to: what it does not take now is written when there is room again.

A page in hand that is not written would have to be asked for again (P3), so its visit waits, and no new one begins.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from shared import clock, errors, logs, metrics

AGAIN_S = 1.0  # between tries
LOST_S = 5.0  # since the last failed try: then a visit is begun all the same, for nobody may be trying any more

T = TypeVar("T")
log = logs.get("node.disk")


class Disk:
    """One node's folder for what it writes."""

    def __init__(
        self, out: str, *, counts: metrics.Metrics, over: Callable[[], bool], on_back: Callable[[], None]
    ) -> None:
        self.trouble: str | None = None
        """Why nothing can be written; None while it can."""
        self._out = out
        self._counts = counts
        self._over = over
        self._on_back = on_back
        self._lost_s = 0.0

    @property
    def lost(self) -> bool:
        """Is no visit to begin, since its page could not be kept?"""
        return self.trouble is not None and clock.boot_s() < self._lost_s + LOST_S

    async def kept(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Write, again and again while the disk takes nothing. Raises StoreUnavailable where the session ends."""
        while True:
            try:
                written = await ask()
            except OSError as error:
                self._lose(error)
                if self._over():
                    raise errors.StoreUnavailable(f"disk: {error}") from error
                await asyncio.sleep(AGAIN_S)
            else:
                if self.trouble is not None:
                    log.info("disk.back", out=self._out)
                    self.trouble = None
                    self._on_back()
                return written

    def _lose(self, error: OSError) -> None:
        if self.trouble is None:
            log.error("disk.lost", out=self._out, error=str(error))
            self._counts.store_errors.labels("disk").inc()
        self.trouble = f"cannot write to {self._out}: {error}"
        self._lost_s = clock.boot_s()
