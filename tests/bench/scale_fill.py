"""Fills a frontier with many sites through the product's own offer, in a process of its own.

Each site of the node that is to go or to come has a few URLs, and a long delay: a tenure of long ago has claimed it
with that. The others' sites have one URL, but all except a few of them rest for an hour, in the same way. Those few are
busy: their pages link to further pages. Who owns what is computed as the nodes do it. Run it as
`python -m tests.bench.scale_fill`.
"""

import argparse
import asyncio
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shared import config, frontier, records, ring

BATCH = 1_000  # sites of one offer
AT_ONCE = 3  # offers on their way
REST_S = 3_600.0
PAGES = {"moves": 4, "rests": 1, "starts": 1}  # a site that moves has work left after some visits
FIRST = 1  # a tenure older than any epoch of a node
SETTINGS = config.RingSettings()


@dataclass(frozen=True, slots=True)
class Plan:
    """Which sites there are, and what each is for."""

    sites: int
    nodes: tuple[str, ...]
    mover: str | None
    """The node whose sites move; None: nobody's, and then every site has one URL and none rests."""
    busy: int
    """Sites of each other node that are crawled all the time."""
    delay_s: float = 0.0
    """Of the sites that move."""

    def owners(self) -> Iterator[tuple[str, str, str]]:
        """(site, owner, kind) of each; the kind is `moves`, `busy` or `rests`, or `starts` where nobody moves."""
        circle = ring.Ring.build(dict.fromkeys(self.nodes, 1.0), algorithm=SETTINGS.algorithm, vnodes=SETTINGS.vnodes)
        left = dict.fromkeys(self.nodes, self.busy)
        for number in range(self.sites):
            site = site_name(number)
            owner = circle.owner(site) or ""
            if self.mover is None:
                yield site, owner, "starts"
            elif owner == self.mover:
                yield site, owner, "moves"
            elif left[owner] > 0:
                left[owner] -= 1
                yield site, owner, "busy"
            else:
                yield site, owner, "rests"


def site_name(number: int) -> str:
    return f"s{number:07}.example"


def command(plan: Plan, cluster: str) -> list[str]:
    """The command line that fills the store which CRAWLRING_REDIS names."""
    return [
        *(sys.executable, "-P", "-m", "tests.bench.scale_fill", "--cluster", cluster),
        *("--sites", str(plan.sites), "--nodes", ",".join(plan.nodes), "--busy", str(plan.busy)),
        *("--delay", str(plan.delay_s)),
        *(("--mover", plan.mover) if plan.mover else ()),
    ]


async def _fill(redis: str, cluster: str, plan: Plan) -> None:
    desk = await frontier.Frontier.open(redis, cluster, call_s=30.0)
    gate = asyncio.Semaphore(AT_ONCE)

    async def put(batch: Sequence[tuple[str, str, str]]) -> None:
        async with gate:
            offers = [one for site, _, kind in batch for one in _offers(site, kind)]
            verdicts = await desk.offer(offers, owner_of=lambda _: None, pages_max=1_000_000)
            if set(verdicts) - {"accepted", "known"}:
                raise SystemExit(f"not accepted: {set(verdicts)}")
            for which, delay_s in (("rests", REST_S), ("moves", plan.delay_s)):
                claimed = [site for site, _, kind in batch if kind == which]
                if claimed:
                    await desk.claim(claimed, "long-ago", FIRST, delay_s=delay_s)

    try:
        rows = plan.owners()
        async with asyncio.TaskGroup() as group:
            while batch := list(itertools.islice(rows, BATCH)):
                await gate.acquire()
                gate.release()
                group.create_task(put(batch))
                await asyncio.sleep(0)
    finally:
        await desk.close()


def _offers(site: str, kind: str) -> list[records.Offer]:
    place = ring.score_of(SETTINGS.algorithm, site)
    paths = ("busy-0",) if kind == "busy" else tuple(f"page-{number}" for number in range(PAGES[kind]))
    return [records.Offer(url=f"http://www.{site}/{path}", site=site, score=place) for path in paths]


def main(argv: list[str] | None = None) -> int:
    """Fill."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.scale_fill")
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--sites", type=int, required=True)
    parser.add_argument("--nodes", required=True)
    parser.add_argument("--mover")
    parser.add_argument("--busy", type=int, default=0)
    parser.add_argument("--delay", type=float, default=0.0)
    args = parser.parse_args(argv)
    plan = Plan(args.sites, tuple(args.nodes.split(",")), args.mover, args.busy, args.delay)
    asyncio.run(_fill(config.load().redis, args.cluster, plan))
    return 0


if __name__ == "__main__":
    sys.exit(main())
