"""How etcd is reached and told who we are: endpoints, certificates, the user's token, and what a refusal means.

It knows no key and no protocol. A token is fetched when it is first needed, and anew when etcd no longer knows it: its
time is over, etcd has started again, or its users were changed.
"""

import os
import ssl
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shared import config, errors

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its own lines on stderr say what our errors say

import grpc  # after the variable that it reads

from shared import etcdrpc

# An answer, and no reason to try another endpoint: an unknown lease, a compacted revision.
REFUSALS = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.FAILED_PRECONDITION)
# etcd did nothing with a call that it answers so.
OUTDATED = ("invalid auth token", "auth store is old", "user name is empty")
# What becomes of a client certificate that is missing or not liked: an alert in the handshake, or (TLS 1.3) after it.
OURS_REFUSED = ("ALERT_BAD_CERTIFICATE", "ALERT_CERTIFICATE", "ALERT_UNKNOWN_CA", "TSI_DATA_CORRUPTED")
CLOSED = ("Socket closed", "Connection reset by peer")
OFF = "authentication is not enabled"

Metadata = tuple[tuple[str, str], ...]


class Endpoint(NamedTuple):
    """Where one member of etcd listens."""

    host: str
    port: int
    tls: bool

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def endpoints(text: str) -> list[Endpoint]:
    """HOST:PORT[,HOST:PORT...], each with or all without https:// in front. Raises ConfigError."""
    found = [_endpoint(part.strip()) for part in text.split(",") if part.strip()]
    if not found:
        raise errors.ConfigError("etcd needs at least one HOST:PORT")
    if len({one.tls for one in found}) > 1:
        raise errors.ConfigError("etcd: https:// stands in front of every endpoint or of none")
    return found


def certificates(security: config.EtcdSecurity, *, tls: bool) -> dict[str, str]:
    """The files etcd3's client is to read. Raises ConfigError for one that cannot be read."""
    if not tls:
        if security.ca_file or security.cert_file:
            raise errors.ConfigError(
                "etcd_security names certificates, but the address is not https://: write --etcd https://HOST:PORT"
            )
        return {}
    ca_file = security.ca_file or ssl.get_default_verify_paths().cafile
    if ca_file is None:
        raise errors.ConfigError("etcd over https:// needs etcd_security.ca_file: this machine has no list of its own")
    named = {"ca_cert": ca_file, "cert_cert": security.cert_file, "cert_key": security.key_file}
    files = {name: path for name, path in named.items() if path}
    for path in files.values():
        _read(path)
    return files


class Account:
    """The user's token; for no user there is none."""

    def __init__(self, security: config.EtcdSecurity, *, call_s: float) -> None:
        self._security = security
        self._call_s = call_s
        self._token: str | None = None
        self._turn = threading.Lock()
        if security.password_file:
            _password(security)

    def metadata(self, client: Any, *, instead_of: Metadata | None = None) -> Metadata:
        """What goes with a call; `instead_of` what etcd did not take. May ask etcd, once for all threads."""
        if not self._security.user:
            return ()
        # The token is attached here and not by etcd3, whose call credentials refuse to travel without TLS.
        refused = dict(instead_of or ()).get("token", "")
        if self._token is None or (instead_of is not None and self._token == refused):
            if not self._turn.acquire(timeout=self._call_s):
                raise errors.StoreUnavailable("etcd: another thread is still logging in")
            try:
                if self._token is None or (instead_of is not None and self._token == refused):
                    self._token = self._log_in(client)
            finally:
                self._turn.release()
        return (("token", self._token),) if self._token else ()

    def outdated(self, error: grpc.RpcError) -> bool:
        """Whether another token would help."""
        details = error.details() or ""
        known = error.code() is grpc.StatusCode.UNAUTHENTICATED or any(text in details for text in OUTDATED)
        return bool(self._security.user) and known

    def _log_in(self, client: Any) -> str:
        request = etcdrpc.AuthenticateRequest(name=self._security.user, password=_password(self._security))
        try:
            token = etcdrpc.AuthStub(client.channel).Authenticate(request, timeout=self._call_s).token
        except grpc.RpcError as error:
            if OFF in (error.details() or ""):
                return ""  # an etcd without users lets everybody in
            raise
        return str(token)


