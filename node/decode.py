"""Undo content codings as the bytes come, up to a cap: gzip, deflate (zlib or raw), br, zstd, and stacks.

It knows no HTTP message and no socket. Output is made in steps: a bomb costs the cap, not its size.
Source: RFC 9110 section 8.4, RFC 1950-1952, RFC 7932, RFC 8878.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import Protocol

import brotli
import zstandard

ACCEPTED = "gzip, deflate, br, zstd"
STEP_BYTES = 64 * 1024
LAYERS_MAX = 5  # nobody stacks more than two; each one may multiply the work
ZSTD_WINDOW_BYTES_MAX = 8 * 1024 * 1024  # RFC 9659: what a content coding may ask of a client
ZSTD_RATIO_MAX = 128 * 1024 // 4  # one run-length block: 4 bytes become 128 KiB
GZIP_MAGIC = b"\x1f\x8b"
FAULTS = (zlib.error, brotli.error, zstandard.ZstdError)

# Codings that exist and that nobody may send unasked: their bytes are no text. Any other unknown word (utf-8,
# none, text/html) is a server's mistake and changes nothing.
UNDECODABLE = frozenset(
    {
        "aws-chunked",
        "bzip2",
        "compress",
        "dcb",
        "dcz",
        "exi",
        "lzma",
        "pack200-gzip",
        "sdch",
        "x-compress",
        "xz",
    }
)


class _Layer(Protocol):
    complete: bool
    """The coding's own end has been seen."""

    def pieces(self, data: bytes) -> Iterator[bytes]: ...


class Body:
    """Collects one body: `feed` what came, `finish` at its end, then read `data` and `fault`."""

    def __init__(self, codings: Sequence[str], *, bytes_max: int) -> None:
        self._layers: list[_Layer] = []
        self._room = [bytes_max + STEP_BYTES] * LAYERS_MAX
        self._bytes_max = bytes_max
        self._out = bytearray()
        self._fed = False
        self.fault: str | None = None
        """None, size or encoding: why `data` is not the whole."""
        self._stack(codings)

    @property
    def data(self) -> bytes:
        return bytes(self._out)

    def feed(self, data: bytes) -> None:
        """Take the next received bytes; does nothing once there is a fault."""
        if self.fault is not None or not data:
            return
        self._fed = True
        try:
            self._push(0, data)
        except FAULTS:
            self.fault = "encoding"

    def finish(self) -> None:
        """No more will come: a coding without its end was cut short."""
        if self.fault is None and self._fed and not all(layer.complete for layer in self._layers):
            self.fault = "encoding"

    def _stack(self, codings: Sequence[str]) -> None:
        for coding in reversed(codings):
            word = coding.strip().lower()
            if word in UNDECODABLE or (word in _LAYERS and len(self._layers) == LAYERS_MAX):
                self.fault = "encoding"
                return
            if word in _LAYERS:
                self._layers.append(_LAYERS[word]())

    def _push(self, depth: int, data: bytes) -> None:
        if depth == len(self._layers):
            room = self._bytes_max - len(self._out)
            self._out += data[:room]
            if len(data) > room:
                self.fault = "size"
            return
        for piece in self._layers[depth].pieces(data):
            self._push(depth + 1, piece)
            # A layer below the last may swell and still give nothing: its output is capped too.
            self._room[depth] -= len(piece)
            if self._room[depth] < 0:
                self.fault = self.fault or "size"
            if self.fault is not None:
                return


class _Gzip:
    """One or more gzip members and padding; or no gzip at all, where a server labels plain bytes so."""

    def __init__(self) -> None:
        self.complete = False
        self._inflate: zlib._Decompress | None = None
        self._plain = False
        self._held = b""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        data = self._held + data
        self._held = b""
        while data and not self._plain:
            if self._inflate is None or self.complete:
                if len(data) < len(GZIP_MAGIC) and GZIP_MAGIC.startswith(data):
                    self._held = data
                    return
                if not data.startswith(GZIP_MAGIC):
                    self._plain = self._inflate is None
                    break
                self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
            yield from _inflated(self._inflate, data)
            self.complete = self._inflate.eof
            data = self._inflate.unused_data
        if self._plain:
            self.complete = True
            yield data


class _Deflate:
    """The zlib format, as the RFC has it, or the bare deflate stream that some servers send instead."""

    def __init__(self) -> None:
        self.complete = False
        self._inflate: zlib._Decompress | None = None
        self._held = b""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        if self.complete:
            return
        data = self._held + data
        if self._inflate is None:
            if len(data) < 2:
                self._held = data
                return
            wrapped = data[0] & 0x0F == zlib.DEFLATED and int.from_bytes(data[:2], "big") % 31 == 0
            self._inflate = zlib.decompressobj(zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS)
            self._held = b""
        yield from _inflated(self._inflate, data)
        self.complete = self._inflate.eof


class _Brotli:
    def __init__(self) -> None:
        self.complete = False
        self._decompressor = brotli.Decompressor()

    def pieces(self, data: bytes) -> Iterator[bytes]:
        # Surplus bytes are refused by the library, in one piece with the end or in a later one: how they were cut must
        # not matter.
        # can_accept_more_data() may say yes while output is still inside: only an empty answer means there is none.
        while out := self._decompressor.process(data, output_buffer_limit=STEP_BYTES):
            yield out
            data = b""
        self.complete = self._decompressor.is_finished()


class _Zstd:
    """One or more frames, fed in slices: the library bounds its output only by what goes in."""

    def __init__(self) -> None:
        self.complete = False
        self._frame = self._next_frame()

    def pieces(self, data: bytes) -> Iterator[bytes]:
        slice_bytes = 10 * 1024 * 1024 // ZSTD_RATIO_MAX
        for begin in range(0, len(data), slice_bytes):
            rest = data[begin : begin + slice_bytes]
            while rest:
                if self.complete:
                    self._frame = self._next_frame()
                yield self._frame.decompress(rest)
                self.complete = self._frame.eof
                rest = self._frame.unused_data if self.complete else b""

    @staticmethod
    def _next_frame() -> "zstandard.ZstdDecompressionObj":
        return zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX).decompressobj()


_LAYERS: dict[str, type[_Gzip] | type[_Deflate] | type[_Brotli] | type[_Zstd]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstd,
}


def _inflated(inflate: "zlib._Decompress", data: bytes) -> Iterator[bytes]:
    """Everything zlib makes of `data`, a step at a time; a full step may leave output inside: ask again."""
    while True:
        out = inflate.decompress(data, STEP_BYTES)
        if out:
            yield out
        data = inflate.unconsumed_tail
        if inflate.eof or (not data and len(out) < STEP_BYTES):
            return
