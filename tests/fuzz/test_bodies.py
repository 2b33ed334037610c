"""Coded bodies of any bytes: at most the cap, one of three ends, whichever way the bytes were cut; always some text."""

import functools
import gzip
import itertools
import tracemalloc
import zlib

import brotli
import zstandard
from hypothesis import example
from hypothesis import strategies as st

from node import charsets, decode
from tests.fuzz import budget

CODINGS = ["gzip", "x-gzip", "deflate", "br", "zstd", "identity", "compress", "utf-8", "GZIP ", ""]
ENCODERS = {
    "gzip": functools.partial(gzip.compress, mtime=0),
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}
CAP = 1_000


def decoded(codings: list[str], pieces: list[bytes], cap: int = CAP) -> tuple[bytes, str | None]:
    body = decode.Body(codings, bytes_max=cap)
    for piece in pieces:
        body.feed(piece)
    body.finish()
    return body.data, body.fault


def cut(data: bytes, at: list[int]) -> list[bytes]:
    points = sorted({0, len(data), *(point % (len(data) + 1) for point in at)})
    return [data[one:other] for one, other in itertools.pairwise(points)]


@st.composite
def damaged(draw):
    """(codings, bytes): coded well, then changed, cut, doubled or lengthened; or nothing but bytes."""
    codings = draw(st.lists(st.sampled_from(sorted(ENCODERS)), max_size=3))
    data = draw(st.binary(max_size=300) | st.binary(max_size=30).map(lambda part: part * 60))
    for coding in codings:
        data = ENCODERS[coding](data)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["change", "cut", "double", "insert"])):
            case "change":
                data = data[:at] + draw(st.binary(max_size=2)) + data[at + 2 :]
            case "cut":
                data = data[:at]
            case "double":
                data += data[at:]
            case _:
                data = data[:at] + draw(st.binary(max_size=4)) + data[at:]
    if draw(st.booleans()):
        codings = draw(st.lists(st.sampled_from(CODINGS), max_size=4))
    return codings, data


@budget.tried(damaged(), st.lists(st.integers(0, 10_000), max_size=5), share=6)
@example((["br"], b"\x1a\x00"), [1])
@example((["deflate"], b'x\x9cc`@\x03\x02\xa3"\xa3"\xa3"\xa3"\xa8"\x00\x80\xe8\x00='), [15])
def test_a_body_ends_in_one_way_however_its_bytes_were_cut(coded, at):
    codings, data = coded
    whole, fault = decoded(codings, [data])
    assert len(whole) <= CAP
    assert fault in {None, "size", "encoding"}
    parted, parted_fault = decoded(codings, cut(data, at))
    # Past the cap and broken as well: which of the two is met first depends on the cuts.
    assert parted_fault == fault or {parted_fault, fault} == {"size", "encoding"}
    if "encoding" not in {fault, parted_fault}:
        assert parted == whole
    else:
        # How much came out before the fault was seen depends on the cuts, not what it was.
        assert parted.startswith(whole) or whole.startswith(parted)


@budget.tried(
    st.sampled_from(sorted(ENCODERS)), st.sampled_from(sorted(ENCODERS)), st.binary(min_size=1, max_size=3), share=0.1
)
def test_a_bomb_costs_the_cap(outer, inner, seed):
    bomb = ENCODERS[outer](ENCODERS[inner](seed * (8 * 1024 * 1024)))
    tracemalloc.start()
    data, fault = decoded([inner, outer], [bomb], cap=100_000)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (len(data), fault) == (100_000, "size")
    assert peak_bytes < 24 * 1024 * 1024


labels = st.sampled_from(
    [
        *charsets._ALIASES,
        "utf-7",
        "base64",
        "rot13",
        "hex",
        "idna",
        "punycode",
        "utf-16",
        "utf-32",
        "zlib",
        "unicode_escape",
    ]
)
types = (
    st.none()
    | st.text(max_size=40)
    | st.tuples(
        st.sampled_from(["text/html;charset=", 'text/html; a="b;charset=x"; charset="']), labels | st.text(max_size=20)
    ).map("".join)
)
pages = st.binary(max_size=200) | st.tuples(
    st.sampled_from([b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"", b"<?xml encoding='"]),
    st.sampled_from([b"<meta charset=", b"<!-- <meta charset=utf-7> --><meta content='x;charset=", b"<meta "]),
    labels.map(str.encode),
    st.binary(max_size=60),
).map(b"".join)


@budget.tried(pages, types, share=4)
def test_every_body_is_some_text_in_a_codec_of_the_list(body, content_type):
    charset = charsets.charset_of(body, content_type)
    assert charset in {*charsets._CODECS.values(), "utf-16-le", "utf-16-be"}
    text = charsets.text_of(body, charset)
    text.encode()  # no half of a pair is left in it
    assert len(text) <= len(body)
