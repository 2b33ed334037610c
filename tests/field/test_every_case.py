"""Every case of cases.json has one test here, and there is no test of a case that is not in it."""

import importlib
from pathlib import Path

from tests import corpus
from tests.field import stage


def test_cases_and_tests_are_the_same_set() -> None:
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        importlib.import_module(f"tests.field.{path.stem}")
    listed = [one["id"] for one in corpus.load("cases.json")]
    assert len(listed) == len(set(listed)) == 69
    assert set(stage.CASES) == set(listed)
