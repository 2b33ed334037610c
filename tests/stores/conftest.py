"""A frontier on each real store, and a Redis Cluster."""

from collections.abc import AsyncIterator, Iterator

import pytest

from shared import frontier
from tests import redis_cluster as clusters


@pytest.fixture
async def desk(store: str, cluster: str) -> AsyncIterator[frontier.Frontier]:
    """An open frontier of an empty cluster."""
    opened = await frontier.Frontier.open(store, cluster)
    yield opened
    await opened.close()


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[clusters.Cluster]:
    """Three masters and three replicas of Redis 7, shared by the session: leave it as it was."""
    with clusters.running(tmp_path_factory.mktemp("redis-cluster")) as started:
        yield started
