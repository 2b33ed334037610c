"""One set of other people's test rows: where it lies, how each row is judged, what is expected, what peers reach.

Each module here exports `CORPORA`; `python -m tests.conformance` prints the table and pytest runs the same rows.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One row's verdict."""

    name: str
    passed: bool
    detail: str = ""
    """What was expected and what came, where they differ."""


@dataclass(frozen=True)
class Corpus:
    """A named set of rows."""

    name: str
    source: str
    """Folder or file below the conformance data."""
    rows: Callable[[], Iterable[Row]]
    """Judges every row; skips (pytest.skip) where the data is absent."""
    quick: Callable[[], Iterable[Row]] | None = None
    """Fewer of them for the test suite, where all take long; the command judges all."""
    held: Callable[[], int] | None = None
    """How many rows of this kind the source holds, judged or not, counted in it; None: all are judged."""
    gate: int | None = None
    """How many rows must pass; None: all."""
    peers: str = ""
    """What others reach on the same rows, with where that figure is from."""
    left_out: str = ""
    """Rows that are not judged, and why; whatever `held` counts and `rows` lacks must be told here."""
    note: str = ""
    """How the rows are judged, where that is not plain, and why those fail that do."""
