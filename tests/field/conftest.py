"""The scene of a case: its hosts, its store and its folder."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests import certificates
from tests.field import stage as staging


@pytest.fixture
async def scene(request: pytest.FixtureRequest, valkey: str, tmp_path: Path) -> AsyncIterator[staging.Scene]:
    name = getattr(request.function, "case", None) or request.function.__name__[len("test_") :][:40].strip("_")
    made = staging.Stage(f"case-{re.sub('[._]', '-', name)}.test")
    async with made.open():
        yield staging.Scene(name, made, valkey, tmp_path)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> certificates.Authority:
    return certificates.Authority(tmp_path_factory.mktemp("authority"))
