"""What the texts say of settings, reasons, commands, files and libraries is what there is."""

import argparse
import ast
import contextlib
import io
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator import cli
from node import admission, politeness, revisit, tls
from node.sinks import handler
from shared import scope
from tests import settings_table
from tests.node.visited import visited

ROOT = Path(__file__).parent.parent
PAGE = settings_table.PAGE
TEXTS = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def between(text: str, begin: str, end: str) -> str:
    return text.partition(begin)[2].partition(end)[0]


# --- settings -------------------------------------------------------------------------------------------------------


def test_every_setting_stands_on_the_page_with_its_default_and_its_words():
    page = PAGE.read_text()
    assert page == settings_table.with_table(page), "run python -m tests.settings_table"


def test_every_setting_says_what_it_is():
    assert [one.name for one in settings_table.settings() if not one.about] == []


# --- reasons --------------------------------------------------------------------------------------------------------


def constants(node: ast.AST | None) -> Iterator[str]:
    """The words that an expression may come to: itself, either arm of a condition, parts of a tuple."""
    match node:
        case ast.Constant(value=str(text)) if text:
            yield text
        case ast.IfExp():
            yield from constants(node.body)
            yield from constants(node.orelse)
        case ast.Call(func=ast.Attribute(attr="get"), args=[_, default]):
            yield from constants(default)
        case ast.BoolOp() | ast.Tuple():
            for part in node.values if isinstance(node, ast.BoolOp) else node.elts:
                yield from constants(part)


def told(tree: ast.Module) -> Iterator[str]:
    """Where the code names a reason: what is given or assigned as one, and what functions that find one return."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
                for word in node.keywords:
                    if word.arg in {"reason", "refused", "aside"}:
                        yield from constants(word.value)
                if name in {"ForbiddenError", "SetAside"} or (name == "append" and "refused" in ast.unparse(node.func)):
                    for argument in node.args:
                        yield from constants(argument)
            case ast.Assign(targets=[ast.Name(id="reason")]):
                yield from constants(node.value)
            case ast.FunctionDef(name="refusal" | "redirect_target" | "reason_of") | ast.AsyncFunctionDef(name="write"):
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Return):
                        yield from constants(inner.value)


def test_the_table_of_reasons_has_every_reason_of_the_code_and_no_other():
    # The runner's are the guard's own words, which stand in the detail of `guard`.
    paths = [*(path for path in (ROOT / "node").rglob("*.py") if path.name != "runner.py"), ROOT / "shared" / "urls.py"]
    named = {word for path in paths for word in told(ast.parse(path.read_text()))}
    named |= {*scope.REASONS, admission.ENDLESS, *politeness.OWN_DOING, *tls._REASONS.values()}
    named |= {f"status_{status}" for status in politeness.PAUSES | politeness.UNREADY | {304}} | {"status_5xx"}
    assert len(named) > 30, "the reasons were not found"
    rows = between(PAGE.read_text(), "<!-- reasons -->", "<!-- end of reasons -->").strip().splitlines()[2:]
    table = {word for row in rows for word in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert table == named


def test_the_table_says_which_reasons_pass():
    rows = between(PAGE.read_text(), "<!-- reasons -->", "<!-- end of reasons -->").strip().splitlines()[2:]
    never = {row.split("`")[1] for row in rows if row.split("|")[2].strip() == "never"}
    assert never == (revisit.TEMPORARY | politeness.OWN_DOING) - {"backoff"}


# --- commands -------------------------------------------------------------------------------------------------------


def commands() -> dict[str, argparse.ArgumentParser]:
    (action,) = [one for one in cli.build_parser()._actions if isinstance(one, argparse._SubParsersAction)]
    return dict(action.choices)


def test_the_readme_lists_every_command():
    table = between((ROOT / "README.md").read_text(), "## Commands", "`crawlring COMMAND --help`")
    listed = {row.split("`")[1].split()[0] for row in table.splitlines() if row.startswith("| `")}
    assert listed == set(commands())


def shown_commands() -> Iterator[str]:
    """Each `crawlring ...` of a block, without what the shell takes."""
    for path in TEXTS:
        for block in FENCE.findall(path.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                found = re.fullmatch(r"(?:\$ )?(?:\.venv/bin/)?(crawlring .*)", line)
                if found:
                    yield re.split(r"\s*;|\s+(?:[|&<>#]|\d>)", found[1])[0]


def test_every_command_of_the_texts_can_be_given():
    shown, parser = sorted(set(shown_commands())), cli.build_parser()
    assert len(shown) > 15
    for line in shown:
        words = [word for word in shlex.split(line)[1:] if word != "..."]
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            try:
                parser.parse_args(words)
            except SystemExit:
                pytest.fail(f"{line}: {said.getvalue()}")


# --- files and libraries --------------------------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_every_link_leads_somewhere(path):
    for link in LINK.findall(FENCE.sub("", path.read_text())):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name) if name else path
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text()), link


def test_every_file_of_the_rooms_is_in_the_architecture():
    rooms = between((ROOT / "ARCHITECTURE.md").read_text(), "## Rooms", "## The two lines")
    for room in ("shared", "node", "coordinator"):
        for path in (ROOT / room).rglob("*.py"):
            if path.name != "__init__.py" and "etcdrpc" not in path.parts:
                assert path.name in rooms, f"{room}/{path.name}"


def test_every_library_has_its_row():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    rows = between((ROOT / "ARCHITECTURE.md").read_text(), "## Libraries", "## Decisions")
    for wanted in project["project"]["dependencies"]:
        name = re.match(r"[\w-]+", wanted)[0]
        assert re.search(rf"(?<![\w-]){re.escape(name)} ", rows), name


# --- the handler that the page shows --------------------------------------------------------------------------------


async def test_the_handler_of_the_page_runs(tmp_path, monkeypatch):
    source = FENCE.search(PAGE.read_text().partition("<!-- handler: titles.py -->")[2])[1]
    (tmp_path / "shown_titles.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sink = handler.HandlerSink("shown_titles:keep", limit_s=5.0)
    try:
        assert await sink.write(visited(title="A title")) is None
        assert (tmp_path / "titles.tsv").read_text() == "https://a.example/page\tA title\n"
    finally:
        sink.close()
        sink._handle.__globals__["titles"].close()


def test_the_page_tells_every_field_that_a_handler_is_given():
    table = between(PAGE.read_text(), "`page` cannot be changed", "A plain function runs")
    told = set(re.findall(r"`(\w+)[`(]", table))
    fields = set(handler.Page.__dataclass_fields__) | {"text", "header"}
    assert fields <= told, fields - told
