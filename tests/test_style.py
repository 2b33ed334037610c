"""The habits that no linter checks: a docstring a module, short files and functions, no text about one machine."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("shared", "node", "coordinator")
MODULE_LINES_MAX = 500
FUNCTION_LINES_MAX = 60


def modules():
    return [
        path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")) if "etcdrpc" not in path.parts
    ]


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_says_what_it_is_and_stays_short(path):
    text = path.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a module begins with the sentence that explains it"
    assert text.count("\n") <= MODULE_LINES_MAX
    for item in ast.walk(tree):
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            assert item.end_lineno - item.lineno < FUNCTION_LINES_MAX, item.name
        if isinstance(item, ast.ExceptHandler):
            assert item.type is not None, "which failure is meant?"
            assert getattr(item.type, "id", "") not in {"Exception", "BaseException"}, "which failure is meant?"


def test_nothing_is_left_to_do_and_no_path_is_of_one_machine():
    for path in modules():
        for number, line in enumerate(path.read_text().split("\n"), 1):
            assert not re.search(r"\b(TODO|FIXME|XXX)\b|NotImplementedError", line), f"{path}:{number}"
            assert not re.search(r"(?<![\w.])/(home|root)/[\w.]", line), f"{path}:{number}"


def test_every_script_is_headed_by_its_keys_arguments_answer_and_errors():
    scripts = [path for path in sorted((ROOT / "shared" / "lua").glob("*.lua")) if path.name != "site.lua"]
    assert scripts
    for path in scripts:
        head = path.read_text()[:2_500]
        for word in ("KEYS[1]", "Returns", "Errors"):
            assert word in head, f"{path.name} does not say {word}"
