"""Fixtures every test may use: real servers, one of each a session, empty for each test."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator import local
from tests import servers, side_by_side

_names = itertools.count(1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> side_by_side.Lanes:
    config.option.loadscopereorder = False  # the order of `clusters_first`
    return side_by_side.Lanes(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        side_by_side.clusters_first(items)


@pytest.fixture(scope="session")
def _store_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, servers.Server]]:
    """The Redis servers started so far, by id; started when first asked for."""
    started: dict[str, servers.Server] = {}
    yield started
    for server in started.values():
        server.kill()


@pytest.fixture(scope="session")
def _etcd_servers() -> Iterator[dict[str, servers.Server]]:
    started: dict[str, servers.Server] = {}
    yield started
    for server in started.values():
        server.kill()


def _store(name: str, started: dict[str, servers.Server], folders: pytest.TempPathFactory) -> servers.Server:
    if name not in started:
        server = servers.STORES[name](folders.mktemp(name), options=servers.UNSYNCED)
        server.start()
        started[name] = server
    servers.flush(started[name])
    return started[name]


@pytest.fixture
def valkey(_store_servers: dict[str, servers.Server], tmp_path_factory: pytest.TempPathFactory) -> str:
    """URL of an empty Valkey 9."""
    return local.redis_url(_store("valkey9", _store_servers, tmp_path_factory))


@pytest.fixture
def redis7(_store_servers: dict[str, servers.Server], tmp_path_factory: pytest.TempPathFactory) -> str:
    """URL of an empty Redis 7.0."""
    return local.redis_url(_store("redis7", _store_servers, tmp_path_factory))


@pytest.fixture(params=["valkey9", "redis7"])
def store(
    request: pytest.FixtureRequest,
    _store_servers: dict[str, servers.Server],
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    """URL of an empty store, once for each server there is."""
    return local.redis_url(_store(request.param, _store_servers, tmp_path_factory))


@pytest.fixture
def etcd(_etcd_servers: dict[str, servers.Server], tmp_path_factory: pytest.TempPathFactory) -> str:
    """HOST:PORT of an etcd 3.5, shared by the session: use the `cluster` fixture's name in it."""
    if "etcd35" not in _etcd_servers:
        server = servers.etcd35(tmp_path_factory.mktemp("etcd35"))
        server.start()
        _etcd_servers["etcd35"] = server
    return _etcd_servers["etcd35"].address


@pytest.fixture
def etcd34(_etcd_servers: dict[str, servers.Server], tmp_path_factory: pytest.TempPathFactory) -> str:
    """HOST:PORT of an etcd 3.4, shared by the session: use the `cluster` fixture's name in it."""
    if "etcd34" not in _etcd_servers:
        server = servers.etcd34(tmp_path_factory.mktemp("etcd34"))
        server.start()
        _etcd_servers["etcd34"] = server
    return _etcd_servers["etcd34"].address


@pytest.fixture
def cluster() -> str:
    """A cluster name that no other test has used."""
    return f"t{os.getpid()}-{next(_names)}"


@pytest.fixture
def conformance() -> Path:
    """The folder of conformance data, which is no part of the project; a skip without it."""
    default = Path(__file__).parent.parent.parent / "shared" / "conformance"
    folder = Path(os.environ.get("CRAWLRING_CONFORMANCE", str(default)))
    if not folder.is_dir():
        pytest.skip(f"no conformance data in {folder} (set CRAWLRING_CONFORMANCE)")
    return folder
