"""The handler sink: a Python function of the user's that is given every page; what it does cannot hurt the node.

A plain function runs in a thread of its own, an `async def` on a loop of its own in one thread, so that neither can
hold up the crawl. An exception of any kind, SystemExit included, or too long a time is the page's outcome. What
cannot be contained: os._exit, a signal to the process, and C code that keeps the interpreter's lock.
"""

import asyncio
import concurrent.futures
import contextlib
import importlib
import inspect
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from node import charsets
from node.sinks import pages
from shared import errors, logs, metrics, records

CALLS_MAX: Final = 64  # at one time, those counted that were given up and still run
CLOSE_S: Final = 1.0  # for the loop of an async handler to end
KINDS_MAX: Final = 1_000  # of failures that are told with their traceback

log = logs.get("node.sinks.handler")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a handler is given: one answered request. Redirects, 304 and errors of the server are pages too."""

    url: str
    """As it was asked for, in canonical form."""
    site: str
    node: str
    visit: str
    """first, recrawl or retry."""
    fetched_ms: int
    """When the request started, milliseconds since 1970."""
    status: int
    headers: tuple[tuple[str, str], ...]
    """Names and values as they came, in their order."""
    body: bytes
    """With every coding undone; empty for a 304 and a redirect."""
    content_type: str | None
    charset: str | None
    """The Python codec that `text` is read with."""
    title: str | None
    links: tuple[str, ...]
    """Canonical, each once, in the page's order."""
    depth: int
    """Links from a seed."""
    truncated: str | None
    """Why the body is not whole; None: it is."""
    redirect: str | None
    """Where a 3xx pointed, as it was written."""
    canonical: str | None
    """What rel=canonical names."""
    duplicate_of: str | None
    """The URL where the same content was fetched first."""
    noindex: bool
    nofollow: bool

    @property
    def text(self) -> str:
        """The body as text; broken characters are replaced. Decoded at each call."""
        return charsets.text_of(self.body, self.charset or charsets.charset_of(self.body, self.content_type))

    def header(self, name: str) -> str | None:
        """The first value of a header, whatever the case of its name."""
        return next((value for header, value in self.headers if header.lower() == name.lower()), None)


class HandlerSink:
    """Gives pages to one handler."""

    def __init__(self, path: str, *, limit_s: float, counts: metrics.Metrics | None = None) -> None:
        self._handle = load(path)
        self._limit_s = limit_s
        self._counts = counts
        self._places = asyncio.Semaphore(CALLS_MAX)
        self._told: set[tuple[str, str, int]] = set()
        self._loop: tuple[asyncio.AbstractEventLoop, threading.Thread] | None = None

    async def write(self, page: pages.Visited) -> str | None:
        """Give the handler one page; "handler" where it failed."""
        given = page_of(page)
        if given is None:
            return None
        failure = await self._failure_of(given)
        if failure is None:
            return None
        self._tell(failure, given.url)
        return "handler"

    def sync(self) -> None:
        """What a handler keeps is its own matter."""

    def close(self) -> None:
        """End the loop of an async handler; a call that still runs is waited for no longer than a second."""
        if self._loop is not None:
            loop, thread = self._loop
            loop.call_soon_threadsafe(loop.stop)
            thread.join(CLOSE_S)
            self._loop = None

    async def _failure_of(self, page: Page) -> BaseException | None:
        """Call the handler; its exception, or TooLong."""
        here = asyncio.get_running_loop()
        deadline_s = here.time() + self._limit_s
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._places.acquire()
        except TimeoutError:
            return TooLong(f"{CALLS_MAX} calls of the handler still run")
        try:
            call = self._started(page)
        except RuntimeError as error:  # no thread is to be had: whoever takes them all without end may be a handler
            self._places.release()
            return error
        call.add_done_callback(lambda _: self._leave(here))
        answer = asyncio.wrap_future(call)
        try:
            # wait, not wait_for: a handler that cancels itself must not look as if this visit were cancelled.
            await asyncio.wait({answer}, timeout=deadline_s - here.time())
        finally:
            call.cancel()
        if not answer.done():
            answer.cancel()
            return TooLong(f"the handler took longer than {self._limit_s:g} s")
        return asyncio.CancelledError() if answer.cancelled() else answer.result()

    def _started(self, page: Page) -> "concurrent.futures.Future[BaseException | None]":
        if _is_async(self._handle):
            loop = self._own_loop()
            return asyncio.run_coroutine_threadsafe(_awaited(self._handle, page), loop)
        call: concurrent.futures.Future[BaseException | None] = concurrent.futures.Future()
        call.set_running_or_notify_cancel()

        def run() -> None:
            caught = Caught()
            with caught:
                self._handle(page)
            call.set_result(caught.error)

        # A daemon: the process does not wait at its end for a handler that never returns.
        threading.Thread(target=run, name="crawlring-handler", daemon=True).start()
        return call

    def _leave(self, here: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError):  # that loop has ended: nobody waits for a place
            here.call_soon_threadsafe(self._places.release)

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_run, args=(loop,), name="crawlring-handlers", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                loop.close()
                raise
            self._loop = loop, thread
        return self._loop[0]

    def _tell(self, failure: BaseException, url: str) -> None:
        """Count a failure; log it, with its traceback, once for each place it comes from."""
        kind = "timeout" if isinstance(failure, TooLong) else "exception"
        if self._counts is not None:
            self._counts.handler_failures.labels(kind).inc()
        trace = failure.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = (trace.tb_frame.f_code.co_filename, trace.tb_lineno) if trace else ("", 0)
        mark = (type(failure).__name__, *where)
        if mark in self._told or len(self._told) >= KINDS_MAX:
            return
        self._told.add(mark)
        log.error(
            "handler.failed",
            url=url,
            error=f"{type(failure).__name__}: {failure}",
            again="counted from now on, not logged",
            exc_info=failure,
        )


