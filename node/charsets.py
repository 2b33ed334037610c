"""Which codec a page's bytes are read with, by the order that browsers follow; pure.

Source: the WHATWG encoding standard for labels, HTML's order for the rest: BOM, transport, the page's own word.
"""

import codecs
import re
from typing import Final

DECLARED_BYTES: Final = 16_384
"""HTML wants the declaration within 1,024 bytes, but browsers change over when they meet it later; few come later."""

_WS: Final = rb"\t\n\f\r "
# One attribute, as "prescan a byte stream" reads it; a match that reaches the end of the bytes is an unfinished tag.
_ATTRIBUTE = re.compile(
    rb"[%(ws)s/]*+(?P<name>[^%(ws)s/>][^%(ws)s/>=]*+)"
    rb"(?:[%(ws)s]*+=[%(ws)s]*+(?:\"(?P<double>[^\"]*+)(?:\"|\Z)|'(?P<single>[^']*+)(?:'|\Z)"
    rb"|(?=>)|(?P<bare>[^%(ws)s>\"'][^%(ws)s>]*+)|\Z))?+" % {b"ws": _WS}
)
_TAG = re.compile(rb"(?:(?P<meta>meta(?=[%(ws)s/]))|/?[a-z][^%(ws)s>]*+)" % {b"ws": _WS}, re.IGNORECASE)
_IN_CONTENT = re.compile(
    rb"charset[%(ws)s]*+=[%(ws)s]*+(?:\"([^\"]*)\"|'([^']*)'|([^%(ws)s;\"'][^%(ws)s;]*+))" % {b"ws": _WS}, re.IGNORECASE
)
_XML_CHARSET = re.compile(rb"^\s{0,64}<\?xml[^>]{0,256}?encoding\s{0,16}=\s{0,16}[\"']([A-Za-z0-9_:.-]{1,40})[\"']")
_LABEL = re.compile(r"[a-z0-9_:.+-]{1,40}")
_LABEL_ENDS: Final = "\t\n\f\r "
# One parameter of a Content-Type; a quoted value may hold what looks like another parameter.
_PARAMETER = re.compile(r";\s*([A-Za-z0-9_-]{1,40})\s*=\s*(\"[^\"]*\"?|[^;,\"]*)")
_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))

# Python's canonical codec name -> the codec that browsers write in for it. What is not here is no charset of a web
# page (utf-7 and Python's own byte transforms among them).
_CODECS: Final = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gbk",
    "gbk": "gbk",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    # A page that can be read up to its own meta element is not UTF-16.
    "utf-16": "utf-8",
    "utf-16-le": "utf-8",
    "utf-16-be": "utf-8",
} | {
    name: name
    for name in (
        *(
            "utf-8",
            "gb18030",
            "big5hkscs",
            "cp932",
            "cp949",
            "euc_jp",
            "iso2022_jp",
            "koi8-r",
            "koi8-u",
            "mac-roman",
        ),
        *("cp866", "cp874", "mac-cyrillic"),
        *(f"cp125{digit}" for digit in range(9)),
        *(f"iso8859-{part}" for part in (2, 3, 4, 5, 6, 7, 8, 10, 13, 14, 15, 16)),
    )
}


# Browsers read some encodings with a larger one than they write.
_READERS: Final = {"gbk": "gb18030"}

# Labels that browsers know and Python does not.
_ALIASES: Final = {
    "unicode-1-1-utf-8": "utf-8",
    "iso-8859-6-e": "iso-8859-6",
    "iso-8859-6-i": "iso-8859-6",
    "iso-8859-8-e": "iso-8859-8",
    "iso-8859-8-i": "iso-8859-8",
    "logical": "iso-8859-8",
    "visual": "iso-8859-8",
    "koi": "koi8-r",
    "koi8": "koi8-r",
    "koi8-ru": "koi8-u",
    "mac": "mac-roman",
    "dos-874": "cp874",
    "windows-874": "cp874",
    "x-mac-ukrainian": "mac-cyrillic",
    "gb_2312": "gb18030",
    "gb_2312-80": "gb18030",
    "cn-big5": "big5hkscs",
    "x-x-big5": "big5hkscs",
    "windows-31j": "cp932",
    "x-sjis": "cp932",
    "iso-ir-149": "cp949",
    "ks_c_5601-1989": "cp949",
    "ksc_5601": "cp949",
    "windows-949": "cp949",
    "unicode": "utf-16",
    "ucs-2": "utf-16",
}


