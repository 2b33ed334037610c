"""Any order of offers, claims and commits by three nodes does what a plain model of the frontier says."""

import asyncio
import itertools

import hypothesis
from hypothesis import stateful
from hypothesis import strategies as st

from shared import errors, frontier, records
from tests.stores import shapes

NODES = st.sampled_from(["n1", "n2", "n3"])
URLS = st.lists(st.tuples(st.integers(0, 40), st.sampled_from([0, 5, 9])), min_size=1, max_size=12)
_clusters = itertools.count()


class Model(stateful.RuleBasedStateMachine):
    """One site. Each node remembers its own tenure and running number, and may be behind."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.desk = self.runner.run(frontier.Frontier.open(self.url, f"model{next(_clusters)}"))
        self.queues: dict[int, list[str]] = {priority: [] for priority in range(10)}
        self.seen: set[str] = set()
        self.later: set[str] = set()
        self.pages: dict[str, records.PageRecord] = {}
        self.owner: str | None = None
        self.epoch = 0
        self.n = 0
        self.visits = 0
        self.due_ms = 0
        self.tenures: dict[str, tuple[int, int]] = {}
        self.last: dict[str, tuple[int, int, records.Commit]] = {}

    def teardown(self) -> None:
        self.runner.run(self.desk.close())
        self.runner.close()

    def head(self) -> list[tuple[str, int]]:
        ordered = [(url, priority) for priority in range(9, -1, -1) for url in self.queues[priority]]
        return ordered[:8]

    def agrees(self, record: records.SiteRecord) -> None:
        assert [(queued.url, queued.priority) for queued in record.head] == self.head()
        assert record.pending == sum(map(len, self.queues.values()))
        assert (record.seen, record.later, record.pages, record.n) == (
            len(self.seen), len(self.later), self.visits, self.n,
        )  # fmt: skip
        assert record.validators == sum(page.etag is not None for page in self.pages.values())
        assert record.checks == sum(page.checks for page in self.pages.values())
        assert all(queued.page == self.pages.get(queued.url) for queued in record.head)
        assert record.due_ms >= self.due_ms, "a due moved back"
        self.due_ms = record.due_ms

    @stateful.rule(urls=URLS)
    def offer(self, urls: list[tuple[int, int]]) -> None:
        idle = not any(self.queues.values())
        wanted = []
        for number, priority in urls:
            url = shapes.url(number)
            wanted.append("known" if url in self.seen else "accepted")
            if url not in self.seen:
                self.seen.add(url)
                self.queues[priority].append(url)
        offers = [shapes.offer(number, priority=priority) for number, priority in urls]
        assert self.runner.run(shapes.offered(self.desk, *offers, owner_of=lambda _site: "n1")) == wanted
        hints = self.runner.run(self.desk.inbox("n1", at_most=9))
        self.runner.run(self.desk.empty_inbox("n1", len(hints)))
        assert hints == ([shapes.SITE] if idle and "accepted" in wanted else [])

    @stateful.rule(node=NODES, step=st.integers(-2, 3))
    def claim(self, node: str, step: int) -> None:
        epoch = max(1, self.epoch + step)
        (record,) = self.runner.run(self.desk.claim([shapes.SITE], node, epoch, delay_s=0.001))
        if epoch < self.epoch or (epoch == self.epoch and node != self.owner):
            assert record is None
            return
        assert record is not None
        if epoch > self.epoch:
            assert record.owner == self.owner
            assert record.owner_epoch == self.epoch
            self.owner, self.epoch, self.n = node, epoch, 0
            self.tenures[node] = (epoch, 0)
        self.agrees(record)

    @stateful.precondition(lambda self: self.tenures)
    @stateful.rule(
        data=st.data(), taken=st.integers(0, 4), retried=st.booleans(), put_off=st.booleans(), checks=st.integers(0, 3)
    )
    def commit(self, data: st.DataObject, taken: int, checks: int, *, retried: bool, put_off: bool) -> None:
        node = data.draw(st.sampled_from(sorted(self.tenures)))
        tenure, n = self.tenures[node]
        visited = [records.QueuedUrl(url=url, priority=priority) for url, priority in self.head()[:taken]]
        page = records.PageRecord(etag='"a"' if checks % 2 else None, checks=checks)
        later: list[tuple[str, float, int]] = []
        if visited and retried:
            later.append((visited[0].url, 0.0, 5))
        if len(visited) > 1 and put_off:
            later.append((visited[1].url, 5_000.0, 5))
        change = records.Commit(
            done=tuple(visited),
            later=tuple(later),
            pages=tuple((one.url, page) for one in visited),
            visits=len(visited),
            due_in_s=0.001 * checks,
        )
        self.last[node] = (tenure, n + 1, change)
        self.tenures[node] = (tenure, n + 1)
        if tenure < self.epoch:
            self.is_fenced(node, tenure, n + 1, change)
            return
        for one in visited:
            self.queues[one.priority].remove(one.url)
            self.pages[one.url] = page
        if visited and retried:
            self.queues[5].append(visited[0].url)
        if len(visited) > 1 and put_off:
            self.later.add(visited[1].url)
        self.visits += len(visited)
        self.n = n + 1
        committed = self.runner.run(self.desk.commit(shapes.SITE, node, tenure, n + 1, change))
        assert (committed.repeated, committed.forgotten) == (False, False)
        self.agrees(committed.record)

    @stateful.precondition(lambda self: self.last)
    @stateful.rule(data=st.data())
    def commit_again(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(sorted(self.last)))
        tenure, n, change = self.last[node]
        if tenure < self.epoch:
            self.is_fenced(node, tenure, n, change)
            return
        committed = self.runner.run(self.desk.commit(shapes.SITE, node, tenure, n, change))
        assert committed.repeated
        self.agrees(committed.record)

    def is_fenced(self, node: str, tenure: int, n: int, change: records.Commit) -> None:
        try:
            self.runner.run(self.desk.commit(shapes.SITE, node, tenure, n, change))
        except errors.StaleEpoch:
            return
        raise AssertionError("a commit of an earlier tenure went through")

    @stateful.invariant()
    def looks_right(self) -> None:
        look = self.runner.run(self.desk.look(shapes.SITE))
        if look is None:
            assert not self.seen
            assert not self.epoch
            return
        assert (look["owner"], look["tenure"]) == (self.owner, self.epoch)
        assert look["head"] == [url for url, _ in self.head()]
        assert look["pending"] == sum(map(len, self.queues.values()))


def test_the_frontier_does_what_the_model_says(store: str) -> None:
    class ModelOnStore(Model):
        url = store

    stateful.run_state_machine_as_test(
        ModelOnStore, settings=hypothesis.settings(max_examples=25, stateful_step_count=25, deadline=None)
    )
