"""The JSON Lines sink: one line a page, handed to the kernel before the page is committed."""

from pathlib import Path
from typing import Any

import msgspec

from shared import logs, records


class PageLine(records.Record):
    """One fetched page; what an answer did not say is null."""

    url: str
    site: str
    node: str
    fetched_ms: int
    status: int
    title: str | None = None
    links: tuple[str, ...] = ()
    content_type: str | None = None
    charset: str | None = None
    bytes: int = 0
    """Of the decoded body."""
    content: str | None = None
    """Hexadecimal digest of the decoded body."""
    truncated: str | None = None
    redirect: str | None = None
    """Where a 3xx pointed."""
    etag: str | None = None
    last_modified: str | None = None
    nofollow: bool = False
    noindex: bool = False
    bad_links: int = 0


class JsonlSink:
    """`pages-<node>.jsonl`; a crash leaves at most one unfinished last line, which the next opening cuts."""

    def __init__(self, path: Path) -> None:
        self.lines = logs.LinesFile(path)

    def write(self, page: PageLine | dict[str, Any]) -> None:
        """Append one page; call it before the page's commit (P2)."""
        self.lines.write(msgspec.json.encode(page))

    def sync(self) -> None:
        """Return when the disk holds every page that was written."""
        self.lines.sync()

    def close(self) -> None:
        self.lines.close()
