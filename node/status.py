"""The node's status endpoint: /metrics, /healthz, /readyz and /state; it reads, and changes nothing."""

import json
from collections.abc import Callable
from typing import Any, Final

import prometheus_client
from aiohttp import web

from shared import errors, metrics

SITES_MAX: Final = 100  # rows of /state's table: a page, not an export
_CLOSE_S: Final = 1.0  # a reader that holds its connection open does not hold up a drain


class StatusServer:
    """Serves until closed; `ready` says why not (None = ready), `state` gives a JSON-able dict."""

    def __init__(
        self,
        listen: str,
        *,
        metrics: metrics.Metrics,
        ready: Callable[[], str | None],
        state: Callable[[], dict[str, Any]],
    ) -> None:
        self._host, self._port = address_of(listen)
        self._metrics = metrics
        self._ready = ready
        self._state = state
        self._runner: web.AppRunner | None = None

    async def start(self) -> tuple[str, int]:
        """Listen, and return the actual (host, port). Raises ConfigError if the address cannot be had."""
        app = web.Application()
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


def _json(value: dict[str, Any], *, status: int) -> web.Response:
    return web.Response(text=json.dumps(value, default=str) + "\n", content_type="application/json", status=status)
