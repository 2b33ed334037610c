"""What a process writes for others to read: its event log, and files of lines that survive a crash."""

import contextlib
import io
import logging
import os
import sys
from pathlib import Path
from typing import Any, Final, TextIO, cast

import structlog

from shared import records

_REPAIR_BLOCK: Final = 64 * 1024

_bound: dict[str, Any] = {}


def configure(*, stream: TextIO | None = None, level: str = "info", **bound: Any) -> None:
    """Set up the process's event log: JSON lines, or readable text on a terminal (NO_COLOR honoured).

    `bound` fields (node, epoch) stand in every event.
    """
    out = stream or sys.stderr
    _bound.clear()
    bind(**bound)
    readable = out.isatty()
    processors: list[Any] = [
        _add_bound,
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if readable:
        processors.append(structlog.dev.ConsoleRenderer(colors=not os.environ.get("NO_COLOR")))
    else:
        processors += [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(file=cast("TextIO", _Forgiving(out))),
        cache_logger_on_first_use=False,
    )


def bind(**fields: Any) -> None:
    """Fields of every later event of this process, whatever its task: the epoch, once it is known."""
    _bound.update(fields)


def get(name: str) -> Any:
    """The logger of one module; call it with an event's name and its fields."""
    return structlog.get_logger(module=name)


def _add_bound(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    return {**_bound, **event}


class _Forgiving(io.TextIOBase):
    """A stream of events; one that cannot be written is dropped: nothing that goes on depends on it."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


class LinesFile:
    """A file of lines that only grows: each line is handed to the kernel whole before `write` returns.

    A crash leaves at most one unfinished last line, and the next opening cuts it off.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.repaired_bytes = _repair(path)
        """How much of an unfinished line was cut off at the opening."""
        self._file: io.FileIO | None = io.FileIO(path, "ab")

    def write(self, line: bytes) -> None:
        """Append one line; the newline is added here. Raises OSError, and then nothing of the line stays."""
        if self._file is None:
            raise ValueError(f"{self.path} is closed")
        rest = line + b"\n"
        size = len(rest)
        try:
            while rest:
                rest = rest[self._file.write(rest) or 0 :]
        except OSError:
            # A full disk: half a line would join the next one.
            self._file.truncate(self._file.seek(0, os.SEEK_END) - (size - len(rest)))
            raise

    def sync(self) -> None:
        """Return when the disk holds what was written."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file; again is harmless."""
        if self._file is not None:
            self._file.close()
            self._file = None


class CrawlLog:
    """`crawl-<node>.jsonl`: one line a request, the evidence that `audit` reads."""

    def __init__(self, path: Path) -> None:
        self.lines = LinesFile(path)

    def write(self, line: records.CrawlLine) -> None:
        self.lines.write(records.encode_json(line))

    def close(self) -> None:
        self.lines.close()


def _repair(path: Path) -> int:
    """Cut the file behind its last newline; returns how many bytes went."""
    try:
        file = path.open("r+b")
    except FileNotFoundError:
        return 0
    with file:
        size = end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - _REPAIR_BLOCK)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        if end < size:
            file.truncate(end)
        return size - end
