"""Claims about the bench's processes: the web answers as said, by nginx and without it, and readings are of the process."""

import socket
import sys

import pytest

from coordinator import local
from tests.bench import environments, readings, web


def ask(port: int, path: str, host: str) -> tuple[bytes, bytes]:
    with socket.create_connection((local.LOOPBACK, port), timeout=5) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer or len(answer) < _length(answer):
            chunk = connection.recv(65_536)
            if not chunk:
                break
            answer += chunk
    head, _, content = answer.partition(b"\r\n\r\n")
    return head, content


def _length(answer: bytes) -> int:
    head, _, _ = answer.partition(b"\r\n\r\n")
    found = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return len(head) + 4 + int(found[0].split(b":")[1])


@pytest.mark.parametrize("programs", [web.NGINX, ()], ids=["nginx or ours", "ours"])
def test_every_host_has_every_page_and_robots(tmp_path, monkeypatch, programs):
    monkeypatch.setattr(web, "NGINX", programs)
    with web.running(tmp_path / "web") as origin:
        expected = web.body(7, web.links()[7], origin.port).encode()
        for host in ("www.site0000.example", "WWW.site0999.example"):
            for path in ("/p/7.html", "/p/7.html?a=1&b=2"):
                head, content = ask(origin.port, path, host)
                assert head.startswith(b"HTTP/1.1 200")
                assert b"text/html" in head
                assert content == expected
        assert ask(origin.port, "/robots.txt", "www.site0001.example")[1] == web.ROBOTS
        assert ask(origin.port, "/absent.html", "www.site0001.example")[0].startswith(b"HTTP/1.1 404")


def test_a_readings_cpu_is_that_of_the_process_with_its_children(tmp_path):
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])"
    server = local.Child([sys.executable, "-c", code], log=tmp_path / "log")
    try:
        while readings.process(server.pid).cpu_s < 0.3:
            assert server.poll() is None
        assert readings._cpu_s(server.pid) < 0.3
        assert readings.process(server.pid).rss_bytes > readings._rss_bytes(server.pid)
    finally:
        for child in readings._children(server.pid):
            local.os.kill(child, local.signal.SIGKILL)
        server.kill()


def test_a_store_counts_commands_and_the_bundles_they_came_in(valkey):
    port = int(valkey.split(":")[2].split("/")[0])
    before = readings.store(port, 0)
    with socket.create_connection((local.LOOPBACK, port), timeout=5) as connection:
        connection.sendall(b"PING\r\n" * 10)
        got = b""
        while got.count(b"+PONG") < 10:
            got += connection.recv(4_096)
    after = readings.store(port, 0)
    own = 1  # INFO of the reading before; QUIT with it or after it
    assert 10 + own <= after.commands - before.commands <= 12
    assert 2 <= after.trips - before.trips <= 4


def test_what_cannot_be_installed_is_told_with_its_reason(tmp_path, monkeypatch):
    (tmp_path / "requirements-absent.txt").write_text(f"{tmp_path}/no-such-wheel-1.0-py3-none-any.whl\n")
    monkeypatch.setattr(environments, "PEERS", tmp_path)
    monkeypatch.setattr(environments, "ROOT", tmp_path)
    with pytest.raises(environments.NotInstalled, match="no-such-wheel"):
        environments.python_of("absent")
