"""Seeds with a scope of their own: the options behind a URL, and the rules that come of them, written for all nodes.

A crawl is bounded from its first such rule on. Rules are written, and heard by every node, before the seeds that
brought them are offered.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from coordinator import steering
from shared import errors, records, scope

if TYPE_CHECKING:
    from coordinator import agreed
    from shared import frontier

PRIORITY = 5
DEPTH_MAX = 9_999  # as much as a queue entry can tell
PLAIN_SITES_MAX = 100_000  # remembered of seeds without a scope, in case one that has a scope follows

_OPTION = re.compile(r"(scope|depth|priority)=(\S*)")


class Usual(NamedTuple):
    """What a line means that says nothing else, and what one line says."""

    priority: int = PRIORITY
    kind: scope.Kind | None = None
    depth: int | None = None


class Asked(NamedTuple):
    """One seed that is to be offered."""

    offer: records.Offer
    kind: scope.Kind | None
    depth: int | None


def parted(text: str, usual: Usual) -> tuple[str, Usual]:
    """A line without its options, and what they say over the usual. Raises InvalidUrl for an option that says nothing.

    Only these three words before an `=` are options: a URL with spaces in it is what it was.
    """
    said: dict[str, str] = {}
    while True:
        head, *rest = text.rsplit(None, 1)
        found = _OPTION.fullmatch(rest[0]) if rest else None
        if found is None:
            break
        if found[1] in said:
            raise errors.InvalidUrl(f"{found[1]} is given twice")
        said[found[1]] = found[2]
        text = head
    if not said:
        return text, usual
    kind = said.get("scope", usual.kind)
    if kind is not None and kind not in scope.KINDS:
        raise errors.InvalidUrl(f"scope is one of {', '.join(scope.KINDS)}")
    depth = _number(said, "depth", usual.depth, most=DEPTH_MAX)
    priority = _number(said, "priority", usual.priority, most=9)
    assert priority is not None
    if "depth" in said and kind is None:
        kind = "any"
    return text, Usual(priority, cast("scope.Kind | None", kind), depth)


def _number(said: dict[str, str], name: str, usual: int | None, *, most: int) -> int | None:
    if name not in said:
        return usual
    text = said[name]
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and int(text) <= most):
        raise errors.InvalidUrl(f"{name} is a number from 0 to {most}")
    return int(text)


class Bounds:
    """The rules of one cluster's seeds, as one run of `seed` finds and extends them."""

    def __init__(self, rules: "agreed.Rules", *, bound: bool, heard_s: float = steering.HEARD_S) -> None:
        self.added = 0
        self.unheard: set[str] = set()
        self._nodes = steering.live(rules)
        self._may_bound = bound
        self._heard_s = heard_s
        self._known: set[scope.SeedRule] = set()
        self._plain: dict[str, None] | None = {}
        """Sites of seeds without a scope, while the crawl has no bounds; None: too many to remember."""

    async def read(self, store: "frontier.Frontier") -> None:
        """What bounds the crawl already; without bounds, one that has begun is not bounded by accident."""
        for rules in (await store.scopes()).values():
            self._known.update(rules or ())
        self._may_bound = self._may_bound or bool(self._known) or not await store.site_count()

    async def admit(self, store: "frontier.Frontier", seeds: Sequence[Asked]) -> None:
        """Write what is new of these seeds' rules, and wait until the nodes have heard.

        Raises ConfigError where a crawl that has no bounds would get some unasked.
        """
        if not self._known and all(one.kind is None for one in seeds):
            self._remember(seeds)
            return
        if not self._may_bound:
            raise errors.ConfigError(
                "this crawl has no bounds so far: a seed with a scope would bound it, and whatever waits outside would "
                "be set aside. --bound does that; earlier seeds then need a scope too (seed them again with --scope)"
            )
        rules = [
            scope.seed_rule(one.kind or "site", one.offer.url, one.offer.site, one.depth if one.kind else None)
            for one in seeds
        ]
        if not self._known:
            if self._plain is None:
                raise errors.ConfigError(
                    f"more than {PLAIN_SITES_MAX} seeds came without a scope before one with a scope: say --scope"
                )
            rules += [scope.SeedRule(kind="site", place=site) for site in self._plain]
            self._plain = {}
        new = [rule for rule in dict.fromkeys(rules) if rule not in self._known]
        if not new:
            return
        version = await store.add_scopes(new)
        self._known.update(new)
        self.added += len(new)
        silent = await steering.unheard(
            store,
            set(self._nodes) - self.unheard,
            lambda report: report.scope_version >= version,
            within_s=self._heard_s,
        )
        self.unheard.update(silent)  # a node that says nothing is waited for once

    def _remember(self, seeds: Sequence[Asked]) -> None:
        if self._plain is None:
            return
        self._plain.update(dict.fromkeys(one.offer.site for one in seeds))
        if len(self._plain) > PLAIN_SITES_MAX:
            self._plain = None
