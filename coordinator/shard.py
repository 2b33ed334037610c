"""`crawlring shard`: URLs from stdin onto one Redis list per worker, by a consistent-hash ring over their sites.

The sharding of a published article as a command: md5-32 points, LPUSH to `frontier:<worker>`, so that its workers
need no change. It has no part in a cluster's crawl: `crawlring seed --from-list` brings such a list into one.
"""

import argparse
import asyncio
import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO

from coordinator import cli
from shared import errors

if TYPE_CHECKING:
    from coordinator import shard_ring
    from shared import lists

VNODES = 150
REDIS_DSN = "redis://redis.internal:6379/0"
CHUNK_BYTES = 64 * 1024  # what is there is pushed at once; one call of some hundred URLs when much is there
LINE_BYTES_MAX = 64 * 1024  # far beyond any URL; input without line ends must not fill the memory
SHOWN_CHARS = 200  # of a line that is refused

EPILOG = """examples:
  export SHARD_WORKERS=worker-0,worker-1,worker-2,worker-3
  crawlring shard < urls.txt                        push each URL to frontier:<worker>, print `url -> worker`
  crawlring shard --check                           is the ring even, and what would a fifth worker move?
  crawlring shard --depth                           how long each worker's list is
  crawlring shard --misplaced                       sites on two lists, or on a list that is not their owner's
  SHARD_WORKERS=worker-0,worker-1 crawlring shard --reshard     share all lists out again, losing nothing

SHARD_WORKERS, SHARD_VNODES (150) and SHARD_REDIS_DSN (redis://redis.internal:6379/0) are what the options
override. One Redis has one worker list: another one, or another number of vnodes, is refused until --reshard.
Lists that another program filled: run once with its workers and no input, then --reshard to yours.

exit status: 0 done, 1 a line was no URL, a check failed or a site is misplaced, 2 wrong usage, 3 no Redis"""


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    summary = "push URLs from stdin to one Redis list per worker"
    parser = commands.add_parser(
        "shard",
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--workers", metavar="A,B,...", help="all workers, in order; default SHARD_WORKERS")
    parser.add_argument("--vnodes", metavar="N", help=f"points per worker; default SHARD_VNODES or {VNODES}")
    parser.add_argument("--redis", metavar="URL", help=f"default SHARD_REDIS_DSN or {REDIS_DSN}")
    parser.add_argument("--json", action="store_true", help="print JSON (not for the URLs themselves)")
    what = parser.add_mutually_exclusive_group()
    for flag, action, text in (
        ("--check", _check, "check that the ring is deterministic, even, and moves little; needs no Redis"),
        ("--depth", _depth, "print the length of each worker's list"),
        ("--misplaced", _misplaced, "print sites that stand on two lists, or on a list of another worker"),
        ("--reshard", _reshard, "share out all lists again for these workers; may be repeated if cut short"),
    ):
        what.add_argument(flag, dest="run", action="store_const", const=action, help=text)
    parser.set_defaults(run=_feed)


# --- what was asked for --------------------------------------------------------------------------------------


def workers_of(args: argparse.Namespace) -> tuple[str, ...] | None:
    """The workers that were named, in order; None if none were."""
    text = args.workers if args.workers is not None else os.environ.get("SHARD_WORKERS")
    if text is None:
        return None
    workers = tuple(worker.strip() for worker in text.split(","))
    if "" in workers or len(set(workers)) < len(workers):
        raise errors.ConfigError(f"the workers {text!r} must be names, each once, with a comma between")
    return workers


def vnodes_of(args: argparse.Namespace) -> int:
    text = args.vnodes if args.vnodes is not None else os.environ.get("SHARD_VNODES", str(VNODES))
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= 100_000):
        raise errors.ConfigError(f"the number of vnodes must be 1 to 100000, not {text!r}")
    return int(text)


def _shards(args: argparse.Namespace) -> "shard_ring.Shards":
    from coordinator import shard_ring  # noqa: PLC0415 - the suffix list takes longer to load than --help may

    workers = workers_of(args)
    if workers is None:
        raise errors.ConfigError("the workers are required: SHARD_WORKERS=worker-0,worker-1 or --workers")
    return shard_ring.Shards(workers, vnodes_of(args))


async def _with_lists(args: argparse.Namespace, step: "Callable[[lists.Lists], Awaitable[int]]") -> int:
    from shared import lists  # noqa: PLC0415 - redis takes longer to load than --help may

    opened = await lists.Lists.open(args.redis or os.environ.get("SHARD_REDIS_DSN") or REDIS_DSN)
    try:
        return await step(opened)
    finally:
        await opened.close()


# --- pushing -------------------------------------------------------------------------------------------------


def _feed(args: argparse.Namespace) -> int:
    shards = _shards(args)
    return asyncio.run(_with_lists(args, lambda opened: feed(opened, shards, sys.stdin.buffer)))


