"""The ceilings: aiohttp over a given list of URLs, and nothing else (`fetch`), or parsed by lexbor too (`parse`).

Nothing is followed, stored or waited for: no crawler built on these two libraries can be faster.
"""

import asyncio
import os
import sys
from pathlib import Path

import aiohttp
import loopback
import meter

URLS = Path(os.environ["BENCH_URLS"]).read_text().split()


async def worker(session, urls, read):
    for url in urls:
        async with session.get(url) as answer:
            read(await answer.read())
        if meter.page():
            return


def parse(body):
    from selectolax.lexbor import LexborHTMLParser  # noqa: PLC0415 - not in the fetching one

    return [node.attributes.get("href") for node in LexborHTMLParser(body).css("a[href]")]


async def main():
    urls = iter(URLS)
    read = parse if sys.argv[1] == "parse" else len
    async with aiohttp.ClientSession(connector=loopback.connector(meter.CONCURRENCY)) as session:
        await asyncio.gather(*(worker(session, urls, read) for _ in range(meter.CONCURRENCY)))


asyncio.run(main())
