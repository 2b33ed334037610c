"""A DNS server on loopback that answers from a table."""

import asyncio
import socket
import struct


class NameServer(asyncio.DatagramProtocol):
    """A DNS server on loopback with a table of A and AAAA records; `asked` is its own log, of questions for A."""

    def __init__(self) -> None:
        self.records: dict[str, list[str]] = {}
        self.ttl_s = 300
        self.asked: list[str] = []
        self.silent = False
        self.mute: set[str] = set()
        """Names that are never answered."""
        self.broken: set[str] = set()
        """Names that are answered by SERVFAIL."""
        self._transport: asyncio.DatagramTransport | None = None

    async def start(self) -> str:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=("127.0.0.1", 0))
        self._transport = transport
        host, port = transport.get_extra_info("sockname")
        return f"{host}:{port}"

    def stop(self) -> None:
        assert self._transport is not None
        self._transport.close()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        labels, at = [], 12
        while data[at]:
            labels.append(data[at + 1 : at + 1 + data[at]].decode())
            at += 1 + data[at]
        name = ".".join(labels).lower()
        (kind,) = struct.unpack_from("!H", data, at + 1)
        if kind == 1:
            self.asked.append(name)
        if self.silent or name in self.mute:
            return
        known = self.records.get(name, [])
        found = [ip for ip in known if (":" in ip) == (kind == 28)] if kind in {1, 28} else []
        code = 0x8182 if name in self.broken else 0x8180 if name in self.records else 0x8183
        question = data[12 : at + 5]
        head = data[:2] + struct.pack("!HHHHH", code, 1, len(found), 0, 0)
        answers = b"".join(
            b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, self.ttl_s, len(packed)) + packed
            for packed in map(_packed, found)
        )
        assert self._transport is not None
        self._transport.sendto(head + question + answers, addr)


def _packed(ip: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip)
