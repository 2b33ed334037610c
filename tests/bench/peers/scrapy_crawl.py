"""Scrapy at its leanest, alone (`minimal`) or with its queue and filter in Redis (`redis`: scrapy-redis).

Every link is followed by `response.follow_all` of a CSS selection; robots.txt, logging and the telnet
console are off; cookies, retries and redirects are as they come, and cost little where nothing fails.
"""

import sys

import meter
import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.resolver import CachingThreadedResolver
from twisted.internet import defer

SETTINGS = {
    "ROBOTSTXT_OBEY": False,
    "LOG_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "DOWNLOAD_DELAY": 0,
    "CONCURRENT_REQUESTS": meter.CONCURRENCY,
    "CONCURRENT_REQUESTS_PER_DOMAIN": meter.CONCURRENCY,
    "DNS_RESOLVER": "__main__.Loopback",
}
SHARED = {
    "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
    "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
    "SCHEDULER_PERSIST": False,
    "REDIS_URL": meter.REDIS,
}


class Loopback(CachingThreadedResolver):
    """Leads every host name to this machine."""

    def getHostByName(self, name, timeout=()):  # noqa: ARG002, N802 - Twisted's words
        return defer.succeed("127.0.0.1")


class Pages(scrapy.Spider):
    """Follows everything."""

    name = "pages"

    async def start(self):
        for url in meter.SEEDS:
            yield scrapy.Request(url)

    def parse(self, response):
        if meter.page():
            self.crawler.engine.close_spider(self, "enough")
            return
        yield from response.follow_all(css="a::attr(href)")


if __name__ == "__main__":
    crawler = CrawlerProcess(SETTINGS | (SHARED if sys.argv[1] == "redis" else {}))
    crawler.crawl(Pages)
    crawler.start()
