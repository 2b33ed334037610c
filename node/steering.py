"""What the operator says to a running crawl, as this node last heard it: the seeds' scopes, and what is paused.

Read from the store once a second. A node that has not heard for a while starts nothing: so whoever paused a site, or
added a seed with a scope of its own, knows after STALE_S that no node acts on an older word, whether or not it says so.
"""

import math
from collections.abc import Callable

from shared import clock, config, frontier, logs, records, scope, urls

STALE_S = 4.0  # four reads may be lost; `pause` and `seed` wait a second longer than this for nodes that say nothing
ALL = "*"

log = logs.get("node.steering")


class Steering:
    """The newest word, and since when it is known to be that. Times are boot seconds."""

    def __init__(self, settings: config.Config, *, now_s: Callable[[], float] = clock.boot_s) -> None:
        self.scope = scope.Scope.of(settings.scope, form=urls.Form.of(settings.sites))
        self.scope_version = 0
        self.pauses = records.Pauses()
        self._batches: dict[bytes, tuple[scope.SeedRule, ...]] = {}
        self._heard_s = -math.inf
        self._known = False
        self._now_s = now_s

    @property
    def heard(self) -> bool:
        """Is what is known here new enough to act on?"""
        return self._now_s() - self._heard_s < STALE_S

    @property
    def all_paused(self) -> bool:
        return ALL in self.pauses.sites

    def paused(self, site: str) -> bool:
        return site in self.pauses.sites or ALL in self.pauses.sites

    async def read(self, store: frontier.Frontier) -> bool:
        """Hear the newest word; True where something else is paused than before. Raises StoreUnavailable."""
        asked_s = self._now_s()  # what is said after this moment may not be in the answers
        pauses = await store.pauses(newer_than=self.pauses.version if self._known else None)
        version = await store.scope_version()
        if version != self.scope_version or not self._known:
            self._take(await store.scopes(known=self._batches.keys()))
        self._heard_s, self._known = asked_s, True
        if pauses is None:
            return False
        changed = pauses.sites != self.pauses.sites
        self.pauses = pauses
        if changed:
            log.info("crawl.paused", all=self.all_paused, sites=len(pauses.sites - {ALL}))
        return changed

    def forget(self) -> None:
        """The store may have lost its last second: versions that look the same may not be. All is read again."""
        self._known = False

    def refusal(self, queued: records.QueuedUrl, record: records.SiteRecord) -> str | None:
        """Why a queued URL is not to be asked for, one of `scope.REASONS`; a rule may have come since it was queued.

        A robots.txt that another site's redirects to is no page: only what is denied is not asked for.
        """
        if queued.role == "robots":
            reason = self.scope.verdict(queued.url, record.site, 0)
            return reason if reason == scope.DENY else None
        reason = self.scope.verdict(queued.url, record.site, queued.depth, hops=queued.hops)
        return reason or self.scope.spent(pages=record.pages, body_bytes=record.bytes).reason

    def _take(self, told: dict[bytes, tuple[scope.SeedRule, ...] | None]) -> None:
        """Rules are added to those there are; where the store has lost some, all are taken anew."""
        self.scope_version = len(told)
        fresh = {name: rules for name, rules in told.items() if rules is not None}
        lost = self._batches.keys() - told.keys()
        for name in lost:
            del self._batches[name]
        self._batches |= fresh
        if not (lost or fresh):
            return
        if lost or self.scope.seeds is None:
            self.scope.seeds = scope.Seeds() if self._batches else None
            fresh = self._batches
        if self.scope.seeds is not None:
            for rules in fresh.values():
                for rule in rules:
                    self.scope.seeds.add(rule)
        log.info("scope.heard", batches=len(told), rules=self.scope.seeds.count if self.scope.seeds else 0)
