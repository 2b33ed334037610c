"""What `crawlring shard` computes and moves: owners by the article's ring, its smoke checks, and the re-sharding."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from shared import errors, lists, records, ring, sites, urls

ALGORITHM = "md5-32"
HOSTS = tuple(f"site-{i}.example.com" for i in range(2_000))  # the article's sample, hashed as it stands
FAIR = 2.0  # the article's bound: no worker owns twice the average
UNEVEN = 1.3  # above this more vnodes are worth their memory: 150 of them stay near 1.1
REMAP_FACTOR = 1.75  # the article's 35 % for a fifth worker, which should move 20 %


class Shards:
    """Which worker a URL belongs to, for one worker list."""

    def __init__(self, workers: Sequence[str], vnodes: int) -> None:
        self._sites = sites.Sites()
        self._ring = build(workers, vnodes)
        self.agreement = lists.Agreement(workers=tuple(workers), vnodes=vnodes, sites=self._sites.digest)

    def site_of(self, url: str) -> str:
        """Raises InvalidUrl."""
        return self._sites.site_of(urls.canonical(url))

    def owner(self, site: str) -> str:
        owner = self._ring.owner(site)
        assert owner is not None, "a worker list is never empty"
        return owner

    def worker_of(self, url: str) -> str:
        """Raises InvalidUrl."""
        return self.owner(self.site_of(url))

    def refusal(self, stands: lists.Agreement | None) -> str:
        """Why lists with this agreement are not pushed to."""
        if stands is None:
            return f"the key {lists.AGREEMENT} was removed while this ran"
        if stands.moving:
            return "the lists are being shared out again, or that was cut short: finish it with --reshard"
        mine = self.agreement
        if (stands.workers, stands.vnodes) == (mine.workers, mine.vnodes):
            return "the lists were filled by another version's site rule: share them out again with --reshard"
        return (
            f"this Redis is sharded over {_named(stands)}, not over {_named(mine)}: "
            "use the former, or share the lists out again with --reshard"
        )


def build(workers: Sequence[str], vnodes: int) -> ring.Ring:
    return ring.Ring.build(dict.fromkeys(workers, 1.0), algorithm=ALGORITHM, vnodes=vnodes)


# --- the smoke checks ----------------------------------------------------------------------------------------


class Check(records.Record):
    """What `shard --check --json` prints."""

    passed: bool
    hosts: int
    deterministic: bool
    counts: dict[str, int]
    average: float
    worst: int
    balanced: bool
    moved_fraction: float
    """Of the hosts, when one more worker joins."""
    moved_expected: float
    moved_max: float
    moves_little: bool
    moved_fraction_1_vnode: float | None
    """When the last worker leaves a ring of one vnode each; None with fewer than two workers."""
    advice: str | None


def check(workers: Sequence[str], vnodes: int) -> Check:
    """The article's three checks over its 2,000 hosts, and its example of a ring without vnodes."""
    circle, again = build(workers, vnodes), build(workers, vnodes)
    owners = [circle.owner(host) for host in HOSTS]
    counts = Counter(owner for owner in owners if owner is not None)
    average, worst = len(HOSTS) / len(workers), max(counts.values())
    moved = _moved(circle, build([*workers, _newcomer(workers)], vnodes))
    expected = 1 / (len(workers) + 1)
    limit = REMAP_FACTOR * expected
    deterministic = owners == [again.owner(host) for host in HOSTS]
    balanced, moves_little = worst < FAIR * average, moved < limit
    uneven = worst > UNEVEN * average or not moves_little
    return Check(
        passed=deterministic and balanced and moves_little,
        hosts=len(HOSTS),
        deterministic=deterministic,
        counts={worker: counts[worker] for worker in workers},
        average=average,
        worst=worst,
        balanced=balanced,
        moved_fraction=moved,
        moved_expected=expected,
        moved_max=limit,
        moves_little=moves_little,
        moved_fraction_1_vnode=_moved(build(workers, 1), build(workers[:-1], 1)) if len(workers) > 1 else None,
        advice=f"raise SHARD_VNODES, now {vnodes}: more points even out the shares" if uneven else None,
    )