class TooLong(Exception):
    """The handler's time was over."""


class Caught:
    """Keeps whatever is raised inside it, the exceptions that end a process included."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> bool:
        self.error = error
        return True


def load(path: str) -> Callable[[Page], Any]:
    """The function that `module:function` names; modules of the working directory count. Raises ConfigError."""
    module_name, colon, name = path.partition(":")
    if not colon or not module_name or not name:
        raise errors.ConfigError(f"archive.handler is module:function, not {path!r}")
    here = os.getcwd()  # noqa: PTH109 - an entry of sys.path is text
    if here not in sys.path:
        sys.path.append(here)  # last: a file here must not stand in for a module of ours
    caught, found = Caught(), None
    with caught:
        found = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    if caught.error is not None:
        said = f"{type(caught.error).__name__}: {caught.error}"
        raise errors.ConfigError(f"archive.handler: {path} cannot be imported: {said}") from caught.error
    if not callable(found):
        raise errors.ConfigError(f"archive.handler: {path} is no function")
    handle: Callable[[Page], Any] = found
    return handle


def page_of(page: pages.Visited) -> Page | None:
    """What the handler sees of a request; None for what is no page (robots.txt, no answer)."""
    outcome = page.answer.outcome
    if page.visit == "robots" or not isinstance(outcome, records.Fetched | records.NotModified | records.Redirected):
        return None
    return Page(
        url=page.url,
        site=page.site,
        node=page.node,
        visit=page.visit,
        fetched_ms=page.answer.start_wall_ms,
        status=outcome.status,
        headers=outcome.headers,
        body=outcome.body if isinstance(outcome, records.Fetched) else b"",
        content_type=page.answer.content_type,
        charset=page.charset,
        title=page.title,
        links=page.links,
        depth=page.depth,
        truncated=outcome.truncated if isinstance(outcome, records.Fetched) else None,
        redirect=outcome.location if isinstance(outcome, records.Redirected) else None,
        canonical=page.canonical,
        duplicate_of=page.duplicate.url if page.duplicate else None,
        noindex=page.noindex,
        nofollow=page.nofollow,
    )


def _is_async(handle: Callable[[Page], Any]) -> bool:
    return inspect.iscoroutinefunction(handle) or inspect.iscoroutinefunction(getattr(handle, "__call__", None))  # noqa: B004


async def _awaited(handle: Callable[[Page], Any], page: Page) -> BaseException | None:
    caught = Caught()
    with caught:
        await handle(page)
    return caught.error


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run a loop until it is stopped; a task of the handler's that raises SystemExit ends it only for a moment."""
    while True:
        caught = Caught()
        with caught:
            loop.run_forever()
        if caught.error is None:
            break
    with Caught():
        loop.run_until_complete(_wind_up())
    loop.close()


async def _wind_up() -> None:
    """Cancel what still runs, and give it a moment to end."""
    await asyncio.sleep(0)  # what was handed over just now becomes a task
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=CLOSE_S / 2)
