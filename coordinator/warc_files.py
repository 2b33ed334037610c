"""What stands in a WARC or ARC file, and whether it is whole, by warcio's reader.

Digests are judged as `warcio check` judges them. Beyond that a record must be as long as it says, and a gzip member
must end: a file cut in the middle of its last record has no digest that fails.
"""

import contextlib
import io
import logging
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from warcio import archiveiterator, exceptions, recordloader, statusandheaders

from shared import errors, records

READ_BYTES = 1 << 20
# What warcio's parsers raise for bytes that are no records; a record without a URL is an AttributeError.
UNREADABLE = (
    exceptions.ArchiveLoadFailed,
    statusandheaders.StatusAndHeadersParserException,
    zlib.error,
    EOFError,
    ValueError,
    AttributeError,
    AssertionError,
)


class Entry(records.Record, frozen=True, kw_only=True):
    """One record as `warc ls` tells it."""

    file: str
    offset: int
    length: int
    """Of the record in the file, compressed where the file is."""
    type: str | None
    date: str | None = None
    url: str | None = None
    status: str | None = None
    mime: str | None = None
    payload: str | None = None
    """Digest."""
    profile: str | None = None
    """Of a revisit: identical-payload-digest or server-not-modified."""
    refers_to: str | None = None
    """URL of what a revisit stands for."""
    truncated: str | None = None
    digest_problems: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """Of its structure."""


class Checked(records.Record, frozen=True, kw_only=True):
    """What `warc check` says of one file."""

    file: str
    records: int = 0
    problems: tuple[str, ...] = ()


def entries(path: Path) -> Iterator[Entry]:
    """Each record of a file in its order; one that is no record ends it with an entry of no type.

    Raises ConfigError where the file cannot be opened.
    """
    logging.getLogger("warcio").setLevel(logging.ERROR)  # it warns of what it puts right
    try:
        file = path.open("rb")
    except OSError as error:
        raise errors.ConfigError(f"cannot read {path}: {error}") from error
    with file:
        yield from _entries(file, path.name)


def check(path: Path) -> Checked:
    """Every problem of one file."""
    count, problems = 0, []
    for entry in entries(path):
        count += entry.type is not None
        problems += [f"offset {entry.offset}: {said}" for said in (*entry.digest_problems, *entry.problems)]
    if not count and not problems:
        problems.append("no record")
    return Checked(file=path.name, records=count, problems=tuple(problems))


def _entries(file: BinaryIO, name: str) -> Iterator[Entry]:
    walk = archiveiterator.ArchiveIterator(file, check_digests=True, arc2warc=True)
    offset = 0
    while True:
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                record = next(walk, None)
                if record is None:
                    break
                entry = _entry(walk, record, name)
        except UNREADABLE as error:
            problem = " ".join(str(error).split()) or type(error).__name__
            yield Entry(file=name, offset=offset, length=0, type=None, problems=(f"no record: {problem}",))
            return
        offset = entry.offset + entry.length
        yield entry
    # A record that is cut within its own head is none to the reader: it just ends there.
    file.seek(offset)
    if file.read(READ_BYTES).strip():
        yield Entry(file=name, offset=offset, length=0, type=None, problems=("what follows is no whole record",))


def _entry(walk: Any, record: Any, name: str) -> Entry:
    fields, http = record.rec_headers, record.http_headers
    missing = _drain(record)
    before = walk.err_count
    unpack = walk.reader.decompressor
    offset, length = walk.get_record_offset(), walk.get_record_length()
    problems = []
    if missing:
        problems.append(f"{missing} bytes are missing at its end")
    if walk.err_count > before:
        problems.append("more bytes than its Content-Length says")
    if unpack is not None and not unpack.eof:
        problems.append("its gzip member does not end")
    profile = fields.get_header("WARC-Profile")
    return Entry(
        file=name,
        offset=offset,
        length=length,
        type=record.rec_type,
        date=fields.get_header("WARC-Date"),
        url=fields.get_header("WARC-Target-URI"),
        status=http.get_statuscode() if http and record.rec_type in {"response", "revisit"} else None,
        mime=_mime(record),
        payload=fields.get_header("WARC-Payload-Digest"),
        profile=profile.rpartition("/")[2] if profile else None,
        refers_to=fields.get_header("WARC-Refers-To-Target-URI"),
        truncated=fields.get_header("WARC-Truncated"),
        digest_problems=tuple(record.digest_checker.problems) if record.digest_checker.passed is False else (),
        problems=tuple(problems),
    )


def _drain(record: recordloader.ArcWarcRecord) -> int:
    """Read a record to its end, so that its digests are judged; how many bytes it lacks."""
    while record.raw_stream.read(READ_BYTES):
        pass
    return int(getattr(record.raw_stream, "limit", 0))


def _mime(record: recordloader.ArcWarcRecord) -> str | None:
    source = record.http_headers if record.rec_type in {"response", "revisit"} else record.rec_headers
    said = source.get_header("Content-Type") if source else None
    return said.partition(";")[0].strip() if said else None
