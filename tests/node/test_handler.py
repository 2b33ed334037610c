"""A user's handler is given every page, and whatever it does is an outcome: the node goes on."""

import asyncio
import io
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from node.sinks import chosen, handler
from shared import config, errors, logs, metrics, records
from tests.node import origins
from tests.node.visited import AGENT, START_MS, URL, visited

MODULE = """
import asyncio, concurrent.futures, os, sys, threading, time
seen = []
gate = threading.Event()

def keep(page):
    seen.append(page)

async def keep_async(page):
    await asyncio.sleep(0)
    seen.append(page)

class Object:
    def __init__(self):
        self.lock = None
    async def __call__(self, page):
        self.lock = self.lock or asyncio.Lock()  # bound to one loop: it must be the same each time
        async with self.lock:
            await asyncio.sleep(0)
            seen.append(page)
    def method(self, page):
        seen.append(page)

one = Object()

def fails(page):
    raise ValueError("no")

async def fails_async(page):
    raise ValueError("no")

def exits(page):
    sys.exit(3)

async def exits_async(page):
    sys.exit(3)

async def exits_in_a_task(page):
    async def stop():
        sys.exit(3)
    task = asyncio.ensure_future(stop())
    await asyncio.sleep(0.01)
    seen.append(page)

def interrupts(page):
    raise KeyboardInterrupt

async def interrupts_async(page):
    raise KeyboardInterrupt

def cancels(page):
    raise asyncio.CancelledError

async def cancels_async(page):
    asyncio.current_task().cancel()
    await asyncio.sleep(1)

def generator_exit(page):
    raise GeneratorExit

def times_out_itself(page):
    raise TimeoutError("of its own")

def wrong_arguments():
    pass

def hangs(page):
    gate.wait()

async def hangs_async(page):
    await asyncio.Event().wait()

async def blocks_its_loop(page):
    gate.wait()

async def will_not_be_cancelled(page):
    while not gate.is_set():
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            pass

not_callable = 5
"""


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The user's module, found in the working directory; what hangs in it goes on at the end."""
    (tmp_path / "my_handlers.py").write_text(MODULE)
    (tmp_path / "exits_at_import.py").write_text("raise SystemExit(1)\n")
    (tmp_path / "broken.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    handler.load("my_handlers:keep")
    assert sys.path == [*before, str(tmp_path)], "a file of the user's stands in for no module of ours"
    module = sys.modules["my_handlers"]
    yield module
    module.gate.set()
    sys.path[:] = before
    del sys.modules["my_handlers"]


async def given(
    name: str, *, limit_s: float = 5.0, page: Any = None, counts: metrics.Metrics | None = None
) -> str | None:
    sink = handler.HandlerSink(f"my_handlers:{name}", limit_s=limit_s, counts=counts)
    try:
        return await sink.write(page or visited())
    finally:
        sink.close()


@pytest.mark.parametrize("name", ["keep", "keep_async", "one", "one.method"])
async def test_a_handler_is_given_the_page(user: Any, name: str) -> None:
    page = visited(
        "<title>\u00e9</title>".encode("cp1252"),
        outcome=records.Fetched(
            status=404,
            headers=(("Content-Type", "text/html"), ("X-A", "1"), ("x-a", "2")),
            body="<title>\u00e9</title>".encode("cp1252"),
            truncated="size",
        ),
        charset="cp1252",
        title="\u00e9",
        links=("https://a.example/x",),
        depth=2,
        canonical="https://a.example/c",
        duplicate=records.ContentRef(url="https://b.example/", fetched_ms=1),
        noindex=True,
    )
    assert await given(name, page=page) is None
    (seen,) = user.seen
    assert (seen.url, seen.site, seen.node, seen.visit) == (URL, "a.example", "n1", "first")
    assert (seen.status, seen.fetched_ms, seen.depth, seen.truncated) == (404, START_MS, 2, "size")
    assert (seen.title, seen.links, seen.text) == ("\u00e9", ("https://a.example/x",), "<title>\u00e9</title>")
    assert (seen.header("X-a"), seen.header("content-type"), seen.header("none")) == ("1", "text/html", None)
    assert (seen.canonical, seen.duplicate_of) == ("https://a.example/c", "https://b.example/")
    assert (seen.noindex, seen.nofollow, seen.redirect) == (True, False, None)
    with pytest.raises(AttributeError):
        seen.url = "https://c.example/"


async def test_what_is_no_page_is_not_given_and_304s_and_redirects_are(user: Any) -> None:
    await given("keep", page=visited(visit="robots"))
    await given("keep", page=visited(outcome=records.Failed(reason="timeout")))
    assert user.seen == []
    await given("keep", page=visited(b"", outcome=records.NotModified()))
    await given("keep", page=visited(b"", outcome=records.Redirected(status=302, location="/x")))
    assert [(page.status, page.body, page.redirect) for page in user.seen] == [(304, b"", None), (302, b"", "/x")]


FAILING = (
    *("fails", "fails_async", "exits", "exits_async", "interrupts", "interrupts_async"),
    *("cancels", "cancels_async", "generator_exit", "times_out_itself", "wrong_arguments"),
)


@pytest.mark.parametrize("name", FAILING)
async def test_whatever_it_raises_is_an_outcome(user: Any, name: str) -> None:
    counts = metrics.Metrics()
    assert await given(name, counts=counts) == "handler"
    assert counts.registry.get_sample_value("crawlring_handler_failures_total", {"kind": "exception"}) == 1
    assert await given("keep") is None
    task = asyncio.current_task()
    assert task is not None and not task.cancelling()


@pytest.mark.parametrize("name", ["keep", "keep_async"])
async def test_without_a_thread_to_be_had_the_page_has_failed_and_the_next_may_succeed(user: Any, name: str) -> None:
    sink = handler.HandlerSink(f"my_handlers:{name}", limit_s=5.0)
    before = threading.stack_size(1 << 46)  # more than there is: no thread begins
    try:
        assert await sink.write(visited()) == "handler"
    finally:
        threading.stack_size(before)
    for _ in range(handler.CALLS_MAX + 1):
        assert await sink.write(visited()) is None
    sink.close()


async def test_a_task_of_the_handlers_that_ends_the_process_ends_nothing(user: Any) -> None:
    sink = handler.HandlerSink("my_handlers:exits_in_a_task", limit_s=2.0)
    assert await asyncio.gather(*(sink.write(visited()) for _ in range(5))) == [None] * 5
    assert len(user.seen) == 5
    sink.close()


@pytest.mark.parametrize("name", ["hangs", "hangs_async", "blocks_its_loop", "will_not_be_cancelled"])
async def test_one_that_takes_too_long_has_failed_and_holds_up_nobody(user: Any, name: str) -> None:
    counts = metrics.Metrics()
    sink = handler.HandlerSink(f"my_handlers:{name}", limit_s=0.1, counts=counts)
    started_s = time.monotonic()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.005)

    ticking = asyncio.create_task(tick())
    assert await asyncio.gather(*(sink.write(visited()) for _ in range(80))) == ["handler"] * 80
    ticking.cancel()
    assert time.monotonic() - started_s < 7, "one after another they would take eight seconds"
    assert ticks > 5, "the crawl's own loop goes on"
    assert counts.registry.get_sample_value("crawlring_handler_failures_total", {"kind": "timeout"}) == 80
    hanging = [thread for thread in threading.enumerate() if thread.name == "crawlring-handler"]
    assert len(hanging) == (handler.CALLS_MAX if name == "hangs" else 0)
    assert all(thread.daemon for thread in hanging), "a process ends without them"
    user.gate.set()
    if sink._loop is not None and name != "hangs_async":
        loop = sink._loop[0]
        await origins.until(lambda: not asyncio.all_tasks(loop))
    sink.close()
    for thread in hanging:
        thread.join(5)


