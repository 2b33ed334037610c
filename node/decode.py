"""Undo content codings as the bytes come, up to a cap: gzip, deflate (zlib or raw), br, zstd, and stacks.

It knows no HTTP message and no socket. Output is made in steps: a bomb costs the cap, not its size. Servers label
plain bytes as coded, and one coding as another: that is undone as far as it can be told, and noted.
Source: RFC 9110 section 8.4, RFC 1950-1952, RFC 7932, RFC 8878.
"""

import io
import re
import zlib
from collections.abc import Callable, Iterator, Sequence

import brotli
import zstandard

ACCEPTED = "gzip, deflate, br, zstd"
STEP_BYTES = 64 * 1024
LAYERS_MAX = 5  # nobody stacks more than two; each one may multiply the work
ZSTD_WINDOW_BYTES_MAX = 8 * 1024 * 1024  # RFC 9659: what a content coding may ask of a client
ZSTD_RATIO_MAX = 128 * 1024 // 4  # one run-length block: 4 bytes become 128 KiB
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
MISLABELLED = "mislabelled"
JUDGED_BYTES = 512
BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")  # what no text has, and any coded stream soon does
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


class _Layer:
    """One coding of a body."""

    complete = False
    """The coding's own end has been seen."""
    mislabelled = False
    """The bytes were not coded as their label says."""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """What `data`, the next bytes, comes to; raises one of FAULTS."""
        yield data

    def rest(self) -> Iterator[bytes]:
        """At the end of what comes: what was held back."""
        yield from ()


class Body:
    """Collects one body: `feed` what came, `finish` at its end, then read `data` and `fault`."""

    def __init__(self, codings: Sequence[str], *, bytes_max: int) -> None:
        self._layers: list[_Layer] = []
        self._room = [bytes_max + STEP_BYTES] * LAYERS_MAX
        self._bytes_max = bytes_max
        self._out = io.BytesIO()
        self._fed = False
        self.fault: str | None = None
        """None, size or encoding: why `data` is not the whole."""
        self._stack(codings)

    @property
    def data(self) -> bytes:
        return self._out.getvalue()

    @property
    def note(self) -> str | None:
        """`mislabelled` where a coding was not what its label says and the body was read all the same."""
        return MISLABELLED if any(layer.mislabelled for layer in self._layers) else None

    def feed(self, data: bytes) -> None:
        """Take the next received bytes; does nothing once there is a fault."""
        if self.fault is not None or not data:
            return
        self._fed = True
        self._guarded(-1, iter((data,)))

    def finish(self) -> None:
        """No more will come: a coding without its end was cut short."""
        if self.fault is not None or not self._fed:
            return
        for depth, layer in enumerate(self._layers):
            self._guarded(depth, layer.rest())
        if self.fault is None and not all(layer.complete for layer in self._layers):
            self.fault = "encoding"

    def _stack(self, codings: Sequence[str]) -> None:
        for coding in reversed(codings):
            word = coding.strip().lower()
            if word in UNDECODABLE or (word in _LAYERS and len(self._layers) == LAYERS_MAX):
                self.fault = "encoding"
                return
            if word in _LAYERS:
                self._layers.append(_LAYERS[word]())

    def _guarded(self, depth: int, pieces: Iterator[bytes]) -> None:
        try:
            self._pour(depth, pieces)
        except FAULTS:
            self.fault = "encoding"

    def _pour(self, depth: int, pieces: Iterator[bytes]) -> None:
        """Hand on what the layer at `depth` gives; -1 is what was received."""
        for piece in pieces:
            if depth + 1 == len(self._layers):
                room = self._bytes_max - self._out.tell()
                self._out.write(piece[:room])
                if len(piece) > room:
                    self.fault = "size"
            else:
                self._pour(depth + 1, self._layers[depth + 1].pieces(piece))
            if depth >= 0:
                # A layer below the last may swell and still give nothing: its output is capped too.
                self._room[depth] -= len(piece)
                if self._room[depth] < 0:
                    self.fault = self.fault or "size"
            if self.fault is not None:
                return