def told(check: Check) -> list[str]:
    """The check as lines for a reader."""

    def line(passed: bool, text: str) -> str:  # noqa: FBT001 - the value of the check itself
        return f"{'PASS' if passed else 'FAIL'}: {text}"

    shares = ", ".join(f"{worker} {count}" for worker, count in check.counts.items())
    lines = [
        line(check.deterministic, "a host goes to the same worker each time"),
        line(check.balanced, f"the busiest worker has {check.worst} of {check.average:g} on average ({shares})"),
        line(
            check.moves_little,
            f"one more worker moves {_percent(check.moved_fraction)} of the hosts "
            f"(ideal {_percent(check.moved_expected)}, at most {_percent(check.moved_max)})",
        ),
    ]
    if check.moved_fraction_1_vnode is not None:
        moved = _percent(check.moved_fraction_1_vnode)
        lines.append(f"with 1 vnode per worker, the last worker's leaving would move {moved}")
    if check.advice:
        lines.append(check.advice)
    return lines


def _moved(old: ring.Ring, new: ring.Ring) -> float:
    return sum(old.owner(host) != new.owner(host) for host in HOSTS) / len(HOSTS)


def _newcomer(workers: Sequence[str]) -> str:
    """The name the article's next worker would have, or the next free one."""
    number = len(workers)
    while f"worker-{number}" in workers:
        number += 1
    return f"worker-{number}"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.4g} %"


def _named(agreement: lists.Agreement) -> str:
    return f"{','.join(agreement.workers)} with {agreement.vnodes} vnodes"


# --- the lists -----------------------------------------------------------------------------------------------


class MisplacedSite(records.Record):
    """A site on a list that is not its owner's; `queues`: worker -> how many of its URLs."""

    site: str
    worker: str
    queues: dict[str, int]


class Misplaced(records.Record):
    """What `shard --misplaced --json` prints."""

    urls: int
    misplaced: int
    unreadable: int
    sites: tuple[MisplacedSite, ...]


async def misplaced(opened: lists.Lists, shards: Shards, workers: Sequence[str]) -> Misplaced:
    """Read all lists: which sites stand on a list of another worker than their owner.

    Holds a number per site and list in memory; lists that change meanwhile are read roughly.
    """
    queues: dict[str, Counter[str]] = defaultdict(Counter)
    total, unreadable = 0, 0
    for worker in workers:
        async for page in opened.pages(lists.queue_of(worker)):
            total += len(page)
            for url in page:
                try:
                    queues[shards.site_of(url)][worker] += 1
                except errors.InvalidUrl:
                    unreadable += 1
    found = tuple(
        MisplacedSite(site=site, worker=shards.owner(site), queues=dict(on))
        for site, on in sorted(queues.items())
        if set(on) != {shards.owner(site)}
    )
    wrong = sum(count for site in found for worker, count in site.queues.items() if worker != site.worker)
    return Misplaced(urls=total, misplaced=wrong, unreadable=unreadable, sites=found)


async def reshard(opened: lists.Lists, shards: Shards) -> Counter[str]:
    """Share out every list again; returns how many `urls`, of them `moved` to another worker, and `unreadable`.

    Cut short at any point it loses nothing and repeats nothing: each URL stands on exactly one list at every
    moment, and until the end every push is refused. Running it again, with these workers or others, completes it.
    """
    stands = await opened.agreement()
    before = (*stands.workers, *stands.moving) if stands else ()
    workers = tuple(dict.fromkeys((*before, *shards.agreement.workers)))
    moving = lists.Agreement(
        workers=shards.agreement.workers,
        vnodes=shards.agreement.vnodes,
        sites=shards.agreement.sites,
        moving=workers,
    )
    if await opened.agree(moving, instead_of=stands) != moving:
        raise errors.ConfigError("another shard or --reshard came first: look at --depth, then run this again")
    done: Counter[str] = Counter()
    for worker in workers:  # what an earlier run left aside
        await _share_out(opened, shards, moving, worker, done)
    for worker in workers:
        if await opened.put_aside(moving, worker) is None:
            raise _overtaken()
    for worker in workers:
        await _share_out(opened, shards, moving, worker, done)
    if await opened.agree(shards.agreement, instead_of=moving) != shards.agreement:
        raise _overtaken()
    return done


async def _share_out(
    opened: lists.Lists, shards: Shards, moving: lists.Agreement, source: str, done: Counter[str]
) -> None:
    while page := await opened.oldest(lists.aside_of(source)):
        pairs: list[tuple[str, str]] = []
        for url in page:
            try:
                pairs.append((shards.worker_of(url), url))
            except errors.InvalidUrl:
                pairs.append((shards.owner(ascii(url)), url))  # any bytes: some place that is always the same
                done["unreadable"] += 1
        moved = await opened.move(moving, source, pairs)
        if moved is None:
            raise _overtaken()
        done["urls"] += moved
        done["moved"] += sum(worker != source for worker, _ in pairs[:moved])


def _overtaken() -> errors.ConfigError:
    return errors.ConfigError("another --reshard has taken over; nothing is lost")
