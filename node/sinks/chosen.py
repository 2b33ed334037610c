"""The sinks that a configuration asks for, as one: JSON Lines, WARC, then the handler, each before the commit (P2)."""

import functools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from node.sinks import handler, jsonl, pages, warc
from shared import config, errors, metrics

Write = Callable[[], Awaitable[str | None]]


async def once(write: Write) -> str | None:
    """Try no more than once."""
    return await write()


class Sinks:
    """Several sinks, written in their order."""

    def __init__(self, sinks: Sequence[pages.Sink], *, kept: Callable[[Write], Awaitable[str | None]] = once) -> None:
        """`kept` writes to one sink, again where that fails for want of room: the sinks before it have the page."""
        self.sinks = tuple(sinks)
        self._kept = kept

    async def write(self, page: pages.Visited) -> str | None:
        """Give every sink the page; the first reason for which its URL is to be set aside, or None.

        A sink that cannot write raises OSError, and the later ones are not asked: the page is not committed then.
        """
        reasons = [await self._kept(functools.partial(sink.write, page)) for sink in self.sinks]
        return next((reason for reason in reasons if reason is not None), None)

    def sync(self) -> None:
        """Return when the disk holds every page that was written."""
        for sink in self.sinks:
            sink.sync()

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()


def open_sinks(
    settings: config.Config,
    node: str,
    *,
    counts: metrics.Metrics | None = None,
    kept: Callable[[Write], Awaitable[str | None]] = once,
) -> Sinks:
    """Open what the settings ask for; raises ConfigError for a handler or a folder that cannot be used.

    The handler is imported first, so that a wrong one leaves no files behind.
    """
    out, archive = Path(settings.node.out), settings.archive
    opened: list[pages.Sink] = []
    given = handler.HandlerSink(archive.handler, limit_s=archive.handler_s, counts=counts) if archive.handler else None
    try:
        if settings.node.jsonl:
            opened.append(jsonl.JsonlSink(out / f"pages-{node}.jsonl"))
        if archive.warc:
            agent = settings.identity.user_agent
            opened.append(warc.WarcSink(out, node=node, archive=archive, user_agent=agent))
    except (OSError, errors.ConfigError) as error:
        Sinks(opened).close()
        if isinstance(error, errors.ConfigError):
            raise
        raise errors.ConfigError(f"cannot write to {out}: {error}") from error
    return Sinks([*opened, *([given] if given is not None else [])], kept=kept)
