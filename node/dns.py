"""Where a host's connections go: name look-up, its bounded cache, and the refusal of what is not public.

It knows no HTTP. One address is given for one attempt; after a failure the next attempt gets another.
Addresses are judged after every look-up, cached or not, and so are address literals. The cluster's own stores are
refused even where private addresses are allowed, and by --connect-to too: nobody can want a page's URL to reach them.
Source: the IANA
special-purpose registries, RFC 6052 (NAT64), RFC 3056 (6to4), RFC 4380 (Teredo), WHATWG fetch (bad ports).
"""

import asyncio
import collections
import dataclasses
import functools
import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Sequence

import aiodns
import pycares
from aiodns import error as aiodns_error

from shared import clock, errors

TTL_MIN_S = 60.0
TTL_MAX_S = 3_600.0
TTL_FAILED_S = 30.0  # soon enough for a name that is being repaired, and no flood of questions for one that is not
TTL_GONE_S = 86_400.0  # of a name that its zone says is none: it was mistyped or given up
CACHE_NAMES_MAX = 50_000  # some 250 bytes each
JUDGED_KEPT = 16_384  # addresses whose judgement is kept, some 150 bytes each
LITERALS_KEPT = 256
LOOKUPS_MAX = 64  # more at once only make resolvers drop questions
LOOKUP_S = 10.0
TURN_S = 20.0  # that a look-up waits for others before it is told to come back
QUESTION_S = 2.0
TRIES = 2

_REFUSED_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
        *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        *("::/128", "::1/128", "64:ff9b:1::/48", "100::/64", "2001:db8::/32", "3fff::/20", "5f00::/16"),
        *("fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8"),
    )
)
_ENDS_IN_NUMBER = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)\.?$", re.IGNORECASE)  # as WHATWG's host parser
_ELSEWHERE = frozenset({"onion", "alt"})  # names of other networks, not to be asked for in the DNS: RFC 7686, RFC 9476
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_V4_COMPATIBLE = ipaddress.IPv6Network("::/96")

# fmt: off
BAD_PORTS = frozenset({
    0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103,
    104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514,
    515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723,
    2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
})
# fmt: on
"""Ports of other protocols: a URL that names one is after a server that does not speak HTTP."""


class UnresolvedError(OSError):
    """The name has no address now; the text is the resolver's word for why."""


class BusyError(OSError):
    """So many look-ups are in flight that this one found no turn: it says nothing of the name."""


class ForbiddenError(OSError):
    """Not to be contacted at all: private_address, port, store or not_dns."""


@dataclasses.dataclass(frozen=True, slots=True)
class Address:
    """Where one attempt connects."""

    ip: str
    port: int


@dataclasses.dataclass(slots=True)
class _Known:
    """What is remembered of one name; the next attempt's address stands first."""

    ips: list[str]
    until_s: float
    why: str = ""


