"""An etcd that does not let everybody in: TLS, client certificates, users with roles, tokens that run out."""

import base64
import json
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coordinator import local
from shared import keys
from tests import certificates, servers

ROOT = "of-the-operator"
QUESTION_S = 10.0


def etcd(
    data: Path,
    *,
    program: str,
    tls: certificates.Authority | None = None,
    alt: str = certificates.LOOPBACK,
    options: Sequence[str] = (),
) -> servers.Server:
    """Not started. With `tls` it listens on https:// alone, with a certificate for the names in `alt`."""
    pair = tls.sign("server", alt=alt) if tls else None
    scheme = "https" if tls else "http"
    health = local.free_port()  # without TLS, for the question whether it is up
    files = ("--cert-file", str(pair.cert), "--key-file", str(pair.key)) if pair else ()

    def command(port: int, peer_port: int) -> list[str]:
        client, peer = f"{scheme}://{local.LOOPBACK}:{port}", f"http://{local.LOOPBACK}:{peer_port}"
        return [
            program,
            *("--name", "local", "--data-dir", str(data / "etcd"), "--logger", "zap", "--log-level", "error"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"local={peer}", "--bcrypt-cost", "4"),
            *("--listen-metrics-urls", f"http://{local.LOOPBACK}:{health}"),
            *files,
            *options,
        ]

    def answers(_port: int) -> bool:
        return b'"health":"true"' in local._ask(health, b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")

    return servers.Server("etcd", command=command, answers=answers, data=data)


def brief_tokens(folder: Path, *, ttl_s: int) -> tuple[str, ...]:
    """Options for tokens that end after this time, used or not."""
    private, public = folder / "token.key", folder / "token.pub"
    for line in (("genrsa", "-out", private, "2048"), ("rsa", "-in", private, "-pubout", "-out", public)):
        subprocess.run(["openssl", *map(str, line)], check=True, capture_output=True)
    return ("--auth-token", f"jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl={ttl_s}s")


class Operator:
    """Who may change users, by etcd's JSON gateway; without TLS only."""

    def __init__(self, server: servers.Server) -> None:
        self._server = server
        self._token = ""

    def guard(self, cluster: str, user: str, password: str) -> None:
        """A user who may read and write the cluster's keys and nothing else; from now on nobody else may do anything."""
        prefix = keys.EtcdKeys(cluster).prefix.encode()
        end = prefix[:-1] + bytes([prefix[-1] + 1])
        permission = {"permType": "READWRITE", "key": _b64(prefix), "range_end": _b64(end)}
        self._ask("auth/user/add", name="root", password=ROOT)
        self._ask("auth/user/grant", user="root", role="root")
        self._ask("auth/role/add", name="crawlers")
        self._ask("auth/role/grant", name="crawlers", perm=permission)
        self._ask("auth/user/add", name=user, password=password)
        self._ask("auth/user/grant", user=user, role="crawlers")
        self._ask("auth/enable")
        self._log_in()

    def change_password(self, user: str, password: str) -> None:
        self._log_in()
        self._ask("auth/user/changepw", name=user, password=password)

    def everything(self) -> str:
        """All keys and values, as text."""
        self._log_in()
        found = self._ask("kv/range", key=_b64(b"\0"), range_end=_b64(b"\0")).get("kvs", [])
        return "\n".join(
            base64.b64decode(one[part]).decode("latin-1") for one in found for part in ("key", "value") if part in one
        )

    def _log_in(self) -> None:
        self._token = self._ask("auth/authenticate", name="root", password=ROOT)["token"]

    def _ask(self, what: str, **body: Any) -> Any:
        request = urllib.request.Request(f"http://{self._server.address}/v3/{what}", data=json.dumps(body).encode())
        if self._token and what != "auth/authenticate":
            request.add_header("Authorization", self._token)
        with urllib.request.urlopen(request, timeout=QUESTION_S) as answer:
            return json.load(answer)


def _b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
