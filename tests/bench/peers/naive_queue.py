"""The crawler one writes first: aiohttp, a Redis list with BRPOP and LPUSH, a set of what was seen, BeautifulSoup.

Its queue is that of the article this project began with: a list a worker pops from its own key. Each link costs a
SADD, and each new one an LPUSH, as such crawlers do it.
"""

import asyncio
from urllib.parse import urldefrag, urljoin

import aiohttp
import loopback
import meter
import redis.asyncio
from bs4 import BeautifulSoup

QUEUE, SEEN = "queue:worker-1", "seen"


async def offer(store, url):
    if await store.sadd(SEEN, url):
        await store.lpush(QUEUE, url)


async def worker(store, session):
    while True:
        popped = await store.brpop(QUEUE, timeout=10)
        if popped is None:
            return
        url = popped[1]
        try:
            async with session.get(url) as answer:
                text = await answer.text()
        except aiohttp.ClientError:
            continue
        for anchor in BeautifulSoup(text, "html.parser").find_all("a", href=True):
            await offer(store, urldefrag(urljoin(url, anchor["href"]))[0])
        if meter.page():
            return


async def main():
    store = redis.asyncio.from_url(meter.REDIS, decode_responses=True, max_connections=2 * meter.CONCURRENCY)
    async with aiohttp.ClientSession(connector=loopback.connector(meter.CONCURRENCY)) as session:
        for url in meter.SEEDS:
            await offer(store, url)
        workers = [asyncio.create_task(worker(store, session)) for _ in range(meter.CONCURRENCY)]
        await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
        for one in workers:
            one.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    await store.aclose()


asyncio.run(main())
