"""What one answer says to a crawler: the links of a page, the entries of a sitemap, and what is told of both.

Large bodies are read in a thread: nothing here holds the loop for long.
"""

import asyncio
import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from node import charsets, fetch, links, sitemaps, traps, turn
from shared import errors, records, urls

OFF_LOOP_BYTES = 64 * 1024  # larger bodies are read in a thread
NESTED_MAX = 5  # sitemaps that name sitemaps: the protocol knows one level

T = TypeVar("T")


class Target(NamedTuple):
    """A URL that an answer names, and what it says of it."""

    url: str
    meta: str = ""
    changed_ms: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What an answer says."""

    targets: tuple[tuple[str, str, int], ...] = ()
    """What is to be offered, in its order: each a Target, or its three fields as they stand."""
    page: links.Page | None = None
    """None where the body was not read as a page."""
    refused: str | None = None
    """Why the URL itself is set aside: a redirect that leads nowhere."""


NOTHING = Found()


async def found(answer: fetch.Answer, queued: records.QueuedUrl, tools: turn.Tools) -> Found:
    """Read one answer; nothing that a site can send makes this raise."""
    outcome = answer.outcome
    if isinstance(outcome, records.Redirected):
        return _redirected(outcome, queued, tools)
    if not isinstance(outcome, records.Fetched) or not 200 <= outcome.status < 300 or outcome.truncated == "type":
        return NOTHING
    declared = queued.role == "sitemap"
    if declared or sitemaps.looks_like(outcome.body, answer.content_type):
        read = await _sitemap(answer, outcome.body, queued, declared=declared, tools=tools)
        if read is not None:
            # A sitemap that robots.txt names is there to be read; a feed that was met as a page may be closed to us.
            shut = not declared and links.robots_directives(_said(outcome)["x-robots-tag"], tools.token)[1]
            return NOTHING if shut else read
    said = _said(outcome)
    page = await _page(answer, outcome, said, queued.url, tools)
    meta = records.trail("page", queued.depth + 1)
    found: Iterable[str] = page.links
    if said["refresh"]:
        found = dict.fromkeys((*_refreshed(said["refresh"], queued.url, tools), *page.links))
    # Plain rows: forty named ones a page cost as much as reading its links.
    targets = () if page.nofollow else tuple(zip(found, itertools.repeat(meta), itertools.repeat(0), strict=False))
    return Found(targets=targets, page=page)


def watched(
    answer: fetch.Answer, site: str, queued: records.QueuedUrl, page: links.Page | None, tools: turn.Tools
) -> traps.Verdict:
    """What this page says of the pattern of its URL; an answer that is no HTML page says nothing.

    Nor does one that was visited before: that it shows what it showed then is no sign of a space without end.
    """
    outcome = answer.outcome
    if page is None or not isinstance(outcome, records.Fetched) or outcome.status != 200:
        return traps.FINE
    if (queued.page is not None and queued.page.last_check_ms) or not links.is_html(outcome.body, answer.content_type):
        return traps.FINE
    return tools.watch.saw(site, queued.url, lambda: charsets.text_of(outcome.body, page.charset), page.links)


def _redirected(outcome: records.Redirected, queued: records.QueuedUrl, tools: turn.Tools) -> Found:
    """A redirect's target is offered like any link, never followed."""
    location, refused = fetch.redirect_target(queued.url, outcome.location)
    if location is None:
        return Found(refused=refused)
    target = _formed(location, tools)
    if target == queued.url or queued.hops >= tools.settings.limits.redirects_max:
        return Found(refused="redirect_loop")
    return Found(targets=(Target(target, records.trail(queued.role, queued.depth, queued.hops + 1)),))


async def _page(
    answer: fetch.Answer, outcome: records.Fetched, said: Mapping[str, Sequence[str]], url: str, tools: turn.Tools
) -> links.Page:
    read = functools.partial(
        links.extract,
        outcome.body,
        content_type=answer.content_type,
        url=url,
        links_max=tools.settings.limits.links_per_page_max,
        token=tools.token,
        form=tools.form,
    )
    page = await _off_loop(read, len(outcome.body))
    if not said["x-robots-tag"] and not said["link"]:  # most answers
        return page
    noindex, nofollow = links.robots_directives(said["x-robots-tag"], tools.token)
    return dataclasses.replace(
        page,
        noindex=page.noindex or noindex,
        nofollow=page.nofollow or nofollow,
        canonical=page.canonical or links.canonical_header(said["link"], url, tools.form),
    )


def _refreshed(values: Sequence[str], url: str, tools: turn.Tools) -> Iterator[str]:
    """Where a Refresh header leads: a link, as the meta element of that name is one."""
    for value in values:
        target = links.refreshed(value)
        with contextlib.suppress(errors.InvalidUrl):
            if target is not None:
                yield urls.canonical(target, url, form=tools.form)


def _said(outcome: records.Fetched) -> dict[str, list[str]]:
    """The values of the headers that are read here, by their names."""
    said: dict[str, list[str]] = {"x-robots-tag": [], "link": [], "refresh": []}
    for header, value in outcome.headers:
        values = said.get(header.lower())
        if values is not None:
            values.append(value)
    return said


async def _sitemap(
    answer: fetch.Answer, body: bytes, queued: records.QueuedUrl, *, declared: bool, tools: turn.Tools
) -> Found | None:
    """The entries of a sitemap or feed; None where the body is none after all."""
    limits = tools.settings.limits
    read = functools.partial(
        sitemaps.read,
        body,
        url=queued.url,
        content_type=answer.content_type,
        bytes_max=limits.sitemap_bytes_max,
        urls_max=limits.sitemap_urls_max,
        declared=declared,
        now_ms=tools.store_ms(),
        site_of=tools.places.site_of,
    )
    targets = await _off_loop(lambda: _entries(read(), queued, tools), len(body))
    return None if targets is None else Found(targets=targets)


def _entries(
    sitemap: sitemaps.Sitemap | None, queued: records.QueuedUrl, tools: turn.Tools
) -> tuple[Target, ...] | None:
    """What a sitemap names, in the operator's form."""
    if sitemap is None:
        return None
    below = records.trail("page", queued.depth + 1)
    targets = [
        Target(_formed(entry.url, tools), below, 0 if sitemap.stamped else entry.changed_ms)
        for entry in sitemap.entries
    ]
    if queued.hops < NESTED_MAX:
        nested = records.trail("sitemap", queued.depth, queued.hops + 1)
        # Another site's is a link like any: it is not for this one to say how its bytes are read.
        targets += [
            Target(_formed(child.url, tools), nested if child.trusted else below, child.changed_ms)
            for child in sitemap.children
        ]
    return tuple(targets)


def _formed(url: str, tools: turn.Tools) -> str:
    """A canonical URL in the operator's form."""
    return url if tools.form is urls.PLAIN else urls.canonical(url, form=tools.form)


async def _off_loop(read: Callable[[], T], size: int) -> T:
    return await asyncio.to_thread(read) if size > OFF_LOOP_BYTES else read()
