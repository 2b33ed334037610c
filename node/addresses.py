"""How often one address may be asked, whatever sites it hosts: slots with a gap between them, promised in turn.

Pure: it reads no clock and waits for nobody. One machine often has hundreds of sites, and each site's own delay says
nothing of their sum. It is one node's own limit; a site that is alone at its address never meets it, since its own
delay is longer.
"""

import collections
import dataclasses
import ipaddress
from collections.abc import Iterable

LOOPBACK = ("127.0.0.0/8", "::1/128")
PATIENCE_S = 0.05  # a slot this near is taken at once: the caller waits for it where it stands
PROMISES_MAX = 50_000  # of all addresses together; beyond it the moment is told and not kept
ADDRESSES_MAX = 20_000  # the longest unused goes first

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclasses.dataclass(slots=True)
class _Line:
    """Those who wait for one address."""

    last_s: float
    """The latest moment at which somebody goes or went."""
    end_s: float
    """The last moment that was promised, or `last_s`."""
    late_s: float
    """The last moment given to one whose own had passed or was taken; they are served before new ones."""
    promised: dict[str, float]
    """Host -> the moment it was told."""


class Addresses:
    """Slots of `gap_s` seconds for each address; networks in `exempt` have no limit."""

    def __init__(self, gap_s: float, exempt: Iterable[str] = LOOPBACK) -> None:
        """Raises ValueError for what is no network."""
        self._gap_s = gap_s
        self._exempt: tuple[Network, ...] = tuple(ipaddress.ip_network(text) for text in exempt)
        self._lines: collections.OrderedDict[str, _Line] = collections.OrderedDict()
        self._promises = 0

    def __len__(self) -> int:
        """Addresses remembered."""
        return len(self._lines)

    @property
    def promises(self) -> int:
        return self._promises

    def take(self, address: str, host: str, now_s: float) -> float:
        """The moment at which a request for `host` may go to `address`.

        Within PATIENCE_S of `now_s` the slot is taken: wait until then and go. Later than that it is kept for this
        host: ask again then. Whoever asks after its moment, or finds it taken, is told the next one.
        """
        if self._gap_s <= 0 or (address not in self._lines and self._is_exempt(address)):
            return now_s
        line = self._line(address, now_s)
        mine_s = line.promised.get(host)
        if mine_s is not None and mine_s > now_s + PATIENCE_S:
            return mine_s
        if mine_s is None:
            moment_s = max(now_s, line.end_s + self._gap_s)
        else:
            moment_s = max(now_s, mine_s, line.last_s + self._gap_s)
            if moment_s > now_s + PATIENCE_S:
                moment_s = max(moment_s, line.late_s + self._gap_s)
                line.late_s = moment_s
        if moment_s <= now_s + PATIENCE_S:
            self._forget(line, host)
            line.last_s = moment_s
            line.end_s = max(line.end_s, moment_s)
            return moment_s
        self._promise(line, host, moment_s)
        return moment_s

    def _promise(self, line: _Line, host: str, moment_s: float) -> None:
        if host not in line.promised:
            if self._promises >= PROMISES_MAX:
                return
            self._promises += 1
        line.promised[host] = moment_s
        line.end_s = max(line.end_s, moment_s)

    def _forget(self, line: _Line, host: str) -> None:
        if line.promised.pop(host, None) is not None:
            self._promises -= 1

    def _line(self, address: str, now_s: float) -> _Line:
        line = self._lines.get(address)
        if line is None:
            long_ago_s = now_s - self._gap_s
            line = self._lines[address] = _Line(long_ago_s, long_ago_s, long_ago_s, {})
            if len(self._lines) > ADDRESSES_MAX:
                self._promises -= len(self._lines.popitem(last=False)[1].promised)
        self._lines.move_to_end(address)
        if line.end_s + self._gap_s <= now_s and line.promised:
            # Every promised moment has passed, some unused: who held them has gone, or asks again as a new one.
            self._promises -= len(line.promised)
            line.promised.clear()
        return line

    def _is_exempt(self, address: str) -> bool:
        ip = ipaddress.ip_address(address)
        if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        return any(ip in network for network in self._exempt if network.version == ip.version)
