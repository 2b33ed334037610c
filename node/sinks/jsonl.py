"""The JSON Lines sink: one line a page, handed to the kernel before the page is committed."""

from pathlib import Path

import msgspec

from node import revisit
from node.sinks import pages
from shared import logs, records


class PageLine(records.Record):
    """One fetched page; what an answer did not say is null."""

    url: str
    site: str
    node: str
    fetched_ms: int
    status: int
    visit: str = "first"
    """first, recrawl or retry."""
    depth: int = 0
    """Links from a seed."""
    title: str | None = None
    links: tuple[str, ...] = ()
    content_type: str | None = None
    charset: str | None = None
    bytes: int = 0
    """Of the decoded body."""
    content: str | None = None
    """Hexadecimal digest of the decoded body."""
    payload: str | None = None
    """`sha1:` and Base32 of the body as WARC takes it: transfer coding removed, content coding kept."""
    duplicate_of: str | None = None
    """The URL where the same payload was fetched first."""
    truncated: str | None = None
    decoding: str | None = None
    """`mislabelled`: the body was not coded as its label says, and was read all the same."""
    redirect: str | None = None
    """Where a 3xx pointed."""
    canonical: str | None = None
    """What rel=canonical names."""
    etag: str | None = None
    last_modified: str | None = None
    tls_fault: str | None = None
    """What was wrong with the certificate of a page that was fetched all the same."""
    change_rate: float | None = None
    """Changes a day after this visit, the most likely number; of recrawls."""
    change_rate_low: float | None = None
    change_rate_high: float | None = None
    """What the visits allow at 95 %."""
    nofollow: bool = False
    noindex: bool = False
    bad_links: int = 0


class JsonlSink:
    """`pages-<node>.jsonl`; a crash leaves at most one unfinished last line, which the next opening cuts."""

    def __init__(self, path: Path) -> None:
        self._lines = logs.LinesFile(path)

    async def write(self, page: pages.Visited) -> None:
        """Append one page; what is no page (robots.txt, no answer) is passed over. Raises OSError."""
        line = line_of(page)
        if line is not None:
            self._lines.write(msgspec.json.encode(line))

    def sync(self) -> None:
        """Return when the disk holds every page that was written."""
        self._lines.sync()

    def close(self) -> None:
        self._lines.close()


def line_of(page: pages.Visited) -> PageLine | None:
    """A page's line; None for what is no page."""
    answer, outcome = page.answer, page.answer.outcome
    if page.visit == "robots" or not isinstance(outcome, records.Fetched | records.NotModified | records.Redirected):
        return None
    rate, low, high = page.rate or (None, None, None)
    return PageLine(
        url=page.url,
        site=page.site,
        node=page.node,
        fetched_ms=answer.start_wall_ms,
        status=outcome.status,
        visit=page.visit,
        depth=page.depth,
        title=page.title,
        links=page.links,
        content_type=answer.content_type,
        charset=page.charset,
        bytes=len(outcome.body) if isinstance(outcome, records.Fetched) else 0,
        content=f"{page.content:016x}" if page.content is not None else None,
        payload=pages.labelled(page.payload) if page.payload is not None else None,
        duplicate_of=page.duplicate.url if page.duplicate else None,
        truncated=outcome.truncated if isinstance(outcome, records.Fetched) else None,
        decoding=outcome.decoding if isinstance(outcome, records.Fetched) else None,
        redirect=outcome.location if isinstance(outcome, records.Redirected) else None,
        canonical=page.canonical,
        etag=revisit.header(outcome.headers, "etag"),
        last_modified=revisit.header(outcome.headers, "last-modified"),
        tls_fault=answer.tls_fault,
        change_rate=rate,
        change_rate_low=low,
        change_rate_high=high,
        nofollow=page.nofollow,
        noindex=page.noindex,
        bad_links=page.bad_links,
    )
