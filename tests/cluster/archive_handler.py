"""The handler of the archive tests: notes what it is given, as a user's would, and fails at one page."""

import hashlib
import json
import os
from pathlib import Path

from node.sinks import handler
from tests.cluster import archive_web

FOLDER = "ARCHIVE_TEST_FOLDER"


def note(page: handler.Page) -> None:
    """Append one line; raises at `archive_web.FAULT`."""
    if page.url.endswith(archive_web.FAULT):
        raise RuntimeError("this handler does not like that page")
    line = {
        "url": page.url,
        "fetched_ms": page.fetched_ms,
        "status": page.status,
        "body": hashlib.sha1(page.body, usedforsecurity=False).hexdigest(),
        "duplicate_of": page.duplicate_of,
        "truncated": page.truncated,
    }
    path = Path(os.environ[FOLDER]) / f"handled-{page.node}-{os.getpid()}.jsonl"
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
