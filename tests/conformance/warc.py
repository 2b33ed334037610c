"""warcio's sample files, good and bad: what `crawlring warc` says of each beside what warcio's own commands say."""

import argparse
import contextlib
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from warcio import checker, exceptions, indexer, statusandheaders

from coordinator import warc_files
from tests import corpus
from tests.conformance.corpora import Corpus, Row

FIELDS = "offset,length,warc-type,warc-target-uri,warc-date,http:status"
FILES = (
    "bad.arc",
    "example-bad-non-chunked.warc.gz",
    "example-bad.warc.gz.bad",
    "example-digest.warc",
    "example-iana.org-chunked.warc",
    "example-resource.warc.gz",
    "example-space-in-target-uri.warc.gz",
    "example-space-in-url.arc",
    "example-trunc.warc",
    "example-wget-bad-target-uri.warc.gz",
    "example-wrong-chunks.warc.gz",
    "example.arc",
    "example.arc.gz",
    "example.warc",
    "example.warc.gz",
    "post-test.warc.gz",
)
# Damage that `warcio check` passes over, only warns of, or meets later: a length that is not that of the record.
STRICTER = {
    "example-trunc.warc": "more bytes than",
    "example-space-in-url.arc": "12 bytes are missing",
    "example-wrong-chunks.warc.gz": "1270 bytes are missing",
}


def samples() -> Iterator[Row]:
    """Digest verdicts and the list of records are warcio's; so is whether a file can be read to its end."""
    for name in FILES:
        corpus.read(f"warc/warcio/{name}")
        path = corpus.FOLDER / "warc" / "warcio" / name
        logging.getLogger("warcio").setLevel(logging.ERROR)
        found = list(warc_files.entries(path))
        ours: dict[str, Any] = {
            "damaged": any(entry.digest_problems or entry.type is None for entry in found),
            "records": [
                [str(entry.offset), entry.type, entry.url, entry.date, entry.status]
                for entry in found
                if entry.type is not None
            ],
        }
        theirs = {"damaged": _damaged(path), "records": _records(path)}
        beyond = [problem for entry in found if entry.type for problem in entry.problems]
        expected = STRICTER.get(name)
        agreed = ours == theirs and ([expected in one for one in beyond] == [True] * bool(expected))
        yield Row(name, agreed, "" if agreed else f"{name}: warcio {theirs}, we {ours} and {beyond}")


def _damaged(path: Path) -> bool:
    judge = checker.Checker(argparse.Namespace(inputs=[str(path)], verbose=False))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return bool(judge.process_all())


def _records(path: Path) -> list[list[str | None]]:
    out = io.StringIO()
    index = indexer.Indexer(FIELDS, [str(path)], None)
    with (
        path.open("rb") as file,
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.suppress(exceptions.ArchiveLoadFailed, statusandheaders.StatusAndHeadersParserException),
    ):
        index.process_one(file, out, str(path))
    rows = [json.loads(line) for line in out.getvalue().splitlines()]
    names = ("offset", "warc-type", "warc-target-uri", "warc-date", "http:status")
    return [[row.get(name) for name in names] for row in rows]


CORPORA = (
    Corpus(
        name="warcio samples",
        source="warc/warcio",
        rows=samples,
        peers="warcio 1.8.1 itself",
        note="Our reader stands on warcio's own; what is judged is that nothing is lost or added on the way, and that a "
        "damaged file is told as damaged. 3 files are told in more words than warcio has: a length that is not the record's",
    ),
)
