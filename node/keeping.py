"""Hand what was fetched to the sinks, before its commit (P2), with what is known of the same content elsewhere."""

import asyncio
import dataclasses

import msgspec

from node import fetch, links, recrawl, revisit, turn
from node.sinks import pages
from shared import records


@dataclasses.dataclass(frozen=True, slots=True)
class Kept:
    """What became of a page in the sinks."""

    aside: str | None = None
    """Why its URL is to be set aside, where a sink says so."""
    capture: revisit.Capture | None = None
    """Where the archive has its body; None without one."""


def archived(queued: records.QueuedUrl, tools: turn.Tools) -> records.QueuedUrl:
    """The URL as it is asked for: in full where an archive is wanted and has no body that a 304 could stand for."""
    page = queued.page
    if page is None or page.captured_ms or not tools.settings.archive.warc:
        return queued
    return msgspec.structs.replace(queued, page=msgspec.structs.replace(page, etag=None, last_modified=None))


async def keep(
    now: turn.Turn,
    tools: turn.Tools,
    queued: records.QueuedUrl,
    answer: fetch.Answer,
    *,
    page: links.Page | None,
    content: int | None,
    visit: pages.Visit,
) -> Kept:
    """Write one page."""
    if tools.sinks is None or not answer.sent:
        return Kept()
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
            rate=_rate(queued, answer, content, tools) if visit == "recrawl" else None,
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
        now.remember = (_field(payload, tools), records.ContentRef(url=queued.url, fetched_ms=answer.start_wall_ms))
    captured = content is not None and tools.settings.archive.warc
    return Kept(reason, _capture(answer, queued.url, payload, duplicate) if captured else None)


def _rate(
    queued: records.QueuedUrl, answer: fetch.Answer, content: int | None, tools: turn.Tools
) -> tuple[float, float, float] | None:
    """How often the page changes, this visit counted in."""
    after = revisit.page_after(queued.page, answer.outcome, content=content, now_ms=tools.store_ms())
    return recrawl.rate_of(after)


def _capture(
    answer: fetch.Answer, url: str, payload: bytes | None, duplicate: records.ContentRef | None
) -> revisit.Capture:
    """Where the archive has this body; of a page's own earlier body the record that holds it, not its revisit."""
    own = duplicate is not None and duplicate.url == url and _whole(answer)
    time_ms = duplicate.fetched_ms if duplicate is not None and own else answer.start_wall_ms
    return revisit.Capture(time_ms, pages.base32(payload or pages.payload_of(b"")))


async def _known(payload: bytes | None, url: str, visit: pages.Visit, tools: turn.Tools) -> records.ContentRef | None:
    """Where the same payload was fetched before; a first visit that names itself is the repeat of a lost commit."""
    if payload is None or not tools.settings.archive.dedup:
        return None
    known = await tools.answered(lambda: tools.store.content(_field(payload, tools)))
    return None if known is None or (known.url == url and visit != "recrawl") else known


def _field(payload: bytes, tools: turn.Tools) -> bytes:
    """Under what content is remembered: what was fetched while no archive was written is no copy for an archive."""
    return payload + b"w" if tools.settings.archive.warc else payload


def _whole(answer: fetch.Answer) -> bool:
    """A torn body is no copy to refer to."""
    return isinstance(answer.outcome, records.Fetched) and answer.outcome.truncated is None
