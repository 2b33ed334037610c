"""One field case: hosts of its own that answer exact bytes, their log as the judge, and a crawler let loose on them.

The log holds every request as its bytes came. A case is judged by it first, then by what the crawler says of itself.
"""

import asyncio
import contextlib
import dataclasses
import functools
import ipaddress
import itertools
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from node import dns
from node.sinks import jsonl
from shared import clock, records
from tests.node import crawler, origins
from tests.node.crawler import Answer, Crawler, linking, moved, reply

DELAY_S = 0.05
POLITE = {"delay_min_s": DELAY_S}
OK = reply(b"<title>ok</title>ok")
CASES: dict[str, Callable[..., Any]] = {}
"""The test function of each case."""


def case(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Mark a test as the one of that case; its `scene` then has the case's own hosts."""

    def marked(test: Callable[..., Any]) -> Callable[..., Any]:
        assert CASES.setdefault(name, test) is test, f"two tests of {name}"
        test.case = name  # type: ignore[attr-defined]
        return test

    return marked


@dataclasses.dataclass
class Asked(crawler.Arrival):
    """One request, and its head as it came."""

    head: bytes = b""

    @property
    def line(self) -> str:
        """The request line's target."""
        return self.head.split(b" ", 2)[1].decode("latin-1")

    def header(self, name: str) -> str | None:
        """The value as it was sent, byte for byte."""
        for line in self.head.split(b"\r\n")[1:]:
            found, _, value = line.partition(b": ")
            if found.lower() == name.lower().encode():
                return value.decode("latin-1")
        return None


class Stage(crawler.Web):
    """Every host at one address, by http and, where there is a certificate, by https."""

    log: list[Asked]  # type: ignore[assignment]

    def __init__(self, site: str, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.site, self.delay_s = site, DELAY_S
        self.otherwise: Callable[[str], Answer | None] = lambda _: None
        """What answers where nothing was put: an endless space of URLs."""
        self.origin = origins.Origin(functools.partial(self._answer, "http"))
        self.secure = origins.Origin(functools.partial(self._answer, "https"), tls) if tls else None

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["Stage"]:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.origin)
            if self.secure is not None:
                await stack.enter_async_context(self.secure)
            yield self

    def full(self, url: str) -> str:
        return f"http://{self.site}{url}" if url.startswith("/") else url

    def put(self, url: str, *answers: Answer) -> None:
        self.pages[self.full(url)] = answers

    def asked(self, url: str) -> list[Asked]:  # type: ignore[override]
        return [one for one in self.log if one.url == self.full(url)]

    @property
    def paths(self) -> list[str]:
        """What the case's own host was asked for, in order, robots.txt left out."""
        own = f"http://{self.site}"
        found = [one.url.removeprefix(own) for one in self.log if one.url.startswith(f"{own}/")]
        return [path for path in found if path != "/robots.txt"]

    def judge(self) -> None:
        """No two requests of a site closer than its smallest delay, by the origin's own clock (P1)."""
        for site in {crawler.PLACES.site_of(one.url) for one in self.log}:
            log = [one for one in self.log if crawler.PLACES.site_of(one.url) == site]
            for before, after in itertools.pairwise(log):
                assert after.start_s - before.end_s >= self.delay_s, (site, before.url, after.url)

    async def _answer(self, scheme: str, visitor: origins.Visitor) -> None:
        origin = self.secure if scheme == "https" else self.origin
        assert origin is not None
        head = origin.requests[visitor.number - 1]
        now_s = clock.boot_s()
        asked = Asked("", {}, now_s, now_s, head)
        asked.url = f"{scheme}://{asked.header('host')}{asked.line}"
        self.log.append(asked)
        answers = self.pages.get(asked.url)
        if answers is None:
            answers = (self.otherwise(asked.url) or reply(status="404 Not Found"),)
        answer = answers[min(len(self.asked(asked.url)), len(answers)) - 1]
        if isinstance(answer, bytes):
            await visitor.send(answer)
        else:
            await answer(visitor)
        asked.end_s = clock.boot_s()


class Names(dns.Resolver):
    """`*.test` and the hosts named are the stage; other names have no address, and literals are judged as ever.

    With `nameservers` other names are asked for there.
    """

    def __init__(self, stage: Stage, *, hosts: Sequence[str] = (), **options: Any) -> None:
        super().__init__(**options)
        self._stage, self._hosts = stage, hosts
        self.asked: list[str] = []

    async def lookup(self, host: str, port: int) -> dns.Address:
        self.asked.append(host)
        if host.endswith(".test") or host in self._hosts:
            secure = self._stage.secure if port == 443 else None
            return dns.Address("127.0.0.1", (secure or self._stage.origin).port)
        if self._nameservers is None and not _is_literal(host):
            raise dns.UnresolvedError("outside of the test")
        found = await super().lookup(host, port)
        assert found.ip.startswith("127."), "no test leaves this machine"
        return found


@dataclasses.dataclass
class Seen:
    """What one URL's first visit came to."""

    outcome: str
    """As the crawl log has it."""
    page: jsonl.PageLine | None
    """As the sink has it."""
    look: dict[str, Any]
    """The site's record."""
    line: records.CrawlLine
    commit: records.Commit


@dataclasses.dataclass
class Scene:
    """A case's stage, its store and its folder."""

    name: str
    stage: Stage
    store: str
    out: Path

    @property
    def site(self) -> str:
        return self.stage.site

    def put(self, url: str, *answers: Answer) -> None:
        self.stage.put(url, *answers)

    def url(self, path: str) -> str:
        return self.stage.full(path)

    @property
    def other(self) -> str:
        """Another site's address, which no case is to harm."""
        return f"http://other-{self.site}"

    @contextlib.asynccontextmanager
    async def crawl(self, *, resolver: dns.Resolver | None = None, **options: Any) -> AsyncIterator[Crawler]:
        """A node on the stage; `politeness`, `limits` and so on as in the configuration."""
        options["politeness"] = POLITE | options.get("politeness", {})
        self.stage.delay_s = min(self.stage.delay_s, options["politeness"]["delay_min_s"])
        resolver = resolver or Names(self.stage)
        async with crawler.crawling(self.store, self.stage, self.out, resolver=resolver, **options) as crawl:
            yield crawl

    async def seed(self, crawl: Crawler, *urls: str, priority: int = 5) -> None:
        await crawl.seed(*map(self.url, urls), priority=priority)

    async def again(self, crawl: Crawler, url: str) -> None:
        """Ask for a page again now, as an operator may."""
        site = crawler.PLACES.site_of(self.url(url))
        score = crawler.score_of(site)
        offer = records.Offer(url=self.url(url), site=site, score=score, priority=9, again=True)
        await crawl.store.offer([offer], owner_of=crawl.owned.owner_of, pages_max=1_000)

    async def visits(self, crawl: Crawler, url: str, times: int) -> list[records.PageRecord]:
        """Ask for a page so many times; its record after each."""
        await self.seed(crawl, url)
        for number in range(1, times + 1):
            if number > 1:
                await self.again(crawl, url)
            await crawl.run(
                lambda number=number: len(self.stage.asked(url)) == number and self.kept(crawl, url, number)
            )  # type: ignore[misc]
        return records_of(crawl, self.url(url))

    def kept(self, crawl: Crawler, url: str, number: int) -> bool:
        return len(records_of(crawl, self.url(url))) == number

    async def aside(self, crawl: Crawler, site: str = "") -> dict[str, int]:
        return dict((await crawl.look(site or self.site))["set_aside"])

    async def one(self, *answers: Answer, path: str = "/p", within_s: float = 8.0, **options: Any) -> Seen:
        """One answer's outcome, and the proof that it harms nobody: the site's next page and another site's are had."""
        self.put(path, *answers)
        others = (self.url("/after"), f"{self.other}/fine")
        for url in others:
            self.put(url, OK)
        options["politeness"] = {"backoff_min_s": 30.0} | options.get("politeness", {})
        async with self.crawl(**options) as crawl:
            await self.seed(crawl, path, priority=9)
            await crawl.run(lambda: bool(outcomes(crawl, self.url(path))), within_s=within_s)
            asked = len(self.stage.asked(path))
            assert asked == len(outcomes(crawl, self.url(path))) == 1, "one request for each scheduled fetch"
            await self.seed(crawl, *others)
            await crawl.run(lambda: all(outcomes(crawl, url) for url in others), within_s=within_s)
            look = await crawl.look(self.site)
            assert [outcomes(crawl, url) for url in others] == [["fetched"], ["fetched"]]
            assert len(self.stage.asked(path)) == 1, "nor again at once"
            line = next(line for line in crawl.lines() if line.url == self.url(path))
            commit = next(one for one in crawl.commits if self.url(path) in dict(one.pages))
            return Seen(line.outcome, crawl.pages().get(self.url(path)), look, line, commit)


class Memory:
    """How much memory this process came to hold, at its highest, since this was made (Linux: proc(5), clear_refs)."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")
        self._begun_kib = self._peak_kib()

    def grown_kib(self) -> int:
        return self._peak_kib() - self._begun_kib

    @staticmethod
    def _peak_kib() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def archived(folder: Path) -> bytes:
    """All that the archive holds, uncompressed, finished files or not."""
    found = b""
    for path in sorted(folder.glob("*.warc.gz*")):
        data = path.read_bytes()
        while data:
            member = zlib.decompressobj(31)
            found += member.decompress(data)
            data = member.unused_data
    return found


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def outcomes(crawl: Crawler, url: str) -> list[str]:
    """What the crawl log says of a URL's requests."""
    return [line.outcome for line in crawl.lines() if line.url == url]


def records_of(crawl: Crawler, url: str) -> list[records.PageRecord]:
    """A page's record after each of its visits."""
    return [record for change in crawl.commits for at, record in change.pages if at == url]


def sending(*parts: bytes, pause_s: float = 0.0, forever: bool = False, close: bool = True) -> origins.Script:
    """Send the parts with a pause after each, the last for ever where asked; the client's end ends it."""

    async def script(visitor: origins.Visitor) -> None:
        for part in itertools.chain(parts, itertools.repeat(parts[-1]) if forever else ()):
            await visitor.send(part)
            await asyncio.sleep(pause_s)
        if close:
            visitor.writer.close()

    return script


__all__ = [
    "OK",
    "Memory",
    "Names",
    "Scene",
    "archived",
    "case",
    "linking",
    "moved",
    "outcomes",
    "records_of",
    "reply",
    "sending",
]