class _Gzip(_Layer):
    """One or more gzip members and padding; or no gzip at all, where a server labels plain or other bytes so."""

    def __init__(self) -> None:
        self._inflate: zlib._Decompress | None = None
        self._other: _Layer | None = None
        self._held = b""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        data = self._held + data
        self._held = b""
        while data and self._other is None:
            if self._inflate is None or self.complete:
                if len(data) < len(ZSTD_MAGIC) and any(magic.startswith(data) for magic in (GZIP_MAGIC, ZSTD_MAGIC)):
                    self._held = data
                    return
                if not data.startswith(GZIP_MAGIC):
                    if self._inflate is not None:
                        return  # padding after a member
                    self._other = _Zstd() if data.startswith(ZSTD_MAGIC) else _Plain()
                    self.mislabelled = True
                    break
                self._inflate = zlib.decompressobj(zlib.MAX_WBITS | 16)
            yield from _inflated(self._inflate, data)
            self.complete = self._inflate.eof
            data = self._inflate.unused_data
        if self._other is not None:
            yield from self._other.pieces(data)
            self.complete = self._other.complete

    def rest(self) -> Iterator[bytes]:
        if self._held and self._inflate is None and BINARY.search(self._held) is None:
            self.complete = self.mislabelled = True
            yield self._held


class _Plain(_Layer):
    """Bytes as they are."""

    complete = True
    mislabelled = True


class _Tried(_Layer):
    """A coding by its label; where its beginning is plainly text, or cannot be decoded, what it is instead.

    That is judged by the first JUDGED_BYTES, or by all where there are fewer: how they were cut must not matter.
    """

    def __init__(self, make: Callable[[], _Layer]) -> None:
        self._make = make
        self._layer: _Layer | None = None
        self._given = False
        self._held = b""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        if self._layer is None:
            self._held += data
            if len(self._held) < JUDGED_BYTES:
                return
            begun, data, self._held = self._held[:JUDGED_BYTES], self._held[JUDGED_BYTES:], b""
            yield from self._begin(begun, _instead(begun))
        yield from self._told(data)

    def rest(self) -> Iterator[bytes]:
        if self._layer is None:
            yield from self._begin(self._held, _instead(self._held))
            if not self.complete and not self._given and BINARY.search(self._held) is None:
                yield from self._begin(self._held, _Plain())
        elif not self.complete:
            yield from self._layer.rest()
            self.complete = self._layer.complete

    def _begin(self, begun: bytes, instead: _Layer | None) -> Iterator[bytes]:
        self._layer, self._given = instead or self._make(), False
        self.mislabelled = instead is not None
        try:
            yield from self._told(begun)
        except FAULTS:
            if self._given or instead is not None or BINARY.search(begun):
                raise
            yield from self._begin(begun, _Plain())

    def _told(self, data: bytes) -> Iterator[bytes]:
        assert self._layer is not None, "it has begun"
        for piece in self._layer.pieces(data):
            self._given = self._given or bool(piece)
            yield piece
        self.complete = self._layer.complete


class _Deflate(_Layer):
    """The zlib format, as the RFC has it, or the bare deflate stream that some servers send instead."""

    def __init__(self) -> None:
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


class _Brotli(_Layer):
    def __init__(self) -> None:
        self._decompressor = brotli.Decompressor()

    def pieces(self, data: bytes) -> Iterator[bytes]:
        # Surplus bytes are refused by the library, in one piece with the end or in a later one: how they were cut must
        # not matter.
        # can_accept_more_data() may say yes while output is still inside: only an empty answer means there is none.
        while out := self._decompressor.process(data, output_buffer_limit=STEP_BYTES):
            yield out
            data = b""
        self.complete = self._decompressor.is_finished()


class _Zstd(_Layer):
    """One or more frames, fed in slices: the library bounds its output only by what goes in."""

    def __init__(self) -> None:
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


_LAYERS: dict[str, Callable[[], _Layer]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": lambda: _Tried(_Deflate),
    "br": lambda: _Tried(_Brotli),
    "zstd": lambda: _Tried(_Zstd),
}


def _instead(begun: bytes) -> _Layer | None:
    """What a beginning plainly is, whatever its label says; None: what the label says, for all that can be told."""
    if begun.startswith(GZIP_MAGIC):
        try:
            zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(begun, STEP_BYTES)
        except zlib.error:
            return None
        return _Gzip()
    # So much of a coded stream is never without a byte that no text has.
    return _Plain() if len(begun) >= JUDGED_BYTES and BINARY.search(begun) is None else None


def _inflated(inflate: "zlib._Decompress", data: bytes) -> Iterator[bytes]:
    """Everything zlib makes of `data`, a step at a time; a full step may leave output inside: ask again."""
    while True:
        out = inflate.decompress(data, STEP_BYTES)
        if out:
            yield out
        data = inflate.unconsumed_tail
        if inflate.eof or (not data and len(out) < STEP_BYTES):
            return
