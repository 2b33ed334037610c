"""A frontier on each real store."""

from collections.abc import AsyncIterator

import pytest

from shared import frontier


@pytest.fixture
async def desk(store: str, cluster: str) -> AsyncIterator[frontier.Frontier]:
    """An open frontier of an empty cluster."""
    opened = await frontier.Frontier.open(store, cluster)
    yield opened
    await opened.close()
