"""Decoding gives what was encoded, up to the cap, however the bytes come; faults are marked, never raised."""

import gzip
import os
import zlib

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from node import decode

TEXT = b"".join(b"line %d of a page\n" % number for number in range(5_000))


def raw_deflate(data: bytes) -> bytes:
    deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return deflate.compress(data) + deflate.flush()


ENCODERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=4),
    "zstd": zstandard.ZstdCompressor().compress,
}


def decoded(data: bytes, *codings: str, cap: int = 10_000_000, step: int = 4_096) -> tuple[bytes, str | None]:
    body = decode.Body(codings, bytes_max=cap)
    for begin in range(0, len(data), step):
        body.feed(data[begin : begin + step])
    body.finish()
    return body.data, body.fault


@given(
    data=st.binary(max_size=2_000) | st.just(TEXT),
    codings=st.lists(st.sampled_from(sorted(ENCODERS)), max_size=3),
    step=st.integers(1, 3_000),
)
@settings(max_examples=60, deadline=None)
def test_stacks_of_codings_are_undone(data: bytes, codings: list[str], step: int) -> None:
    sent = data
    for coding in codings:
        sent = ENCODERS[coding](sent)
    assert decoded(sent, *codings, step=step) == (data, None)


@given(data=st.binary(max_size=500), codings=st.lists(st.sampled_from(sorted(ENCODERS)), min_size=1, max_size=3))
@settings(max_examples=100, deadline=None)
def test_no_bytes_raise(data: bytes, codings: list[str]) -> None:
    out, fault = decoded(data, *codings, cap=10_000)
    assert len(out) <= 10_000
    assert fault in {None, "size", "encoding"}


@pytest.mark.parametrize("coding", sorted(ENCODERS))
@pytest.mark.parametrize("cap", [0, 1, 1_000, len(TEXT) - 1])
def test_output_stops_at_the_cap(coding: str, cap: int) -> None:
    assert decoded(ENCODERS[coding](TEXT), coding, cap=cap) == (TEXT[:cap], "size")


@pytest.mark.parametrize("coding", sorted(ENCODERS))
def test_output_of_exactly_the_cap_is_whole(coding: str) -> None:
    assert decoded(ENCODERS[coding](TEXT), coding, cap=len(TEXT)) == (TEXT, None)


@pytest.mark.parametrize("coding", sorted(ENCODERS))
def test_a_stream_cut_short_keeps_what_came(coding: str) -> None:
    sent = ENCODERS[coding](os.urandom(200_000))
    out, fault = decoded(sent[:-3_000], coding)
    assert fault == "encoding"
    assert len(out) >= 50_000


@pytest.mark.parametrize("coding", sorted(ENCODERS))
def test_nothing_received_is_an_empty_whole(coding: str) -> None:
    assert decoded(b"", coding) == (b"", None)


def test_deflate_without_its_wrapper_is_understood() -> None:
    assert decoded(raw_deflate(TEXT), "deflate") == (TEXT, None)
    assert decoded(raw_deflate(TEXT), "deflate", step=1) == (TEXT, None)


@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_members_and_frames_one_after_another_are_one_body(step: int) -> None:
    for coding in ("gzip", "zstd"):
        assert decoded(ENCODERS[coding](b"one ") + ENCODERS[coding](b"two"), coding, step=step) == (b"one two", None)


def test_padding_after_gzip_is_ignored() -> None:
    assert decoded(gzip.compress(TEXT) + bytes(100), "gzip") == (TEXT, None)


@pytest.mark.parametrize("data", [b"plain text", b"\x1f plain", b"p"])
def test_plain_bytes_labelled_gzip_are_used_as_they_are(data: bytes) -> None:
    assert decoded(data, "gzip", step=1) == (data, None)
    assert decoded(gzip.compress(data), "gzip", "gzip") == (data, None)


@pytest.mark.parametrize(
    ("codings", "body", "fault"),
    [
        (("utf-8",), b"text", None),
        (("identity", "none", ""), b"text", None),
        (("compress",), b"", "encoding"),
        (("gzip", "bzip2"), b"", "encoding"),
        (("gzip",) * 6, b"", "encoding"),
    ],
)
def test_unknown_words_change_nothing_and_known_riddles_are_no_text(
    codings: tuple[str, ...], body: bytes, fault: str | None
) -> None:
    assert decoded(b"text", *codings) == (body, fault)


