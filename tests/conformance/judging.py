"""Finds every corpus of this folder, judges its rows and counts; what cannot be loaded or judged is told, not left out."""

import importlib
import pkgutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conformance import corpora

NO_CORPORA = frozenset({"corpora", "judging", "__main__", "test_corpora"})


@dataclass(frozen=True)
class Area:
    """One module of corpora, or why there is none of it."""

    name: str
    sets: tuple[corpora.Corpus, ...] = ()
    fault: str = ""


@dataclass(frozen=True)
class Judged:
    """What the rows of one corpus came to."""

    area: str
    corpus: corpora.Corpus
    rows: int = 0
    held: int = 0
    """Rows of the source, those left out among them."""
    failed: tuple[corpora.Row, ...] = ()
    absent: str = ""
    """Why no row was judged: the data is not at hand."""
    fault: str = ""
    """What went wrong with the corpus itself."""

    @property
    def passed(self) -> int:
        return self.rows - len(self.failed)

    @property
    def gate(self) -> int:
        """How many rows must pass."""
        return self.rows if self.corpus.gate is None else self.corpus.gate

    @property
    def good(self) -> bool:
        """The gate is kept, by rows that were judged."""
        return not self.fault and not self.absent and self.passed >= self.gate


def areas(folder: Path = Path(__file__).parent, package: str = __package__ or "") -> Iterator[Area]:
    """Every module of the folder that is to export CORPORA, those that do not load among them."""
    for module in sorted(pkgutil.iter_modules([str(folder)]), key=lambda one: one.name):
        if module.name in NO_CORPORA or module.name.startswith("test_"):
            continue
        try:
            found = tuple(importlib.import_module(f"{package}.{module.name}").CORPORA)
            fault = "" if found else "CORPORA is empty"
        except Exception as error:  # noqa: BLE001 - whatever an import raises is why its corpora are missing
            found, fault = (), f"{type(error).__name__}: {error}"
        yield Area(module.name, found, fault)


def judge(area: str, corpus: corpora.Corpus, *, quick: bool = False) -> Judged:
    """All rows of one corpus, or its few. What raises is a fault of the corpus: a row that fails says so itself."""
    try:
        rows = tuple(corpus.quick() if quick and corpus.quick else corpus.rows())
    except pytest.skip.Exception as skipped:
        return Judged(area, corpus, absent=str(skipped))
    except Exception as error:  # noqa: BLE001 - the other corpora are judged all the same
        return Judged(area, corpus, fault=f"{type(error).__name__}: {error}")
    twice = [name for name, times in Counter(row.name for row in rows).items() if times > 1]
    held = len(rows) if corpus.held is None else corpus.held()
    failed = tuple(row for row in rows if not row.passed)
    return Judged(area, corpus, len(rows), held, failed, fault=_fault(corpus, len(rows), held, twice))


def _fault(corpus: corpora.Corpus, rows: int, held: int, twice: list[str]) -> str:
    """What makes a corpus' figures worthless, or empty."""
    if not rows:
        return "no rows"
    if twice:
        return f"rows of one name: {', '.join(twice[:5])}"
    if rows > held:
        return f"{rows} rows of {held}"
    return f"{held - rows} rows are left out without a word" if rows < held and not corpus.left_out else ""
