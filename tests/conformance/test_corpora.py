"""Every corpus keeps its gate, and the command that says so can fail."""

import sys
import textwrap
from pathlib import Path

import pytest

from tests.conformance import __main__ as command
from tests.conformance import corpora, judging

AREAS = list(judging.areas())


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.name)
def test_an_area_loads(area: judging.Area) -> None:
    assert not area.fault


@pytest.mark.parametrize(
    ("area", "corpus"),
    [pytest.param(area.name, corpus, id=f"{area.name}-{corpus.name}") for area in AREAS for corpus in area.sets],
)
def test_a_corpus_keeps_its_gate(area: str, corpus: corpora.Corpus) -> None:
    judged = judging.judge(area, corpus, quick=True)
    if judged.absent:
        pytest.skip(judged.absent)
    failures = "\n".join(f"{row.name}: {row.detail}" for row in judged.failed)
    assert not judged.fault, f"{judged.fault}\n{failures}"
    assert judged.passed >= judged.gate, f"{judged.passed} of {judged.rows}, the gate is {judged.gate}\n{failures}"
    assert judged.gate > 0, "a gate that is always kept"
    if judged.failed:
        assert corpus.gate is not None
        assert corpus.note, "why rows fail"


def test_names_are_unique() -> None:
    names = [corpus.name for area in AREAS for corpus in area.sets]
    assert len(names) == len(set(names))


def of(
    *verdicts: bool,
    gate: int | None = None,
    names: str = "abcdef",
    held: int | None = None,
    left_out: str = "d: a reason",
) -> corpora.Corpus:
    rows = [
        corpora.Row(name, passed, "" if passed else "saw | this") for name, passed in zip(names, verdicts, strict=False)
    ]
    return corpora.Corpus(
        "made",
        "nowhere",
        lambda: rows,
        held=held and (lambda: held),
        gate=gate,
        peers="x 1",
        left_out=left_out,
        note="by hand",
    )


def raising(error: BaseException) -> corpora.Corpus:
    def rows():
        raise error

    return corpora.Corpus("made", "nowhere", rows)


@pytest.mark.parametrize(
    ("corpus", "good"),
    [
        (of(True, True), True),
        (of(True, False), False),
        (of(True, False, gate=1), True),
        (of(True, False, gate=2), False),
        (of(), False),
        (of(True, True, names="aa"), False),
        (of(True, True, held=3), True),
        (of(True, True, held=3, left_out=""), False),
        (of(True, True, held=1), False),
        (raising(ValueError("broken")), False),
        (raising(pytest.skip.Exception("no data")), False),
    ],
)
def test_a_gate_is_kept_by_rows_that_were_judged(corpus: corpora.Corpus, good: bool) -> None:
    assert judging.judge("area", corpus).good == good


@pytest.mark.parametrize(
    ("text", "status", "shown"),
    [
        ("CORPORA = [Corpus('one', 'x', lambda: [Row('a', True)], peers='others 1')]", 0, "others 1"),
        ("CORPORA = [Corpus('one', 'x', lambda: [Row('a', False, 'saw b')])]", 1, "saw b"),
        ("CORPORA = [Corpus('one', 'x', lambda: 1 / 0)]", 1, "division by zero"),
        ("CORPORA = []", 1, "CORPORA is empty"),
        ("import nothing_of_that_name", 1, "nothing_of_that_name"),
        ("", 1, "CORPORA"),
        ("CORPORA = [Corpus('one', 'x', lambda: pytest.skip('none here'))]", 2, "no data"),
    ],
)
def test_the_command_fails_where_a_gate_is_missed_or_a_module_is_broken(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    status: int,
    shown: str,
) -> None:
    folder = tmp_path / "made_corpora"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "area.py").write_text(f"import pytest\nfrom tests.conformance.corpora import Corpus, Row\n{text}\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.startswith("made_corpora")]:
        monkeypatch.delitem(sys.modules, name)
    found = list(judging.areas(folder, "made_corpora"))
    monkeypatch.setattr(judging, "areas", lambda: found)
    page = tmp_path / "page.md"
    assert command.main(["--markdown", str(page)]) == status
    assert shown in capsys.readouterr().out
    assert page.exists() == (status != 2)


def test_the_page_tells_what_fails_and_what_is_left_out() -> None:
    broken = judging.Area("other", fault="ImportError: x")
    text = command.markdown([judging.judge("area", of(True, False, gate=1, held=3))], [broken])
    assert "| area | made | 3 | 2 | 1 | 1 | x 1 |" in text
    for part in (
        "`b` (saw \\| this)",
        "- made (1 row): d: a reason.",
        "- made: by hand.",
        "cannot be loaded: ImportError: x",
        "aiohttp ",
    ):
        assert part in text
    assert textwrap.dedent(text) == text