def zstd_rle_bomb(megabytes: int) -> bytes:
    """Run-length blocks: four bytes become 128 KiB each, the worst that the format allows."""
    block = (131_072 << 3 | 1 << 1).to_bytes(3, "little") + b"x"
    return zstandard.FRAME_HEADER + b"\x00\x38" + block * (megabytes * 8)


@pytest.mark.parametrize(
    ("coding", "bomb"),
    [
        ("gzip", gzip.compress(bytes(30_000_000))),
        ("br", brotli.compress(bytes(30_000_000), quality=1)),
        ("zstd", zstandard.ZstdCompressor().compress(bytes(30_000_000))),
        ("zstd", zstd_rle_bomb(200)),
    ],
)
def test_a_bomb_costs_the_cap_and_not_its_size(coding: str, bomb: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    body = decode.Body((coding,), bytes_max=1_000_000)
    made = 0
    layer = body._layers[0]
    pieces = layer.pieces

    def counted(data: bytes):
        nonlocal made
        for piece in pieces(data):
            made += len(piece)
            yield piece

    monkeypatch.setattr(layer, "pieces", counted)
    body.feed(bomb)
    assert (len(body.data), body.fault) == (1_000_000, "size")
    assert made < 1_000_000 + 11_000_000, "never more than a step beyond the cap"


def test_a_layer_that_swells_without_giving_anything_is_cut_off() -> None:
    """Ten million empty gzip members, packed: the inner layer gives no byte, the outer one for ever."""
    inner = gzip.compress(b"") * 1_000_000
    body = decode.Body(("gzip", "gzip"), bytes_max=1_000_000)
    body.feed(gzip.compress(inner))
    assert body.fault == "size"


# What a server may send under a label that is another's.
OTHERS = {
    "text": TEXT,
    "little text": b"plain",
    "text of another alphabet": "\u0442\u0435\u043a\u0441\u0442 ".encode() * 200,
    **{f"gzip {mtime}": gzip.compress(TEXT, mtime=mtime) for mtime in (0, 1_796_000_000)},
    **{f"little gzip {mtime}": gzip.compress(b"x", mtime=mtime) for mtime in (0, 7, 1_796_000_000, 1_796_000_255)},
}


@pytest.mark.parametrize("step", [1, 100, 1_000_000])
@pytest.mark.parametrize("label", ["deflate", "br", "zstd"])
@pytest.mark.parametrize("name", OTHERS)
def test_a_wrong_label_is_seen_through_and_noted(name: str, label: str, step: int) -> None:
    sent = OTHERS[name]
    body = decode.Body((label,), bytes_max=10_000_000)
    for begin in range(0, len(sent), step):
        body.feed(sent[begin : begin + step])
    body.finish()
    expected = gzip.decompress(sent) if "gzip" in name else sent
    assert (body.data, body.fault, body.note) == (expected, None, decode.MISLABELLED)


@pytest.mark.parametrize("step", [1, 100, 1_000_000])
def test_zstd_labelled_gzip_is_read_and_noted(step: int) -> None:
    sent = ENCODERS["zstd"](TEXT)
    body = decode.Body(("gzip",), bytes_max=10_000_000)
    for begin in range(0, len(sent), step):
        body.feed(sent[begin : begin + step])
    body.finish()
    assert (body.data, body.fault, body.note) == (TEXT, None, decode.MISLABELLED)


@pytest.mark.parametrize("step", [1, 100, 1_000_000])
@pytest.mark.parametrize("label", ["deflate", "br", "zstd"])
def test_bytes_of_no_coding_that_are_no_text_are_never_stored_as_text(label: str, step: int) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 10
    assert decoded(picture, label, step=step) == (b"", "encoding")


@pytest.mark.parametrize("coding", sorted(ENCODERS))
def test_a_right_label_is_not_noted(coding: str) -> None:
    body = decode.Body((coding,), bytes_max=10_000_000)
    body.feed(ENCODERS[coding](TEXT))
    body.finish()
    assert (body.data, body.note) == (TEXT, None)


def test_a_wrong_label_below_another_coding_is_seen_through_too() -> None:
    assert decoded(gzip.compress(TEXT), "br", "gzip") == (TEXT, None)
    assert decoded(gzip.compress(b"x"), "br", "gzip") == (b"x", None)


def test_a_bomb_under_a_wrong_label_costs_the_cap() -> None:
    assert decoded(gzip.compress(bytes(30_000_000)), "br", cap=100_000) == (bytes(100_000), "size")