async def test_a_visit_that_is_cancelled_is_not_kept_by_its_handler(user: Any) -> None:
    sink = handler.HandlerSink("my_handlers:hangs", limit_s=60.0)
    task = asyncio.create_task(sink.write(visited()))
    while not any(thread.name == "crawlring-handler" for thread in threading.enumerate()):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    sink.close()


async def test_a_failure_is_logged_with_its_traceback_once_for_each_place(user: Any) -> None:
    said = io.StringIO()
    logs.configure(stream=said, node="n1")
    try:
        sink = handler.HandlerSink("my_handlers:fails", limit_s=5.0)
        for _ in range(3):
            assert await sink.write(visited()) == "handler"
    finally:
        structlog.reset_defaults()
    (line,) = [json.loads(text) for text in said.getvalue().splitlines()]
    assert (line["event"], line["error"], line["url"]) == ("handler.failed", "ValueError: no", URL)
    assert 'raise ValueError("no")' in line["exception"]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("my_handlers", "module:function"),
        (":f", "module:function"),
        ("my_handlers:", "module:function"),
        ("my_handlers:nothing", "AttributeError"),
        ("my_handlers:not_callable", "no function"),
        ("no_such_module:f", "ModuleNotFoundError"),
        ("broken:f", "SyntaxError"),
        ("exits_at_import:f", "SystemExit"),
    ],
)
def test_one_that_cannot_be_imported_is_told_at_the_start(user: Any, path: str, said: str, tmp_path: Path) -> None:
    tree = {"archive": {"handler": path, "warc": True}, "node": {"out": str(tmp_path / "out")}}
    with pytest.raises(errors.ConfigError, match=said):
        chosen.open_sinks(settings(tmp_path, **tree), "n1")
    assert not (tmp_path / "out").exists()


