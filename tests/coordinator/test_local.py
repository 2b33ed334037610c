"""Servers on loopback start, answer, die with their parent, and keep their data."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from coordinator import local
from shared import errors
from tests import servers


def say(server: local.Server, command: bytes) -> bytes:
    with socket.create_connection((local.LOOPBACK, server.port), timeout=5) as connection:
        connection.sendall(command + b"\r\n")
        return connection.recv(256)


def wait(condition: Callable[[], bool], *, within_s: float = 10) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "not within the deadline"
        time.sleep(0.02)


@pytest.mark.parametrize("make", [servers.valkey9, servers.redis7], ids=["valkey9", "redis7"])
def test_a_killed_store_comes_back_on_its_port_with_what_it_had_synced(make, tmp_path: Path):
    with servers.running(make(tmp_path)) as server:
        port = server.port
        assert say(server, b"SET a 1") == b"+OK\r\n"
        wait(lambda: b"aof_pending_bio_fsync:0" in say(server, b"INFO persistence") or b"1" in say(server, b"GET a"))
        server.kill()
        assert server.exit_status == -signal.SIGKILL
        server.start()
        assert server.port == port
        assert b"1" in say(server, b"GET a")


@pytest.mark.parametrize("make", [servers.etcd35, servers.etcd34], ids=["etcd35", "etcd34"])
def test_etcd_answers_and_stops_in_bounded_time(make, tmp_path: Path):
    with servers.running(make(tmp_path)) as server:
        started = time.monotonic()
        server.stop()
        assert server.exit_status is not None
        assert time.monotonic() - started < local.STOP_S


def test_a_paused_server_is_silent_and_a_resumed_one_answers(tmp_path: Path):
    with servers.running(servers.valkey9(tmp_path)) as server:
        server.pause()
        with socket.create_connection((local.LOOPBACK, server.port), timeout=0.2) as connection:
            connection.sendall(b"PING\r\n")
            with pytest.raises(TimeoutError):
                connection.recv(16)
        server.resume()
        assert say(server, b"PING") == b"+PONG\r\n"


def test_a_server_that_cannot_start_says_its_last_words(tmp_path: Path):
    server = local.valkey(tmp_path, options=("--no-such-option", "1"))
    with pytest.raises(errors.StoreUnavailable, match="no-such-option"):
        server.start()
    assert server.exit_status is not None


def test_a_paused_child_stops_too(tmp_path: Path):
    child = local.Child([sys.executable, "-c", "import time; time.sleep(60)"], log=tmp_path / "log")
    child.signal(signal.SIGSTOP)
    child.stop(grace_s=5)
    assert child.poll() == -signal.SIGTERM


def test_children_die_with_a_killed_parent(tmp_path: Path):
    """PR_SET_PDEATHSIG: a SIGKILL of `up` leaves no server behind."""
    code = (
        "import sys, time, pathlib; from coordinator import local;"
        f"child = local.Child([sys.executable, '-c', 'import time; time.sleep(60)'], log=pathlib.Path({str(tmp_path / 'log')!r}));"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        wait(lambda: b"tether" not in Path(f"/proc/{child}/cmdline").read_bytes())
        parent.kill()
    wait(lambda: not alive(child))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_a_data_folder_serves_one_at_a_time(tmp_path: Path):
    held = local.lock(tmp_path)
    with pytest.raises(errors.ConfigError, match=f"in use by process {os.getpid()}"):
        local.lock(tmp_path)
    held.close()
    local.lock(tmp_path).close()


def test_a_script_on_path_is_not_taken_for_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    script = tmp_path / "etcd"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert local._on_path("etcd") is None


def test_store_fixture_is_empty(store: str):
    host, port = store.removeprefix("redis://").removesuffix("/0").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(b"DBSIZE\r\n")
        assert connection.recv(16) == b":0\r\n"
        connection.sendall(b"SET left-behind 1\r\n")
        assert connection.recv(16) == b"+OK\r\n"


@pytest.mark.parametrize("program", [None, servers.ETCD34])
def test_no_web_page_can_read_or_write_a_local_etcd(tmp_path: Path, program: str | None):
    """A browser on this machine sends what a page asks for; etcd's JSON interface would take it, from anywhere."""
    binary = servers.need(program, of="Debian's package etcd-server") if program else None
    with servers.running(local.etcd(tmp_path, program=binary)) as server:
        for path, headers in (
            ("/v3/kv/put", {}),
            ("/v3/kv/range", {}),
            ("/v3beta/kv/put", {}),
            ("/v2/keys/x", {}),
        ):
            status, _ = _post(server, path, headers)
            assert status in {404, 405, 501}, path
        status, shown = _post(server, "/version", {"Origin": "http://page.example"})
        assert shown.get("Access-Control-Allow-Origin") != "*"
        status, _ = _post(server, "/version", {"Host": "rebound.example"})
        assert status in {403, 421}


def _post(server: local.Server, path: str, headers: dict[str, str]) -> tuple[int, Mapping[str, str]]:
    connection = http.client.HTTPConnection(local.LOOPBACK, server.port, timeout=5)
    connection.request("POST", path, body='{"key": "eA==", "value": "eA=="}', headers=headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, dict(answer.headers)
