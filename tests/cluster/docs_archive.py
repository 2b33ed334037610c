"""The WARC files of the crawl of real pages, held against the nodes' own crawl logs and sha1sum, by warcio alone."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warcio import archiveiterator

from tests.cluster import docs_judge

CHECK_S = 900.0
ANSWERS = ("response", "revisit")


@dataclass(frozen=True, slots=True)
class Entry:
    """What is judged of a record."""

    type: str
    url: str | None
    status: int | None
    payload: str | None
    profile: str | None


def entries(files: Iterable[Path]) -> Iterator[Entry]:
    for file in files:
        with file.open("rb") as opened:
            for record in archiveiterator.ArchiveIterator(opened):
                said, http = record.rec_headers, record.http_headers
                status = http.get_statuscode() if http and record.rec_type in ANSWERS else None
                profile = said.get_header("WARC-Profile")
                yield Entry(
                    record.rec_type,
                    said.get_header("WARC-Target-URI"),
                    int(status) if status else None,
                    said.get_header("WARC-Payload-Digest"),
                    profile.rpartition("/")[2] if profile else None,
                )


def checked(files: Sequence[Path], folder: Path) -> docs_judge.Verdict:
    """`warcio check` of every file, none of which is still open."""
    command = [sys.executable, "-m", "warcio.cli", "check", *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_S, check=False)
    left = [path.name for path in folder.glob("*.open")]
    size = sum(file.stat().st_size for file in files)
    said = done.stdout.strip().splitlines()[-3:] if done.returncode else []
    return docs_judge.Verdict(
        bool(files) and done.returncode == 0 and not left,
        f"warcio check: {len(files)} files of {size / 1e6:,.0f} MB, exit status {done.returncode}, {len(left)} left open"
        + "".join(f"; {line}" for line in said),
    )


def against_logs(
    found: Sequence[Entry], requests: Iterable[dict[str, Any]], pages: Iterable[dict[str, Any]], digests: dict[str, str]
) -> list[docs_judge.Verdict]:
    """Each answer of the crawl logs is one answer in the archive, with its request and metadata; `digests` by URL."""
    logged = Counter((line["url"], line["status"]) for line in requests if line["status"] is not None)
    kept = Counter((one.url, one.status) for one in found if one.type in ANSWERS)
    kinds = Counter(one.type for one in found)
    beside = {kind: Counter(one.url for one in found if one.type == kind) for kind in ("request", "metadata")}
    answered = Counter(url for url, _ in logged.elements())
    profiles = Counter(one.profile for one in found if one.type == "revisit")
    lines = list(pages)
    told = {
        "identical-payload-digest": sum(line["duplicate_of"] is not None for line in lines),
        "server-not-modified": sum(line["status"] == 304 for line in lines),
    }
    bodies = [one for one in found if one.status == 200 and one.url in digests]
    wrong = [one.url for one in bodies if one.payload != digests[one.url or ""]]
    shown = ", ".join(f"{number:,} {kind}" for kind, number in sorted(kinds.items()))
    return [
        docs_judge.Verdict(
            bool(logged) and kept == logged and all(one == answered for one in beside.values()),
            f"WARC records and the crawl logs have the same {logged.total():,} answers, each with its request and "
            f"metadata ({shown}); {(kept - logged).total() + (logged - kept).total()} differ",
        ),
        docs_judge.Verdict(
            bool(profiles) and dict(profiles) == {name: count for name, count in told.items() if count},
            "revisits are what the JSON Lines have as duplicate and as not modified: "
            + ", ".join(f"{profiles[name]:,} of {count:,} {name}" for name, count in told.items()),
        ),
        docs_judge.Verdict(
            {one.url for one in bodies} == set(digests) and not wrong,
            f"payload digests of {len(bodies):,} records of 200 as sha1sum has the files; {len(wrong)} differ",
        ),
    ]
