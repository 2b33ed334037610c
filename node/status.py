"""The node's status endpoint: /metrics, /healthz, /readyz and /state; it reads, and changes nothing.

Whoever can reach the port may read. A browser on this machine can, so a page that had its own name point here (DNS
rebinding) is told apart by the Host that it asks for: RFC 9110 section 7.4.
"""

import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

import prometheus_client
from aiohttp import web

from shared import errors, metrics

SITES_MAX: Final = 100  # rows of /state's table: a page, not an export
READING: Final = ("GET", "HEAD")
_CLOSE_S: Final = 1.0  # a reader that holds its connection open does not hold up a drain

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class StatusServer:
    """Serves until closed; `ready` says why not (None = ready), `state` gives a JSON-able dict."""

    def __init__(
        self,
        listen: str,
        *,
        metrics: metrics.Metrics,
        ready: Callable[[], str | None],
        state: Callable[[], dict[str, Any]],
        names: Sequence[str] = (),
    ) -> None:
        """`names`: those in a Host header that are ours, besides addresses, localhost and this machine's; `*`: any."""
        self._host, self._port = address_of(listen)
        self._names = {name.lower() for name in (self._host, socket.gethostname(), *names)}
        self._metrics = metrics
        self._ready = ready
        self._state = state
        self._runner: web.AppRunner | None = None

    async def start(self) -> tuple[str, int]:
        """Listen, and return the actual (host, port). Raises ConfigError if the address cannot be had."""
        app = web.Application(middlewares=[_only_reading, self._only_for_us])
        app.add_routes(
            [
                web.get("/metrics", self._get_metrics),
                web.get("/healthz", self._get_health),
                web.get("/readyz", self._get_ready),
                web.get("/state", self._get_state),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_CLOSE_S)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._host, self._port).start()
        except OSError as error:
            await self.close()
            raise errors.ConfigError(f"cannot listen on {self._host}:{self._port}: {error.strerror}") from error
        host, port, *_ = self._runner.addresses[0]
        return str(host), int(port)

    async def close(self) -> None:
        """Stop listening; again is harmless."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    @web.middleware
    async def _only_for_us(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        asked = request.headers.getall("Host", [])
        if len(asked) > 1 or not all(is_ours(text, self._names) for text in asked):
            raise web.HTTPMisdirectedRequest(text="this is not that host; see node.listen_names\n")
        return await handler(request)

    async def _get_metrics(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=self._metrics.render(), headers={"Content-Type": prometheus_client.CONTENT_TYPE_LATEST}
        )

    async def _get_health(self, _request: web.Request) -> web.Response:
        # The loop that answers here is the loop that runs the visits.
        return _json({"ok": True}, status=200)

    async def _get_ready(self, _request: web.Request) -> web.Response:
        reason = self._ready()
        return _json({"ready": reason is None, "reason": reason}, status=200 if reason is None else 503)

    async def _get_state(self, _request: web.Request) -> web.Response:
        state = dict(self._state())
        sites = state.get("sites")
        if isinstance(sites, list):
            state["sites"] = sites[:SITES_MAX]
        return _json(state, status=200)


def address_of(listen: str) -> tuple[str, int]:
    """(host, port) of HOST:PORT; brackets round an IPv6 host are taken off. Raises ConfigError."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise errors.ConfigError(f"not HOST:PORT: {listen!r}")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def is_ours(host: str, names: Collection[str]) -> bool:
    """Whether a Host header names this endpoint.

    An address always does: to come by one, a page's own name would have had to be that address.
    """
    name, bracket, _ = host.lower().rpartition("]")
    name = (name + bracket if bracket else host.lower().partition(":")[0]).removesuffix(".")
    if "*" in names or name in names or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


@web.middleware
async def _only_reading(request: web.Request, handler: _Handler) -> web.StreamResponse:
    if request.method not in READING:
        raise web.HTTPMethodNotAllowed(request.method, READING)
    return await handler(request)


def _json(value: dict[str, Any], *, status: int) -> web.Response:
    return web.Response(text=json.dumps(value, default=str) + "\n", content_type="application/json", status=status)