def settings(folder: Path, **tables: Any) -> config.Config:
    options = {f"{table}.{name}": value for table, fields in tables.items() for name, value in fields.items()}
    base = {"identity.user_agent": AGENT, "node.out": str(folder)}
    return config.load(environ={}, options=base | options)


async def test_all_sinks_have_a_page_before_the_handlers_verdict(user: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sinks = chosen.open_sinks(
        settings(out, archive={"warc": True, "handler": "my_handlers:fails"}), "n1", counts=metrics.Metrics()
    )
    assert [type(sink).__name__ for sink in sinks.sinks] == ["JsonlSink", "WarcSink", "HandlerSink"]
    assert await sinks.write(visited()) == "handler"
    assert await sinks.write(visited(visit="robots")) is None
    sinks.sync()
    lines = (out / "pages-n1.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["url"] for line in lines] == [URL]
    sinks.close()
    assert len(list(out.glob("*.warc.gz"))) == 1
    none = chosen.open_sinks(settings(tmp_path / "none", node={"jsonl": False}), "n1")
    assert await none.write(visited()) is None
    none.close()


def test_a_folder_that_cannot_be_used_is_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.ConfigError, match="cannot write"):
        chosen.open_sinks(settings(tmp_path / "file" / "out"), "n1")
    chosen_one = chosen.open_sinks(settings(tmp_path, archive={"warc": True}), "n1")
    with pytest.raises(errors.ConfigError, match="as node n1"):
        chosen.open_sinks(settings(tmp_path, archive={"warc": True}), "n1")
    chosen_one.close()


def test_a_hanging_handler_does_not_keep_a_process_from_its_end(user: Any, tmp_path: Path) -> None:
    import subprocess  # noqa: PLC0415

    program = (
        "import asyncio\n"
        "from node.sinks import handler\n"
        "from tests.node.visited import visited\n"
        "async def main():\n"
        "    for name in ('hangs', 'blocks_its_loop'):\n"
        "        sink = handler.HandlerSink(f'my_handlers:{name}', limit_s=0.1)\n"
        "        assert await sink.write(visited()) == 'handler'\n"
        "        sink.close()\n"
        "asyncio.run(main())\n"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": root},
        timeout=20,
        check=False,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
