"""The texts of the comparison: docs/bench.md, what stands under the chart, and which floors are missed. Pure."""

from tests.bench import chart, report

TITLE = "Pages per CPU-second of the client process"
HOW = """# Beside other crawlers

Written by `make bench` (`python -m tests.bench --help`); its samples are in the JSON file that `--json` names.

{speed}
Each figure is the median of the rounds ({rounds}) with the least and the greatest; a round runs every contender once, and
*crawlring is* is taken within the round. Read the ratios: the same code drifts by half as much again on such a machine.

{machine}

## How to read it

- **The work.** 2,000 pages of 20 KB with 40 links each on 1,000 hosts (Zipf 1.05), so 2 million URLs, from the same
  three start pages, 64 requests at one time, delays off. Measured from the 200th page to the last. Host names lead to
  the origin without DNS for all.
- **CPU** is user and system time of the client process with its children, on a core of its own; the origin and the
  stores have the other. *MB* is what it holds at its last page, and contenders run for different numbers of pages:
  after 10,000 pages see below.
- **crawlring** runs whole, as a user starts it: etcd, Valkey with its append-only file, the politeness engine (delay
  0.000001 s), robots.txt asked for on every origin (those requests are in its CPU and not in its pages: {robots}
  a page), one request at a time for each site, JSON Lines, crawl log.
- **The others** do less: robots.txt and logging are off, nothing is written, and nothing holds requests of one site
  apart. Scrapy and crawlee keep what they know in memory alone.
- **bare-fetch** and **bare-parse** are no crawlers: aiohttp over a list of URLs that is given, without and with lexbor.
  They are what is left of a core when a crawler costs nothing.
{missing}
{contenders}
## The store

{store}
*Round trips* are the reads of sockets that the store counts: commands sent together are one, and a client that gathers
what waits sends fewer on a busy machine. *Commands* are the store's own count, which has those inside a script too:
crawlring sends scripts, the others do not.

## Memory

{memory}
"""


def markdown(results: report.Results) -> str:
    """The whole page."""
    ours = results.rows[0]
    robots = report.spread((one.requests - one.pages) / one.pages for one in ours.samples)
    named = [f"`{row.name}` was not run: {row.missing}." for row in results.rows if row.missing]
    return HOW.format(
        speed=report.speed_table(results),
        rounds=len(ours.samples),
        machine="\n".join(f"- {name}: {value}" for name, value in results.machine.items()),
        robots=report.figure(robots.median),
        missing="".join(f"- {line}\n" for line in named),
        contenders=report.table(
            ("contender", "what runs", "versions", "pages a round"),
            [(row.name, row.about, row.versions, _pages(row)) for row in results.rows],
            words=3,
        ),
        store=report.store_table(results),
        memory=memory_text(results),
    )


def memory_text(results: report.Results) -> str:
    """What is known of 10,000 pages."""
    if not results.memory:
        return f"Memory after {report.MEMORY_PAGES:,} pages: not measured in this run (`--memory`)."
    said = ", ".join(f"{name} {held / 1e6:.0f} MB" for name, held in results.memory.items())
    both = {"crawlring", "scrapy"} <= results.memory.keys()
    part = f": 1/{results.memory['scrapy'] / results.memory['crawlring']:.1f} of it" if both else ""
    return f"Resident after {report.MEMORY_PAGES:,} pages: {said}{part}."


def missed(results: report.Results) -> list[str]:
    """A line for each floor that is not reached, and for each contender that gave no figure."""
    ours, *others = results.rows
    lines = [f"{row.name} was not run: {row.missing}" for row in results.rows if row.missing]
    for row in others:
        ratio = report.ratios(ours, row)
        if ratio is not None and row.floor and ratio.median < row.floor:
            lines.append(f"below the floor: {report.figure(ratio.median)}x of {row.name}, asked for {row.floor:g}x")
    return lines


def bars(results: report.Results) -> list[chart.Bar]:
    """The contenders that ran, the slowest last."""
    kinds = {row.name: "bare" if row.name.startswith("bare") else "other" for row in results.rows[1:]}
    found = [chart.Bar(row.name, value, kinds.get(row.name, "ours")) for row in results.rows if (value := _speed(row))]
    return sorted(found, key=lambda bar: -bar.value.median)


def note(results: report.Results) -> str:
    """What has to be said with the chart."""
    rounds = len(results.rows[0].samples)
    return f"median of {rounds} interleaved rounds, line: least to greatest; blue: loops that fetch a given list. {_python(results)}"


def _speed(row: report.Row) -> report.Spread | None:
    return row.of("pages_per_cpu_s")


def _pages(row: report.Row) -> str:
    return f"{row.samples[0].pages:,}" if row.samples else ""


def _python(results: report.Results) -> str:
    return results.machine.get("python", "")