class Resolver:
    """Addresses for hosts. `connect_to` (HOST:PORT) sends everything to that one address, private or not."""

    def __init__(
        self,
        *,
        allow_private: bool = False,
        connect_to: str = "",
        nameservers: Sequence[str] | None = None,
        stores: Callable[[], Iterable[tuple[str, int]]] = tuple,
    ) -> None:
        self._allow_private = allow_private
        self._stores = stores
        self._connect_to = _host_port(connect_to) if connect_to else None
        self._nameservers = nameservers
        self._channel: aiodns.DNSResolver | None = None
        self._known: collections.OrderedDict[str, _Known] = collections.OrderedDict()
        self._turns = asyncio.Semaphore(LOOKUPS_MAX)

    @property
    def fixed(self) -> bool:
        """Every host leads to the one address of `connect_to`."""
        return self._connect_to is not None

    async def lookup(self, host: str, port: int) -> Address:
        """The address for one attempt. Raises UnresolvedError, ForbiddenError or BusyError."""
        if self._connect_to is not None:
            target, target_port = self._connect_to
            ip = (self._at_hand(target) or await self._ips(target))[0]
            if await self._is_store(ip, target_port):
                raise ForbiddenError("store")
            return Address(ip, target_port)
        if port in BAD_PORTS:
            raise ForbiddenError("port")
        if host.rpartition(".")[2] in _ELSEWHERE:
            raise ForbiddenError("not_dns")
        reason = "private_address"
        for ip in self._at_hand(host) or await self._ips(host):
            # A name with one public and one private address has one address.
            if not self._allow_private and not is_public(ip):
                continue
            if not await self._is_store(ip, port):
                return Address(ip, port)
            reason = "store"
        raise ForbiddenError(reason)

    async def _is_store(self, ip: str, port: int) -> bool:
        """Whether one of the cluster's stores listens there, by whatever address of its machine."""
        for host, its_port in self._stores():
            if port != its_port:
                continue
            try:
                theirs = await self._ips(host)
            except UnresolvedError as error:
                # Where it is nobody knows now: rather no request than one to it, and that passes.
                raise UnresolvedError(f"a store of this cluster is at that port, and {host} has no address") from error
            if any(_same_machine(ip, one) for one in theirs):
                return True
        return False

    def failed(self, host: str, address: Address) -> None:
        """Nothing answered there: the host's other addresses come first from now on."""
        known = self._known.get(host if self._connect_to is None else self._connect_to[0])
        if known is not None and address.ip in known.ips:
            known.ips.remove(address.ip)
            known.ips.append(address.ip)

    async def close(self) -> None:
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    def _at_hand(self, host: str) -> Sequence[str]:
        """The addresses of a host that is known and has some, without a task's turn; else nothing."""
        known = self._known.get(host)
        if known is None or known.until_s <= clock.boot_s():
            return ()
        self._known.move_to_end(host)
        return known.ips

    async def _ips(self, host: str) -> list[str]:
        try:
            return [_literal(host)]
        except ValueError:
            if _ENDS_IN_NUMBER.search(host):
                # 0177.0.0.1, 127.1, 0x7f000001: what they mean depends on who reads them, so nobody is asked.
                raise UnresolvedError("not a canonical address") from None
        known = self._known.get(host)
        if known is None or known.until_s <= clock.boot_s():
            known = await self._ask(host)
            self._known[host] = known
            if len(self._known) > CACHE_NAMES_MAX:
                self._known.popitem(last=False)
        self._known.move_to_end(host)
        if not known.ips:
            raise UnresolvedError(known.why)
        return known.ips

    async def _ask(self, host: str) -> _Known:
        if self._channel is None:
            self._channel = aiodns.DNSResolver(nameservers=self._nameservers, timeout=QUESTION_S, tries=TRIES)
        try:
            async with asyncio.timeout(TURN_S):
                await self._turns.acquire()
        except TimeoutError:
            raise BusyError("look-ups") from None
        try:
            async with asyncio.timeout(LOOKUP_S):
                found = await self._channel.getaddrinfo(host, type=socket.SOCK_STREAM)
        except aiodns_error.DNSError as error:
            ttl_s = TTL_GONE_S if error.args[0] == aiodns_error.ARES_ENOTFOUND else TTL_FAILED_S
            return _Known([], clock.boot_s() + ttl_s, str(error.args[-1]))
        except TimeoutError:
            return _Known([], clock.boot_s() + TTL_FAILED_S, "timeout")
        except (UnicodeError, ValueError) as error:
            return _Known([], clock.boot_s() + TTL_FAILED_S, f"not a name: {error}")
        finally:
            self._turns.release()
        # IPv4 first: with one address an attempt, a machine without IPv6 must not lose every first attempt.
        nodes = sorted(found.nodes, key=lambda node: node.family != socket.AF_INET)
        ips = list(dict.fromkeys(_text(node) for node in nodes))
        ttl_s = min((float(node.ttl) for node in nodes), default=TTL_FAILED_S)
        return _Known(ips, clock.boot_s() + min(max(ttl_s, TTL_MIN_S), TTL_MAX_S), "" if ips else "no address")


@functools.lru_cache(LITERALS_KEPT)
def _literal(host: str) -> str:
    """Raises ValueError for what is no numeric address."""
    return str(ipaddress.ip_address(host))


@functools.lru_cache(JUDGED_KEPT)
def is_public(ip: str) -> bool:
    """Whether an address belongs to the public internet; an embedded IPv4 address is what counts."""
    address = ipaddress.ip_address(ip)
    if isinstance(address, ipaddress.IPv6Address):
        inner = _embedded(address)
        if inner is not None:
            return is_public(str(inner))
    return not any(address in network for network in _REFUSED_NETWORKS if network.version == address.version)


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _NAT64 or (address in _V4_COMPATIBLE and int(address) > 1):
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return None


def _same_machine(one: str, other: str) -> bool:
    return _plain(one) == _plain(other) or (_is_here(one) and _is_here(other))


def _plain(ip: str) -> str:
    address = ipaddress.ip_address(ip)
    inner = _embedded(address) if isinstance(address, ipaddress.IPv6Address) else None
    return str(inner or address)


def _is_here(ip: str) -> bool:
    """Whether this machine answers to it: what can be bound, which takes in all of loopback and 0.0.0.0."""
    plain = _plain(ip)
    with socket.socket(socket.AF_INET6 if ":" in plain else socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((plain, 0))
        except OSError:
            return False
    return True


def _text(node: pycares.AddrInfoNode) -> str:
    ip = node.addr[0]
    return ip.decode() if isinstance(ip, bytes) else ip


def _host_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise errors.ConfigError(f"--connect-to wants HOST:PORT, not {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)
