"""A DNS server on loopback that answers from a table."""

import asyncio
import socket
import struct


class NameServer(asyncio.DatagramProtocol):
    """A DNS server on loopback with a table of A records; `asked` is its own log."""

    def __init__(self) -> None:
        self.records: dict[str, list[str]] = {}
        self.ttl_s = 300
        self.asked: list[str] = []
        self.silent = False
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
        if self.silent:
            return
        found = self.records.get(name, []) if kind == 1 else []
        code = 0x8180 if name in self.records else 0x8183
        question = data[12 : at + 5]
        head = data[:2] + struct.pack("!HHHHH", code, 1, len(found), 0, 0)
        answers = b"".join(
            b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, self.ttl_s, 4) + socket.inet_aton(ip) for ip in found
        )
        assert self._transport is not None
        self._transport.sendto(head + question + answers, addr)
