"""Crawlee's ParselCrawler with its own HTTP client (impit) and its queue in memory; every link is enqueued.

Names are led to this machine by naming the origin as an HTTP proxy, since impit resolves for itself; it still keeps
its connections for each host apart.
"""

import asyncio
import logging
import os

import meter
from crawlee import ConcurrencySettings
from crawlee.crawlers import ParselCrawler
from crawlee.http_clients import ImpitHttpClient
from crawlee.storage_clients import MemoryStorageClient


async def main():
    crawler = ParselCrawler(
        http_client=ImpitHttpClient(http3=False, proxy=f"http://{os.environ['BENCH_ORIGIN']}"),
        storage_client=MemoryStorageClient(),
        concurrency_settings=ConcurrencySettings(
            min_concurrency=meter.CONCURRENCY,
            max_concurrency=meter.CONCURRENCY,
            desired_concurrency=meter.CONCURRENCY,
        ),
        respect_robots_txt_file=False,
        configure_logging=False,
    )

    @crawler.router.default_handler
    async def page(context):
        await context.enqueue_links(strategy="all")
        if meter.page():
            crawler.stop()
            os._exit(0)  # what waits in its queue would be worked off first

    await crawler.run(meter.SEEDS)


logging.disable(logging.CRITICAL)
asyncio.run(main())
