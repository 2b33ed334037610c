"""Connections under the guard: opened for one fetch, kept for the next of the same origin, closed when nobody comes.

It knows sockets, TLS and `node.wire`'s handlers, and no message. At most one idle connection is kept for each origin,
since a site is asked one thing at a time; beyond a bound the one that has waited longest is closed. TLS sessions are
not resumed: handing one to Python's ssl costs most of what the shorter handshake saves.
"""

import asyncio
import collections
import functools
import resource
import ssl
from typing import Any

from node import guard, wire
from node import tls as tls_contexts

KEEP_ALIVE_S = 15.0  # the usual delay of a site comes round within it; few servers wait longer
IDLE_MAX = 4_096  # more sites than one node visits within KEEP_ALIVE_S; some 10 KB each, TLS more
FILES_KEPT_FREE = 512  # for what is in use, the stores, logs and archives


class ConnectError(OSError):
    """No connection came about; the text is the system's word for why."""


def room() -> int:
    """How many idle connections this process may have, its limit of open files raised as far as it may be."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return IDLE_MAX if hard == resource.RLIM_INFINITY else max(16, min(IDLE_MAX, hard - FILES_KEPT_FREE))


class Connections:
    """Opens guarded connections to the address that an exchange names, and keeps them."""

    def __init__(self, *, idle_max: int, tls: ssl.SSLContext | None, judge: wire.Judge | None = None) -> None:
        """`judge` says what is wrong with a certificate, where `tls` lets every one pass."""
        self.idle: collections.OrderedDict[wire.Place, wire.Handler] = collections.OrderedDict()
        self._of_site: dict[str, set[wire.Handler]] = {}
        self._idle_max = idle_max
        self._tls = tls if tls is not None else tls_contexts.trusting()
        self._judge = judge
        self._sweep: asyncio.TimerHandle | None = None
        self._closed = False

    async def open(self, exchange: wire.Exchange, place: wire.Place) -> wire.Handler:
        """The exchange's connection, bound to it: an idle one, if it leads to the address that was judged for it."""
        if self._closed:
            raise RuntimeError("closed")
        handler = self.idle.get(place)
        if handler is not None:
            self._taken(handler)
            if handler.address != exchange.address or handler.should_close or not handler.is_connected():
                handler.close()
                handler = None
        if handler is None:
            handler = await self._connect(exchange, place)
        handler.begin(exchange)
        return handler

    def keep(self, handler: wire.Handler) -> None:
        """The connection's exchange is over: it waits for the next one, or is closed where it cannot be used again."""
        if handler.should_close or not handler.is_connected():
            handler.close()
            return
        earlier = self.idle.get(handler.place)
        if earlier is not None:
            self._taken(earlier)
            earlier.close()
        loop = asyncio.get_running_loop()
        handler.waits_since_s = loop.time()
        self.idle[handler.place] = handler
        self._of_site.setdefault(handler.site, set()).add(handler)
        if len(self.idle) > self._idle_max:
            self._close_first()
        if self._sweep is None:
            self._sweep = loop.call_later(KEEP_ALIVE_S, self._close_old)

    def drop(self, site: str | None) -> None:
        """Reset what waits for a site, or for all."""
        for handler in list(self.idle.values() if site is None else self._of_site.get(site, ())):
            self._taken(handler)
            handler.socket.reset_on_close()
            handler.abort()

    async def close(self) -> None:
        self._closed = True
        self.drop(None)
        if self._sweep is not None:
            self._sweep.cancel()
        await asyncio.sleep(0)  # the loop closes the sockets in its next round

    def _taken(self, handler: wire.Handler) -> None:
        """It waits no longer: it is used, closed, or lost."""
        if handler.waits_since_s is None:
            return
        handler.waits_since_s = None
        del self.idle[handler.place]
        of_site = self._of_site[handler.site]
        of_site.discard(handler)
        if not of_site:
            del self._of_site[handler.site]

    def _close_first(self) -> None:
        handler = next(iter(self.idle.values()))
        self._taken(handler)
        handler.close()

    def _close_old(self) -> None:
        self._sweep = None
        loop = asyncio.get_running_loop()
        while self.idle:
            end_s = (next(iter(self.idle.values())).waits_since_s or 0.0) + KEEP_ALIVE_S
            if end_s > loop.time():
                self._sweep = loop.call_at(end_s, self._close_old)
                return
            self._close_first()

    async def _connect(self, exchange: wire.Exchange, place: wire.Place) -> wire.Handler:
        address = exchange.address
        assert address is not None, "an exchange connects after its look-up"
        loop = asyncio.get_running_loop()
        sock = guard.open_socket(exchange, address.ip)
        make = functools.partial(wire.Handler, loop, sock, place, address, lost=self._taken, judge=self._judge)
        tls: dict[str, Any] = {"ssl": self._tls, "server_hostname": place.host.rstrip(".")} if place.secure else {}
        handler = None
        try:
            await loop.sock_connect(sock, (address.ip, address.port))
            _, handler = await loop.create_connection(make, sock=sock, **tls)
        except ssl.SSLError:
            raise
        except OSError as error:
            raise ConnectError(f"{place.host}:{place.port}: {error}") from error
        finally:
            if handler is None:
                sock.close()
        return handler
