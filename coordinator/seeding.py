"""`crawlring seed`: URLs from a file, stdin or a Redis list, offered to the cluster's queues.

Each URL's site and position are worked out here by the cluster's own rules, and a cluster that has others is
not seeded: a site in the wrong place of the index would be nobody's. It works before the first node has
joined; the sites then wait in the index. A seed's own scope is written before the seed is offered, and every node has
heard of it by then: no node may drop a good link because it knows less than another.
"""

import argparse
import asyncio
import contextlib
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from coordinator import bounding, cli
from shared import config, errors, records, ring, scope, urls

if TYPE_CHECKING:
    from coordinator import agreed
    from shared import frontier

BATCH_LINES = 1_000  # one round trip per step of the frontier for all of them
LINE_BYTES_MAX = 64 * 1024  # far beyond any URL; a file without line ends must not fill the memory
REFUSED_MAX = 10_000  # listed; beyond it they are only counted
SHOWN_CHARS = 2_048  # of a refused line
PRIORITY = bounding.PRIORITY

EPILOG = """examples:
  crawlring seed seeds.txt
  printf 'https://example.org/\\n' | crawlring seed - --priority 9
  crawlring seed seeds.txt --json | jq '.refused[].reason'
  crawlring seed --from-list frontier:worker-1 --list-redis redis://10.0.0.9:6379/0

One URL a line; empty lines and lines that begin with # are passed over. What is known is not queued twice, so
a run that was cut short can simply be repeated. Refused lines are told and never stop the others: the exit
status is 0 even so.

Behind a URL may stand, with spaces between:

  scope=page     nothing but the seed itself is asked for
  scope=prefix   what lies in its folder: of https://a.example/docs/x.html all below https://a.example/docs/
  scope=host     its host      scope=site  its site, with all hosts      scope=any  everything
  depth=N        what its scope admits, but no more than N links from a seed (alone: scope=any)
  priority=0-9   instead of --priority

  https://example.org/docs/ scope=prefix depth=3
  https://example.net/news priority=9 scope=host

Without a scope anywhere the crawl has no bounds but the nodes' own (--allow, --deny, --depth). The first seed that has
one bounds the crawl: from then on a link is followed only where the scope of some seed admits it, whichever page it
stands on; a seed without a scope then has its site. What is out of scope is never asked for, redirects included."""


class Refusal(records.Record, frozen=True, kw_only=True):
    """A line that was not taken, counted from 1."""

    line: int
    url: str
    reason: str


class SeedReport(records.Record, frozen=True, kw_only=True):
    """What `seed --json` prints."""

    accepted: int = 0
    known: int = 0
    refused: tuple[Refusal, ...] = ()
    refused_total: int = 0
    scopes: int = 0
    """Rules that are new."""
    unheard: tuple[str, ...] = ()
    """Nodes that have not said that they know the rules; they start nothing before they do."""