async def feed(opened: "lists.Lists", shards: "shard_ring.Shards", source: BinaryIO) -> int:
    """Push every line of the source to its worker's list, as it arrives; a bad line never stops the others."""
    stands = await opened.agree(shards.agreement, instead_of=None)
    if stands != shards.agreement:
        raise errors.ConfigError(shards.refusal(stands))
    status = cli.DONE
    for arrived in arrivals(source):  # waiting for lines blocks the loop, which has nothing else to do
        pairs: list[tuple[str, str]] = []
        for number, line in arrived:
            try:
                url = line.decode().strip()
                if url:
                    pairs.append((shards.worker_of(url), url))
            except (errors.InvalidUrl, UnicodeDecodeError) as error:
                reason = error if isinstance(error, errors.InvalidUrl) else "not UTF-8"
                shown = line[:SHOWN_CHARS].decode(errors="backslashreplace").strip()
                print(f"line {number}: {reason}: {shown}", file=sys.stderr)
                status = cli.NO
        if not await opened.push(shards.agreement, pairs):
            raise errors.ConfigError(shards.refusal(await opened.agreement()))
        sys.stdout.write("".join(f"{url} -> {worker}\n" for worker, url in pairs))
        sys.stdout.flush()
    return status


def arrivals(source: BinaryIO) -> Iterator[list[tuple[int, bytes]]]:
    """Numbered lines, all that have arrived at a time; an overlong line is cut, so that it is refused as too long."""
    number, rest = 0, b""
    while chunk := source.read1(CHUNK_BYTES) if hasattr(source, "read1") else source.read(CHUNK_BYTES):
        *lines, rest = (rest[: LINE_BYTES_MAX + 1] + chunk).split(b"\n")
        yield list(enumerate(lines, number + 1))
        number += len(lines)
    if rest:
        yield [(number + 1, rest)]


# --- looking -------------------------------------------------------------------------------------------------


def _check(args: argparse.Namespace) -> int:
    from coordinator import shard_ring  # noqa: PLC0415 - see _shards

    shards = _shards(args)
    check = shard_ring.check(shards.agreement.workers, shards.agreement.vnodes)
    if args.json:
        cli.print_json(check)
    else:
        print("\n".join(shard_ring.told(check)))
    return cli.DONE if check.passed else cli.NO


def _depth(args: argparse.Namespace) -> int:
    from shared import lists  # noqa: PLC0415 - see _with_lists

    async def depth(opened: lists.Lists) -> int:
        stands = await opened.agreement()
        workers = _all_workers(workers_of(args), stands)
        lengths = await opened.lengths([lists.queue_of(worker) for worker in workers])
        aside = await opened.lengths([lists.aside_of(worker) for worker in workers])
        if args.json:
            queues = dict(zip(workers, lengths, strict=True))
            cli.print_json({"queues": queues, "aside": sum(aside), "total": sum(lengths) + sum(aside)})
            return cli.DONE
        for worker, length in zip(workers, lengths, strict=True):
            print(f"{worker}: {length}")
        if any(aside):
            print(f"aside: {sum(aside)} (a --reshard was cut short, or is under way)")
        return cli.DONE

    return asyncio.run(_with_lists(args, depth))


def _misplaced(args: argparse.Namespace) -> int:
    from coordinator import shard_ring  # noqa: PLC0415 - see _shards

    async def misplaced(opened: "lists.Lists") -> int:
        stands = await opened.agreement()
        named = workers_of(args)
        if named is None and stands is not None:
            shards = shard_ring.Shards(stands.workers, stands.vnodes)
        else:
            shards = _shards(args)
        found = await shard_ring.misplaced(opened, shards, _all_workers(named, stands))
        if args.json:
            cli.print_json(found)
        else:
            for site in found.sites:
                where = ", ".join(f"{worker}: {count}" for worker, count in site.queues.items())
                print(f"{site.site}  belongs to {site.worker}  is on {where}")
            print(f"{found.misplaced} of {found.urls} URLs are misplaced, {found.unreadable} are no URLs")
        return cli.NO if found.sites else cli.DONE

    return asyncio.run(_with_lists(args, misplaced))


def _all_workers(named: Sequence[str] | None, stands: "lists.Agreement | None") -> list[str]:
    """Every worker that may have a list: those named, those agreed on, those being shared out."""
    agreed = (*stands.workers, *stands.moving) if stands else ()
    workers = list(dict.fromkeys((*(named or ()), *agreed)))
    if not workers:
        raise errors.ConfigError("the workers are required: SHARD_WORKERS=worker-0,worker-1 or --workers")
    return workers


# --- sharing out again ---------------------------------------------------------------------------------------


def _reshard(args: argparse.Namespace) -> int:
    from coordinator import shard_ring  # noqa: PLC0415 - see _shards

    shards = _shards(args)

    async def reshard(opened: "lists.Lists") -> int:
        moved: Counter[str] = await shard_ring.reshard(opened, shards)
        if args.json:
            cli.print_json({name: moved[name] for name in ("urls", "moved", "unreadable")})
        else:
            print(f"{moved['urls']} URLs shared out, {moved['moved']} of them to another worker")
            if moved["unreadable"]:
                print(f"{moved['unreadable']} are no URLs: each went where its text hashes to", file=sys.stderr)
        return cli.DONE

    return asyncio.run(_with_lists(args, reshard))