def refusal(error: grpc.RpcError, where: Endpoint, security: config.EtcdSecurity) -> errors.StoreUnavailable:
    """The error to raise: what etcd said, and what an operator can do about it. It holds no secret."""
    code, details = error.code(), error.details() or ""
    if code in REFUSALS:
        return errors.StoreRefused(f"etcd: {details}")
    advice = _about_tls(details, where, security) if broken(error, where) else _about_users(code, details, security)
    if advice:
        return errors.StoreForbidden(f"etcd at {where}: {details}: {advice}")
    hint = ""
    if any(text in details for text in CLOSED):
        hint = (
            ": if it speaks no TLS, leave https:// out" if where.tls else ": if it speaks TLS, write https:// in front"
        )
    return errors.StoreUnavailable(f"etcd at {where}: {code.name.lower()}: {details}{hint}")


def broken(error: grpc.RpcError, where: Endpoint) -> bool:
    """Whether a TLS connection failed as such, and its files are to be read anew: they may have been changed."""
    return where.tls and error.code() is grpc.StatusCode.UNAVAILABLE and "etcdserver:" not in (error.details() or "")


def joined(failures: Sequence[errors.StoreUnavailable]) -> errors.StoreUnavailable:
    """One error for all endpoints: forbidden only where each of them forbids."""
    away = [one for one in failures if not isinstance(one, errors.StoreForbidden)]
    kind = errors.StoreUnavailable if away else errors.StoreForbidden
    return kind("; ".join(dict.fromkeys(map(str, failures))))


def _about_users(code: grpc.StatusCode, details: str, security: config.EtcdSecurity) -> str:
    asked = f"the user {security.user!r}" if security.user else "nobody"
    if security.cert_file and not security.user:
        asked = "the name in etcd_security.cert_file"
    if "authentication failed" in details:
        return "check etcd_security.user and its password"
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return f"{asked} needs a role with readwrite on the prefix /crawlring/<cluster>/"
    if code is grpc.StatusCode.UNAUTHENTICATED or any(text in details for text in OUTDATED):
        return f"etcd has users, and {asked} asked: set etcd_security.user and etcd_security.password_file"
    return ""


def _about_tls(details: str, where: Endpoint, security: config.EtcdSecurity) -> str:
    if "WRONG_VERSION_NUMBER" in details:
        return "it speaks no TLS there: leave https:// out, or turn TLS on in etcd"
    if "CERTIFICATE_VERIFY_FAILED" in details or "Hostname Verification Check failed" in details:
        return f"its certificate is not one that etcd_security.ca_file vouches for, for the name {where.host}"
    if any(text in details for text in OURS_REFUSED):
        return f"it {'does not take' if security.cert_file else 'wants'} a certificate of ours: etcd_security.cert_file"
    return ""


def _endpoint(text: str) -> Endpoint:
    scheme, mark, rest = text.rpartition("://")
    host, colon, port = rest.rstrip("/").rpartition(":")
    if "@" in text:
        raise errors.ConfigError("etcd endpoint: no user and no password in an address: see etcd_security")
    if not colon or not host.strip(":") or not port.isascii() or not port.isdigit():
        raise errors.ConfigError(f"etcd endpoint {text!r}: HOST:PORT is wanted")
    if mark and scheme not in {"http", "https"}:
        raise errors.ConfigError(f"etcd endpoint {text!r}: http:// or https:// is wanted")
    return Endpoint(host, int(port), scheme == "https")


def _password(security: config.EtcdSecurity) -> str:
    if not security.password_file:
        return security.password
    lines = _read(security.password_file).decode(errors="replace").splitlines()
    if not lines or not lines[0]:
        raise errors.ConfigError(f"{security.password_file}: no password in its first line")
    return lines[0]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise errors.ConfigError(f"cannot read {path}: {error.strerror}") from error