def charset_of(body: bytes, content_type: str | None) -> str:
    """The Python codec that a body is read with."""
    return reader_of(encoding_of(body, content_type))


def encoding_of(body: bytes, content_type: str | None) -> str:
    """The codec of a body: BOM, Content-Type, its own word, UTF-8 if it is that, else windows-1252.

    It is the one that the queries of the page's links are written in; `reader_of` gives the one to read it with.
    """
    for mark, name in _BOMS:
        if body.startswith(mark):
            return name
    return in_header(content_type or "") or declared_in(body) or ("utf-8" if _is_utf8(body) else "cp1252")


def reader_of(encoding: str) -> str:
    """The Python codec that a body in this encoding is read with."""
    return _READERS.get(encoding, encoding)


def declared_in(body: bytes) -> str | None:
    """The codec that a page declares near its beginning: HTML's "prescan a byte stream", then XML's own way."""
    head = body[:DECLARED_BYTES]
    if b"charset" not in head and b"charset" not in head.lower():
        return _in_xml(head)
    at = 0
    while (at := head.find(b"<", at)) >= 0:
        at += 1
        if head.startswith(b"!--", at):
            end = head.find(b"-->", at + 1)  # the two dashes that open may be those that close
            at = end + 3 if end >= 0 else len(head)
        elif tag := _TAG.match(head, at):
            attributes, at = _attributes(head, tag.end())
            codec = _of_meta(attributes) if tag["meta"] else None
            if codec is not None and at < len(head):
                return codec
        elif head[at : at + 1] in {b"!", b"/", b"?"}:
            end = head.find(b">", at)
            at = end if end >= 0 else len(head)
    return _in_xml(head)


def _attributes(head: bytes, at: int) -> tuple[dict[bytes, bytes], int]:
    """A tag's attributes, the first of each name counting, and where they end: at the end of all if unfinished."""
    found: dict[bytes, bytes] = {}
    while one := _ATTRIBUTE.match(head, at):
        at = one.end()
        found.setdefault(one["name"].lower(), one["double"] or one["single"] or one["bare"] or b"")
    return found, at if head.find(b">", at) >= 0 else len(head)


def _of_meta(attributes: dict[bytes, bytes]) -> str | None:
    """What a meta element declares: its charset, or the content of one that stands for Content-Type."""
    if b"charset" in attributes:
        return codec_of(attributes[b"charset"].decode("latin-1"), in_page=True)
    if attributes.get(b"http-equiv", b"").lower() != b"content-type":
        return None
    found = _IN_CONTENT.search(attributes.get(b"content", b""))
    label = (found[1] or found[2] or found[3] or b"") if found else b""
    return codec_of(label.decode("latin-1"), in_page=True)


def _in_xml(head: bytes) -> str | None:
    found = _XML_CHARSET.search(head)
    return codec_of(found[1].decode("ascii"), in_page=True) if found else None


def codec_of(label: str, *, in_page: bool) -> str | None:
    """The Python codec of a charset label, None for what is none; UTF-16 counts only outside the page.

    It is the one to write in; see `reader_of`.
    """
    label = label.strip(_LABEL_ENDS).lower()
    if not _LABEL.fullmatch(label):  # Python's look-up would read any other character as an underscore
        return None
    try:
        name = codecs.lookup(_ALIASES.get(label, label.removeprefix("x-"))).name
    except (LookupError, ValueError):
        return None
    if not in_page and name.startswith("utf-16"):
        return "utf-16-be" if name == "utf-16-be" else "utf-16-le"
    return _CODECS.get(name)


def text_of(body: bytes, charset: str) -> str:
    """The body as text, its BOM left out, replacement characters for what is broken."""
    return body.decode(reader_of(charset), "replace").removeprefix("\ufeff")


def in_header(content_type: str) -> str | None:
    """The codec that a Content-Type names."""
    for name, value in _PARAMETER.findall(content_type):
        codec = codec_of(value.strip("\"' "), in_page=False) if name.lower() == "charset" else None
        if codec is not None:
            return codec
    return None


def _is_utf8(body: bytes) -> bool:
    """Whether a body is UTF-8, but for a last character that a limit may have cut."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(body)
    except UnicodeDecodeError:
        return False
    return True
