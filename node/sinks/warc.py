"""The WARC sink: files that are rotated, `.open` while written, locked by node, and repaired after a crash.

All records of one request are one write, so that a crash leaves at most one request unfinished, and a group is never
parted over two files. A file is `PREFIX-YYYYMMDDhhmmssSSS-SERIAL-HOST.warc.gz`, HOST being the node's id.
"""

import asyncio
import datetime as dt
import fcntl
import importlib.metadata
import mmap
import os
import re
import threading
import zlib
from pathlib import Path
from typing import Final

from node.sinks import pages, warc_records
from shared import clock, config, errors, logs

OPEN: Final = ".open"
OFF_LOOP_BYTES: Final = 32 * 1024  # compressing so much takes a millisecond
APPEND_OFF_LOOP_BYTES: Final = 256 * 1024
BYTES_PER_LINK: Final = 80
READ_BYTES: Final = 32 * 1024
# What every member of ours begins with: no name, no time (RFC 1952 2.3).
MEMBER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00"
RECORD: Final = b"WARC/"

log = logs.get("node.sinks.warc")


class WarcSink:
    """One node's WARC files in a folder. Raises ConfigError where another process has them."""

    def __init__(self, folder: Path, *, node: str, archive: config.Archive, user_agent: str) -> None:
        self.folder = folder
        self._node = node
        self._archive = archive
        self._user_agent = user_agent
        self._appending = threading.Lock()
        """Held for one append or one rotation: what is below belongs to its holder."""
        self._file: int | None = None
        self._path = folder
        self._bytes = 0
        self._torn = False
        self._serial = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._claim: int | None = _claimed(folder / f".warc-{node}.lock", node)
        self.repaired = repair(folder, node)
        """Files that the last run left open, under the names they have now."""

    async def write(self, page: pages.Visited) -> None:
        """Archive one request before its commit (P2). Raises OSError, and then nothing of it stays."""
        if len(page.answer.raw) + BYTES_PER_LINK * len(page.links) > OFF_LOOP_BYTES:
            group = await asyncio.to_thread(warc_records.members, page)
        else:
            group = warc_records.members(page)
        if not group:
            return
        # Never wait for a lock on the loop: whoever holds it may be waiting for a disk.
        if len(group) > APPEND_OFF_LOOP_BYTES or not self._appending.acquire(blocking=False):
            await asyncio.to_thread(self._append_when_free, group)
            return
        try:
            if self._has_room():
                self._append(group)
                return
        finally:
            self._appending.release()
        await asyncio.to_thread(self._append_when_free, group)

    def sync(self) -> None:
        """Return when the disk holds every record that was written."""
        with self._appending:
            file = None if self._file is None else os.dup(self._file)
        if file is not None:  # a file that was rotated meanwhile is on the disk already
            try:
                os.fsync(file)
            finally:
                os.close(file)

    def close(self) -> None:
        """Give the last file its name; again is harmless."""
        with self._appending:
            self._finish()
            if self._claim is not None:
                os.close(self._claim)
                self._claim = None

    def _append_when_free(self, group: bytes) -> None:
        with self._appending:
            if not self._has_room():
                self._finish()
                self._open()
            self._append(group)

    def _has_room(self) -> bool:
        return self._file is not None and self._bytes < self._archive.warc_bytes_max

    def _append(self, group: bytes) -> None:
        """One group of records, whole or not at all."""
        assert self._file is not None, "there is room in it"
        if self._torn:
            self._cut()
        rest = memoryview(group)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:  # a full disk
            self._torn = True
            self._cut()
            raise
        self._bytes += len(group)

    def _cut(self) -> None:
        assert self._file is not None
        os.ftruncate(self._file, self._bytes)
        self._torn = False

    def _open(self) -> None:
        """Begin a file with its warcinfo."""
        if self._claim is None:
            raise ValueError(f"{self.folder}: the archive is closed")
        made_ms = clock.wall_ms()
        moment = dt.datetime.fromtimestamp(made_ms / 1000, dt.UTC)
        stamp = f"{moment:%Y%m%d%H%M%S}{made_ms % 1000:03}"
        name = f"{self._archive.prefix}-{stamp}-{self._serial:05}-{self._node}.warc.gz"
        self._serial += 1
        self._path = self.folder / name
        self._file = os.open(f"{self._path}{OPEN}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._bytes, self._torn = 0, False
        try:
            self._append(warc_records.warcinfo(name, made_ms=made_ms, said=self._about()))
        except OSError:  # a file that does not begin with its warcinfo is none
            file, self._file = self._file, None
            os.close(file)
            Path(f"{self._path}{OPEN}").unlink()
            raise
        _sync_folder(self.folder)

    def _finish(self) -> None:
        """Put what was written on the disk, then give the file its name."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            if self._torn:
                os.ftruncate(file, self._bytes)
            os.fsync(file)
        finally:
            os.close(file)
        Path(f"{self._path}{OPEN}").rename(self._path)
        _sync_folder(self.folder)

    def _about(self) -> list[warc_records.Field]:
        agent = self._user_agent
        return [
            ("software", f"crawlring/{_version()}"),
            ("format", "WARC File Format 1.1"),
            ("conformsTo", warc_records.CONFORMS_TO),
            ("robots", "obey"),
            ("operator", self._archive.operator or agent),
            ("http-header-user-agent", agent),
            ("isPartOf", self._archive.prefix),
            ("description", f"written by node {self._node}"),
        ]


def repair(folder: Path, node: str) -> tuple[Path, ...]:
    """Close what a crash of this node left open: cut behind its last whole record, and given its name.

    Where whole records stand behind a damaged part (a machine that lost its power) they are kept, and it goes.
    """
    ours = re.compile(rf"[A-Za-z0-9_]+-\d{{17}}-\d{{5,}}-{re.escape(node)}\.warc\.gz{re.escape(OPEN)}")
    done = []
    for path in sorted(folder.glob(f"*{OPEN}")):
        if ours.fullmatch(path.name) is None:
            continue
        size, kept = path.stat().st_size, _kept_whole(path)
        log.warning("warc.repaired", file=path.name, bytes=kept, cut_bytes=size - kept)
        if not kept:
            path.unlink()
            continue
        final = path.with_suffix("")
        path.rename(final)
        done.append(final)
    _sync_folder(folder)
    return tuple(done)


def whole(data: bytes | mmap.mmap) -> list[tuple[int, int]]:
    """Where whole records stand: (start, end) of each run of gzip members that decompress and begin as records do."""
    runs: list[tuple[int, int]] = []
    at = 0
    while 0 <= at < len(data):
        end = _member_end(data, at)
        if end is None:
            at = data.find(MEMBER, at + 1)
            continue
        if runs and runs[-1][1] == at:
            runs[-1] = (runs[-1][0], end)
        else:
            runs.append((at, end))
        at = end
    return runs


def _member_end(data: bytes | mmap.mmap, start: int) -> int | None:
    unpack, at, first = zlib.decompressobj(warc_records.GZIP), start, b""
    while not unpack.eof:
        part = data[at : at + READ_BYTES]
        if not part:
            return None
        try:
            text = unpack.decompress(part)
        except zlib.error:
            return None
        first = first or text[: len(RECORD)]
        at += len(part)
    return at - len(unpack.unused_data) if first == RECORD else None


def _kept_whole(path: Path) -> int:
    """Leave nothing but whole records in a file; returns its size then."""
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return 0
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            runs = whole(data)
            if len(runs) > 1 or (runs and runs[0][0]):
                _carve(path, data, runs)
                return sum(end - start for start, end in runs)
        end = runs[0][1] if runs else 0
        if end < size:
            file.truncate(end)
        os.fsync(file.fileno())
    return end


def _carve(path: Path, data: mmap.mmap, runs: list[tuple[int, int]]) -> None:
    """Replace a file by its whole records."""
    spare = path.with_suffix(".part")
    with spare.open("wb") as file:
        for start, end in runs:
            for at in range(start, end, 1 << 20):
                file.write(data[at : min(at + (1 << 20), end)])
        file.flush()
        os.fsync(file.fileno())
    spare.replace(path)


def _claimed(path: Path, node: str) -> int:
    """Lock the node's part of the folder until the process ends; raises ConfigError."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(file)
        raise errors.ConfigError(f"another process writes WARC files as node {node} in {path.parent}") from error
    return file


def _sync_folder(folder: Path) -> None:
    """A new name is on the disk when its folder is."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _version() -> str:
    try:
        return importlib.metadata.version("crawlring")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
