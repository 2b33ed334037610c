"""A link's query in the bytes of its page's encoding, as browsers send it; pure string work.

Source: the URL standard, "percent-encode after encoding", and the encoders of the encoding standard. A page in
windows-1251 that links to `?q=привет` means the bytes of windows-1251, and its server answers another page to UTF-8.
Encodings are named by Python's codecs. Where a codec writes a character otherwise than the standard's encoder, the
tables here say so. Known to differ: `euc_jp` has no NEC row 13 (circled digits), `koi8-u` two Belarusian letters.
"""

import codecs
import unicodedata
from typing import Final

ENDS: Final = "".join(map(chr, range(0x21)))  # what the URL parser strips from both ends: C0 controls and the space
_INNER: Final = str.maketrans("", "", "\t\n\r")  # and drops from within

# The special-query percent-encode set; every other ASCII byte stays as it is, in the middle of a character too.
_WRITTEN: Final = tuple(
    chr(byte) if 0x20 < byte < 0x7F and byte not in b"\"#<>'" else f"%{byte:02X}" for byte in range(256)
)
_ERRORS: Final = "crawlring.reference"
_AS_UTF8: Final = frozenset({"utf-8", "utf-16-le", "utf-16-be"})  # UTF-16 has no encoder: its pages' queries are UTF-8

_JIS: Final = {0xFF0D: 0x2212, 0xFF5E: 0x301C, 0x2225: 0x2016, 0xFFE0: 0xA2, 0xFFE1: 0xA3, 0xFFE2: 0xAC}
_HALF_WIDTH: Final = {code: ord(unicodedata.normalize("NFKC", chr(code))) for code in range(0xFF61, 0xFF9E)}


def _reference(code: int) -> str:
    """A character reference, escaped: what stands for a character that the encoding lacks."""
    return f"%26%23{0xFFFD if 0xD800 <= code < 0xE000 else code}%3B"


# Characters to replace before Python's codec writes them, by codec.
_FIRST: Final[dict[str, dict[int, int | str]]] = {
    "cp932": {0xA5: "\\", 0x203E: "~", 0x2212: 0xFF0D},
    "euc_jp": {0xA5: "\\", 0x203E: "~", **_JIS},
    "iso2022_jp": {
        **_JIS,
        **_HALF_WIDTH,
        0xFF9E: 0x309B,
        0xFF9F: 0x309C,
        **dict.fromkeys((0x0E, 0x0F, 0x1B), _reference(0xFFFD)),
    },
    "gb18030": {0xE5E5: _reference(0xE5E5)},
}
# Lead bytes of what Python's codec can write and the standard's encoder cannot: Big5's Hong Kong rows, JIS X 0212.
_UNWRITTEN: Final = {"big5hkscs": range(0x80, 0xA1), "euc_jp": range(0x8F, 0x90)}


def written(link: str, encoding: str) -> str:
    """The link with its query escaped in `encoding`; the rest is left to the URL parser, which writes UTF-8."""
    if (link.isascii() and encoding != "iso2022_jp") or encoding in _AS_UTF8:
        return link
    before, mark, rest = link.partition("?")
    if not mark:
        return link
    query = rest.partition("#")[0] if "#" in rest else rest.rstrip(ENDS)
    return f"{before}?{escaped(query.translate(_INNER), encoding)}"


def escaped(query: str, encoding: str) -> str:
    """A query's text as the bytes of an encoding, percent-encoded; what the encoding lacks becomes `&#N;`, escaped."""
    text = query.translate(_FIRST[encoding]) if encoding in _FIRST else query
    unwritten = _UNWRITTEN.get(encoding)
    if unwritten is not None:
        text = "".join(_unless(char, encoding, unwritten) for char in text)
    return "".join([_WRITTEN[byte] for byte in text.encode(encoding, _ERRORS)])


def _unless(char: str, encoding: str, unwritten: range) -> str:
    """The character, or its reference where its first byte is one that the standard never writes."""
    if char.isascii() or char.encode(encoding, "ignore")[:1] not in {bytes([byte]) for byte in unwritten}:
        return char
    return _reference(ord(char))


def _on_error(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeEncodeError)  # the handler is named for encoding alone
    char = error.object[error.start]
    if char == "\u20ac" and error.encoding == "gbk":
        return b"\x80", error.start + 1
    return _reference(ord(char)), error.start + 1


codecs.register_error(_ERRORS, _on_error)
