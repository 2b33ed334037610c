"""The table of all settings in docs/crawling.md, made from the configuration itself: `python -m tests.settings_table`.

A setting's words stand once, in shared/config.py; `tests/test_docs.py` says where the page has fallen behind.
"""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from shared import config

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "crawling.md"
BEGIN, END = "<!-- settings: python -m tests.settings_table -->", "<!-- end of settings -->"


class Setting(NamedTuple):
    """One field of the tree."""

    name: str
    default: str
    about: str


def settings() -> Iterator[Setting]:
    """Every field in the order of the tree, with its docstring."""
    said = _docstrings()

    def walk(section: type[msgspec.Struct], value: msgspec.Struct, before: str) -> Iterator[Setting]:
        for name in section.__struct_fields__:
            default = getattr(value, name)
            if isinstance(default, config.Section):
                yield from walk(type(default), default, f"{before}{name}.")
            else:
                yield Setting(f"{before}{name}", _shown(default), said.get((section.__name__, name), ""))

    return walk(config.Config, config.Config(), "")


def table() -> str:
    rows = ["| setting | default | what it does, and why |", "|---|---|---|"]
    rows += [f"| `{one.name}` | `{one.default}` | {_cell(one.about)} |" for one in settings()]
    return "\n".join(rows)


def with_table(page: str) -> str:
    """The page with its table as it should be."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    assert found, f"{PAGE} has lost the lines between which its table of settings stands"
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def _shown(value: object) -> str:
    """As TOML writes it; what is not set is `none`."""
    if value is None:
        return "none"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, ensure_ascii=False)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _docstrings() -> dict[tuple[str, str], str]:
    """(class, field) -> the string that stands below it."""
    found: dict[tuple[str, str], str] = {}
    for section in ast.walk(ast.parse((ROOT / "shared" / "config.py").read_text())):
        if not isinstance(section, ast.ClassDef):
            continue
        for field, below in zip(section.body, section.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                found[section.name, field.target.id] = str(below.value.value)
    return found


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
