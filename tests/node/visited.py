"""Requests as sinks are given them, built from the bytes that an origin would have sent."""

from pathlib import Path
from typing import Any

from node import fetch
from node.sinks import pages, warc
from shared import config, records

URL = "https://a.example/page"
AGENT = "Test/1.0 (+https://example.org/bot)"
START_MS = 1_780_000_000_123
REQUEST = b"GET /page HTTP/1.1\r\nHost: a.example\r\nUser-Agent: " + AGENT.encode() + b"\r\n\r\n"
HTML = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n"


def visited(
    raw: bytes = b"<title>A</title>",
    *,
    head: bytes | None = None,
    url: str = URL,
    outcome: records.Outcome | None = None,
    start_ms: int = START_MS,
    answer: dict[str, Any] | None = None,
    **known: Any,
) -> pages.Visited:
    """A page of `raw` bytes; an outcome makes it something else."""
    found = outcome or records.Fetched(status=200, headers=(("Content-Type", "text/html"),), body=raw)
    return pages.Visited(
        url=url,
        site="a.example",
        node="n1",
        visit=known.pop("visit", "first"),
        answer=fetch.Answer(
            outcome=found,
            sent=True,
            start_boot_s=5.0,
            start_wall_ms=start_ms,
            end_boot_s=5.25,
            body_bytes=len(raw),
            content_type="text/html",
            request=REQUEST,
            head=HTML % len(raw) if head is None else head,
            raw=raw,
            **{"address": "192.0.2.7", **(answer or {})},
        ),
        payload=pages.payload_of(raw),
        **known,
    )


def archive(folder: Path, *, node: str = "n1", bytes_max: int = 1_000_000_000) -> warc.WarcSink:
    return warc.WarcSink(folder, node=node, archive=config.Archive(warc_bytes_max=bytes_max), user_agent=AGENT)
