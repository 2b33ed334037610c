"""Hand what was fetched to the sinks, before its commit (P2), with what is known of the same content elsewhere."""

import asyncio

from node import fetch, links, turn
from node.sinks import pages
from shared import records


async def keep(
    now: turn.Turn,
    tools: turn.Tools,
    queued: records.QueuedUrl,
    answer: fetch.Answer,
    *,
    page: links.Page | None,
    content: int | None,
    visit: pages.Visit,
) -> str | None:
    """Write one page; why its URL is to be set aside, where a sink says so."""
    if tools.sinks is None or not answer.sent:
        return None
    payload = pages.payload_of(answer.raw) if content is not None and answer.raw else None
    duplicate = await _known(payload, queued.url, visit, tools)
    reason = await tools.sinks.write(
        pages.Visited(
            url=queued.url,
            site=now.held.site,
            node=tools.node,
            visit=visit,
            answer=answer,
            depth=queued.depth,
            before=queued.page,
            content=content,
            payload=payload,
            duplicate=duplicate,
            title=page.title if page else None,
            links=page.links if page else (),
            charset=page.charset if page else None,
            canonical=page.canonical if page else None,
            nofollow=page.nofollow if page else False,
            noindex=page.noindex if page else False,
            bad_links=page.bad_links if page else 0,
        )
    )
    if tools.settings.durability == "strict":
        await asyncio.to_thread(tools.sinks.sync)  # after the commit nobody fetches this page again (P2)
    if payload is not None and duplicate is None and tools.settings.archive.dedup and _whole(answer):
        where = records.ContentRef(url=queued.url, fetched_ms=answer.start_wall_ms)
        await tools.answered(lambda: tools.store.remember_content(payload, where))
    return reason


async def _known(payload: bytes | None, url: str, visit: pages.Visit, tools: turn.Tools) -> records.ContentRef | None:
    """Where the same payload was fetched before; a first visit that names itself is the repeat of a lost commit."""
    if payload is None or not tools.settings.archive.dedup:
        return None
    known = await tools.answered(lambda: tools.store.content(payload))
    return None if known is None or (known.url == url and visit != "recrawl") else known


def _whole(answer: fetch.Answer) -> bool:
    """A torn body is no copy to refer to."""
    return isinstance(answer.outcome, records.Fetched) and answer.outcome.truncated is None