class Seeder:
    """Turns lines into offers by one cluster's rules, and keeps count."""

    def __init__(
        self, settings: config.Config, rules: "agreed.Rules", *, usual: bounding.Usual, bounds: "bounding.Bounds"
    ) -> None:
        self.accepted = self.known = self.refused_total = 0
        self.refused: list[Refusal] = []
        self._settings = settings
        self._form = urls.Form.of(settings.sites)
        self._scope = scope.Scope.of(settings.scope, form=self._form)
        self._rules = rules
        self._usual = usual
        self._bounds = bounds

    def report(self) -> SeedReport:
        return SeedReport(
            accepted=self.accepted,
            known=self.known,
            refused=tuple(self.refused),
            refused_total=self.refused_total,
            scopes=self._bounds.added,
            unheard=tuple(sorted(self._bounds.unheard)),
        )

    async def begin(self, store: "frontier.Frontier") -> None:
        """Learn what bounds the crawl already."""
        await self._bounds.read(store)

    async def offer(self, store: "frontier.Frontier", lines: Sequence[tuple[int, str]]) -> None:
        """Offer one batch; each line is counted only after the store has answered for it (P2)."""
        seeds: list[tuple[int, bounding.Asked]] = []
        for number, text in lines:
            try:
                seeds.append((number, self._asked(text)))
            except errors.InvalidUrl as error:
                self._refuse(number, text, str(error))
        if not seeds:
            return
        await self._bounds.admit(store, [one for _, one in seeds])
        verdicts = await store.offer(
            [one.offer for _, one in seeds],
            owner_of=self._rules.owner,
            pages_max=self._settings.limits.pages_per_site_max,
        )
        for (number, (offer, _, _)), verdict in zip(seeds, verdicts, strict=True):
            if verdict == "accepted":
                self.accepted += 1
            elif verdict == "known":
                self.known += 1
            else:
                self._refuse(number, offer.url, f"{offer.site} is {verdict}")

    def _asked(self, text: str) -> bounding.Asked:
        limits = self._settings.limits
        if not _is_utf8(text):
            raise errors.InvalidUrl("not UTF-8")  # nobody can say which characters were meant
        text, own = bounding.parted(text, self._usual)
        canonical = urls.canonical(text, form=self._form)
        refusal = urls.refusal(canonical, limits)
        if refusal is not None:
            raise errors.InvalidUrl(refusal)
        site = self._rules.sites.site_of(canonical)
        refusal = self._scope.verdict(canonical, site, 0)
        if refusal is not None:
            raise errors.InvalidUrl(refusal)
        score = ring.score_of(self._settings.ring.algorithm, site)
        offer = records.Offer(url=canonical, site=site, score=score, priority=own.priority)
        return bounding.Asked(offer, own.kind, own.depth)

    def _refuse(self, number: int, url: str, reason: str) -> None:
        self.refused_total += 1
        if len(self.refused) < REFUSED_MAX:
            shown = url[:SHOWN_CHARS].encode(errors="surrogateescape").decode(errors="backslashreplace")
            self.refused.append(Refusal(line=number, url=shown, reason=reason))


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = cli.add_command(commands, "seed", summary="offer URLs to the crawl", epilog=EPILOG)
    parser.add_argument("file", nargs="?", metavar="FILE", help="a URL a line; - is stdin")
    parser.add_argument(
        "--priority",
        type=int,
        choices=range(10),
        default=PRIORITY,
        metavar="0-9",
        help=f"9 is most urgent; default {PRIORITY}",
    )
    parser.add_argument(
        "--scope", choices=scope.KINDS, metavar="KIND", help="of seeds that say none: page, prefix, host, site or any"
    )
    parser.add_argument("--depth", dest="links", type=_links, metavar="N", help="of seeds that say none")
    parser.add_argument("--bound", action="store_true", help="bound a crawl that has begun without bounds")
    parser.add_argument("--from-list", metavar="KEY", help="take the URLs from a Redis list, oldest first")
    parser.add_argument("--list-redis", metavar="URL", help="where that list is; default: the cluster's Redis")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Seed and report; 0 even with refused lines."""
    if (args.file is None) == (args.from_list is None):
        raise errors.ConfigError("seed takes a FILE (or - for stdin), or --from-list KEY")
    settings = cli.settings(args)
    kind: scope.Kind | None = "any" if args.scope is None and args.links is not None else args.scope
    usual = bounding.Usual(args.priority, kind, args.links)
    if args.from_list is not None:
        url = args.list_redis or settings.redis
        report = cli.awaited(seed_list(settings, url, args.from_list, usual=usual, bound=args.bound))
    else:
        with _opened(args.file) as file:
            progress = _progress if sys.stderr.isatty() and not args.json else None
            seeding = seed_numbered(settings, numbered(file), usual=usual, bound=args.bound, progress=progress)
            report = cli.awaited(seeding)
    if args.json:
        cli.print_json(report)
    else:
        for one in report.refused:
            print(f"line {one.line}: {one.reason}: {one.url}", file=sys.stderr)
        for node in report.unheard:
            print(
                f"{node} has not said that it knows the new scopes; it starts nothing before it does", file=sys.stderr
            )
        print(f"{report.accepted} accepted, {report.known} known, {report.refused_total} refused")
    return cli.DONE


async def seed_lines(
    settings: config.Config, lines: Iterable[str], priority: int = PRIORITY, *, bound: bool = False
) -> SeedReport:
    """Offer lines of text, as they stand in a seed file."""
    usual = bounding.Usual(priority)
    return await seed_numbered(settings, _worth_reading(enumerate(lines, 1)), usual=usual, bound=bound)


async def seed_numbered(
    settings: config.Config,
    lines: Iterator[tuple[int, str]],
    *,
    usual: bounding.Usual,
    bound: bool = False,
    progress: Callable[[SeedReport], None] | None = None,
) -> SeedReport:
    """Offer (line number, URL) pairs in batches. StoreUnavailable says how far it came."""
    from shared import frontier  # noqa: PLC0415 - the clients of both stores are not needed for --help

    seeder = await _seeder(settings, usual, bound=bound)
    store = await frontier.Frontier.open(settings.redis, settings.cluster, durability=settings.durability)
    try:
        await seeder.begin(store)
        while batch := list(itertools.islice(lines, BATCH_LINES)):
            try:
                await seeder.offer(store, batch)
            except errors.StoreUnavailable as error:
                raise errors.StoreUnavailable(
                    f"{error}; answered for everything before line {batch[0][0]}, so it is safe to seed again"
                ) from error
            if progress is not None:
                progress(seeder.report())
    finally:
        await store.close()
    return seeder.report()


async def seed_list(
    settings: config.Config, list_url: str, key: str, *, usual: bounding.Usual, bound: bool = False
) -> SeedReport:
    """Offer a Redis list, oldest first, until it is empty; a page leaves it once all of it has been answered for."""
    from shared import frontier, lists  # noqa: PLC0415 - the clients of the stores are not needed for --help

    seeder = await _seeder(settings, usual, bound=bound)
    async with contextlib.AsyncExitStack() as closing:
        source = await lists.Lists.open(list_url)
        closing.push_async_callback(source.close)
        store = await frontier.Frontier.open(settings.redis, settings.cluster, durability=settings.durability)
        closing.push_async_callback(store.close)
        await seeder.begin(store)
        first = 1
        async for page in source.taking(key, at_most=BATCH_LINES):
            await seeder.offer(store, list(enumerate(page, first)))
            first += len(page)
    return seeder.report()


async def _seeder(settings: config.Config, usual: bounding.Usual, *, bound: bool) -> Seeder:
    from coordinator import agreed  # noqa: PLC0415 - etcd's client is not needed for --help

    rules = await asyncio.to_thread(agreed.rules, settings)
    return Seeder(settings, rules, usual=usual, bounds=bounding.Bounds(rules, bound=bound))


def numbered(file: BinaryIO) -> Iterator[tuple[int, str]]:
    """The lines of a seed file worth offering, counted from 1."""
    return _worth_reading(enumerate(_lines(file), 1))


def _lines(file: BinaryIO) -> Iterator[str]:
    while raw := file.readline(LINE_BYTES_MAX):
        rest = raw
        while len(rest) == LINE_BYTES_MAX and not rest.endswith(b"\n"):
            rest = file.readline(LINE_BYTES_MAX)  # too long a line is one line all the same
        yield raw.decode(errors="surrogateescape")


def _worth_reading(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    for number, line in lines:
        text = line.removeprefix("\ufeff").strip()
        if text and not text.startswith("#"):
            yield number, text


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes that did not decode stand here as surrogates
        return False
    return True


def _links(text: str) -> int:
    number = int(text)
    if not 0 <= number <= bounding.DEPTH_MAX:
        raise argparse.ArgumentTypeError(f"a number from 0 to {bounding.DEPTH_MAX}")
    return number


@contextlib.contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115 - closed below; only the opening may be the operator's mistake
    except OSError as error:
        raise errors.ConfigError(f"cannot read {name}: {error.strerror}") from error
    with file:
        yield file


def _progress(report: SeedReport) -> None:
    done = report.accepted + report.known + report.refused_total
    print(f"\r{done} lines, {report.accepted} accepted ", end="", file=sys.stderr, flush=True)
