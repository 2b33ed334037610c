"""Where the conformance data lies: public test rows of other projects, which are no part of this one."""

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(os.environ.get("CRAWLRING_CONFORMANCE") or Path(__file__).parents[2] / "shared" / "conformance")


def read(name: str) -> bytes:
    """One file's bytes; the test is skipped where the data is not at hand."""
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"no conformance data here (set CRAWLRING_CONFORMANCE): {name}")
    return path.read_bytes()


def load(name: str) -> Any:
    """One JSON file's value."""
    return json.loads(read(name))


def octets(value: str | dict[str, str]) -> bytes:
    """A value that may be text or {"b64": ...}."""
    return base64.b64decode(value["b64"]) if isinstance(value, dict) else value.encode()
