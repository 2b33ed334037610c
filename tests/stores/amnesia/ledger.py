"""What one site's keys must hold after the calls that its store did: a plain model, and the promises over the raw keys.

It knows no store and no schedule. Every number is whole seconds or milliseconds of the schedule's own clock.
"""

import hashlib
import pickle
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from shared import records, urls

HEAD = 8  # URLs handed out at once (site.lua)
DUE_AT_ONCE = 2  # as scripts.ALL has it
SLOTS_LATE = 10  # site.lua
HASH_RANGE = 4_194_304
Keys = dict[str, Any]
"""The raw keys of a site by the last part of their names: hashes and sorted sets as dicts, lists, sets."""

_page = msgspec.msgpack.Decoder(records.PageRecord)
_MAY_GROW = ("due_ms", "delay_ms", "carried_ms")
_MAY_CHANGE = {*_MAY_GROW, "due_term", "delay_term"}


class BrokenError(AssertionError):
    """A promise that was not kept."""


def must(kept: object, promise: str) -> None:
    if not kept:
        raise BrokenError(promise)


@dataclass
class Mark:
    """A tenure that began with this URL; `silent`: so did, it is taken, the one before it, which left no mark."""

    tenure: int
    url: str
    silent: bool


@dataclass
class Ledger:
    """One site as the calls that were done make it."""

    site: str
    queues: dict[int, list[str]] = field(default_factory=lambda: {priority: [] for priority in range(10)})
    later: dict[tuple[int, str], int] = field(default_factory=dict)
    """(class, URL) -> when, in milliseconds."""
    fresh: dict[str, int] = field(default_factory=dict)
    """URL -> when it is wanted, in milliseconds."""
    fresh_gap_ms: int = 0
    fresh_at: int = 0
    fresh_turn: int = 0
    visits: int = 0
    pages: dict[str, records.PageRecord] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    finished: set[str] = field(default_factory=set)
    strangers: set[str] = field(default_factory=set)
    """Put off by an owner that knew them after the store had forgotten them, or had forgotten the commits before: a
    later offer or commit, which knows nothing of that, may put them in a second place."""
    owner: str = ""
    epoch: int = 0
    before: tuple[str, int] = ("", 0)
    n: int = 0
    applied: dict[tuple[int, int], records.Commit] = field(default_factory=dict)
    due_ms: int = 0
    due_term: str = ""
    delay_ms: int = 0
    delay_term: str = ""
    carried_ms: int = 0
    backoff: int = 0
    last_fetch_ms: int = 0
    barren: int = 0
    ended: int = 0
    """Tenures since the last commit that ended without one."""
    marks: list[Mark] = field(default_factory=list)

    def copy(self) -> "Ledger":
        copied: Ledger = pickle.loads(pickle.dumps(self))
        return copied

    # --- what each call does --------------------------------------------------------------------------------

    def newer(self, node: str, tenure: int) -> bool:
        """Does another tenure hold the site, so that this one may change nothing but a longer pause?"""
        return tenure < self.epoch or (tenure == self.epoch and node != self.owner)

    def offer(self, offers: Sequence[records.Offer], *, pages_max: int, now_ms: int) -> list[str]:
        queued: list[records.Offer] = []
        verdicts = []
        for offer in offers:
            url, priority = offer.url, offer.priority
            if url not in self.seen:
                if len(self.seen) >= pages_max:
                    verdicts.append("full")
                    continue
                self.seen.add(url)
                queued.append(offer)
            elif not offer.again or url in self.queues[priority] or offer.url in [one.url for one in queued]:
                verdicts.append("known")
                continue
            else:
                self.later[priority, url] = now_ms
                self.fresh.pop(url, None)
            verdicts.append("accepted")
            self.finished.discard(url)
        for offer in queued:
            self.queues[offer.priority].append(offer.url)
        return verdicts

    def claim(self, node: str, epoch: int, *, delay_ms: int, now_ms: int) -> bool:
        if self.newer(node, epoch):
            return False
        if epoch > self.epoch:
            self.ended += self.epoch > 0 and self.n == 0
            silent = self.epoch > 0 and self.n == 0 and now_ms >= self.due_ms
            self.barren = (1 if self.barren else 2) if silent else 0
            self.before, self.owner, self.epoch, self.n = (self.owner, self.epoch), node, epoch, 0
            if self.delay_ms < delay_ms:
                self.delay_ms, self.delay_term = delay_ms, "minimum"
            if self.due_ms < now_ms + self.delay_ms:
                self.due_ms, self.due_term = now_ms + self.delay_ms, "claim"
        self._move_due(now_ms)
        return True

    def attempt(self, node: str, tenure: int, url: str) -> int | str:
        if self.newer(node, tenure):
            return "fenced"
        # The store forgot the claim; or the call ran late, after a commit of its tenure, which ended nothing.
        if tenure > self.epoch or self.n:
            return 0
        if self.marks and self.marks[-1].url == url:
            if self.marks[-1].tenure != tenure:
                self.marks.append(Mark(tenure, url, silent=False))
        else:
            changed_its_mind = bool(self.marks) and self.marks[-1].tenure == tenure
            self.marks = [Mark(tenure, url, silent=self.barren == 2 and not changed_its_mind)]
        count = len(self.marks) - 1 + self.marks[0].silent
        must(count <= self.ended, f"{count} tenures ended at this page, and {self.ended} without a commit")
        return count

    def commit(self, node: str, tenure: int, n: int, change: records.Commit, *, now_ms: int) -> str:
        delay_ms, due_in_ms = round(change.delay_s * 1000), round(change.due_in_s * 1000)
        if self.newer(node, tenure):
            self._lengthen(now_ms + due_in_ms, change.due_term)
            if delay_ms > self.delay_ms:
                self.delay_ms, self.delay_term = delay_ms, change.delay_term
            if change.delay_term != "duration":
                self.carried_ms = max(self.carried_ms, delay_ms)
            return "fenced"
        held = tenure == self.epoch
        if held and n <= self.n:
            self._move_due(now_ms)
            return "repeated"
        forgotten = not held or n > self.n + 1
        if not held:
            self.before, self.owner, self.epoch = (self.owner, self.epoch), node, tenure
        self.n, self.ended, self.marks = n, 0, []
        self.applied[tenure, n] = change
        if change.robots:
            self.carried_ms = 0
        floor_ms = max(self.carried_ms, self.delay_ms) if forgotten else self.carried_ms
        if change.fetched_ms_ago is not None:
            due_in_ms = max(due_in_ms, floor_ms)
            self.last_fetch_ms = max(self.last_fetch_ms, now_ms - change.fetched_ms_ago)
        self._lengthen(now_ms + due_in_ms, change.due_term)
        if delay_ms >= floor_ms:
            self.delay_term = change.delay_term
        self.delay_ms, self.backoff = max(delay_ms, floor_ms), change.backoff
        for one in change.done:
            if one.url in self.queues[one.priority]:
                self.queues[one.priority].remove(one.url)
            self.finished.add(one.url)
        self.pages.update(change.pages)
        self.visits += change.visits
        self.fresh_gap_ms = round(change.fresh_gap_s * 1000)
        for url, in_s in change.fresh:
            self.fresh[url] = now_ms + round(in_s * 1000)
            if url not in self.seen or forgotten:
                self.strangers.add(url)
        for url, in_s, priority, *_ in change.later:
            self.later[priority, url] = now_ms + round(in_s * 1000)
            self.finished.discard(url)
            if url not in self.seen or forgotten:
                self.strangers.add(url)
        self._move_due(now_ms)
        return "forgotten" if forgotten else "applied"

    def _lengthen(self, due_ms: int, term: str) -> None:
        if due_ms >= self.due_ms:
            self.due_ms, self.due_term = due_ms, term

    def _fill_slot(self, now_ms: int) -> None:
        gap_ms = self.fresh_gap_ms
        if gap_ms <= 0 or now_ms < self.fresh_at or not self.fresh:
            return
        if any(self.queues.values()) and self.visits < self.fresh_turn:
            return
        url = min(self.fresh, key=lambda one: (self.fresh[one], urls.compact(one, self.site).encode()))
        del self.fresh[url]
        self.fresh_turn = self.visits + 2
        self.queues[self.pages[url].priority].insert(0, url)
        self.fresh_at = (max(self.fresh_at, now_ms - SLOTS_LATE * gap_ms) if self.fresh_at else now_ms) + gap_ms

    def _move_due(self, now_ms: int) -> None:
        self._fill_slot(now_ms)
        due = sorted((at_ms, self._member(*one).encode(), one) for one, at_ms in self.later.items() if at_ms <= now_ms)
        for _, _, (priority, url) in due[:DUE_AT_ONCE]:
            self.queues[priority].append(url)
            del self.later[priority, url]

    # --- what the raw keys must say -------------------------------------------------------------------------

    def check(self, keys: Keys) -> None:
        """Raises BrokenError."""
        raw = keys.get("site", {})
        self._check_counters(raw, keys)
        self._check_places(keys)
        self._check_once(raw, keys)
        self._check_record(raw)

    def _check_counters(self, raw: dict[str, str], keys: Keys) -> None:
        queued = sum(len(codes) for name, codes in keys.items() if name.startswith("queue:"))
        digests = [digest for _, bucket in _buckets(keys, "seen:") for digest in bucket]
        packed = {name: page for _, bucket in _buckets(keys, "pages:") for name, page in bucket.items()}
        pages = [_page.decode(page) for page in packed.values()]
        counted = {
            "pending": queued,
            "seen_n": len(digests),
            "pages_n": sum(len(bucket) for _, bucket in _buckets(keys, "pages:")),
            "validators": sum(page.etag is not None or page.last_modified is not None for page in pages),
            "checks": sum(page.checks for page in pages),
            "changes": sum(page.changes for page in pages),
            "observed_ms": sum(round(page.observed_s * 1000) for page in pages),
        }
        for name, really in counted.items():
            must(int(raw.get(name, 0)) == really, f"{name} is {raw.get(name, 0)}, but the keys hold {really}")
        must(len(set(digests)) == len(digests), "a digest stands in two buckets of seen")
        for number, bucket in _buckets(keys, "seen:"):
            for digest in bucket:
                place = _bucket_of(int(digest) % HASH_RANGE, int(raw.get("seen_b", 1)))
                must(place == number, f"a digest of bucket {place} of seen stands in {number}")
        for number, bucket in _buckets(keys, "pages:"):
            for name in bucket:
                place = _bucket_of(int(name[:7], 16) % HASH_RANGE, max(1, int(raw.get("pages_b", 1))))
                must(place == number, f"a page of bucket {place} stands in {number}")

    def _check_places(self, keys: Keys) -> None:
        """An accepted URL is pending, put off, or finished for ever; and in one place only."""
        queues = {int(name[6:]): list(map(self._url, codes)) for name, codes in keys.items() if name[:6] == "queue:"}
        later = {(int(one[0]), self._url(one[2:])): round(at) for one, at in keys.get("later", {}).items()}
        places = Counter(url for queue in queues.values() for url in queue) + Counter(url for _, url in later)
        fresh = {self._url(one): round(at) for one, at in keys.get("fresh", {}).items()}
        must(fresh == self.fresh, f"fresh is {fresh}, not {self.fresh}")
        for url in sorted(self.seen):
            must(places[url] or url in self.finished, f"{url} was accepted and is in no place")
            must(places[url] <= 1 or url in self.strangers, f"{url} is in {places[url]} places")
        expected = {priority: queue for priority, queue in self.queues.items() if queue}
        must(queues == expected, f"the queues are {queues}, not {expected}")
        must(later == self.later, f"later is {later}, not {self.later}")
        digests = {digest for _, bucket in _buckets(keys, "seen:") for digest in bucket}
        must(digests == {str(urls.digest(url)) for url in self.seen}, "seen does not hold what was accepted")

    def _check_once(self, raw: dict[str, str], keys: Keys) -> None:
        """What each (tenure, n) did counts once, whatever was delivered how often."""
        visits, aside, pages, robots = 0, Counter[str](), dict[str, records.PageRecord](), set[str]()
        for change in self.applied.values():
            visits += change.visits
            aside.update(reason for _, reason in change.set_aside)
            pages.update(change.pages)
            robots.update(origin for origin, _ in change.robots)
        must(int(raw.get("pages", 0)) == visits, f"visits are {raw.get('pages', 0)}, and {visits} were committed")
        told = {name[6:]: int(count) for name, count in raw.items() if name.startswith("aside:")}
        must(told == dict(aside), f"set aside are {told}, and {dict(aside)} were committed")
        must(int(raw.get("set_aside", 0)) == aside.total(), "set_aside is not the sum of its reasons")
        packed = {name: page for _, bucket in _buckets(keys, "pages:") for name, page in bucket.items()}
        held = {name: _page.decode(page) for name, page in packed.items()}
        named = {self._field(url): page for url, page in pages.items()}
        must(held == named, "the page records are not those that were committed last")
        must(set(keys.get("robots", {})) == robots, "the robots answers are not those that were committed")

    def _check_record(self, raw: dict[str, str]) -> None:
        numbers = {
            "epoch": self.epoch,
            "n": self.n,
            "prev_epoch": self.before[1],
            "due_ms": self.due_ms,
            "delay_ms": self.delay_ms,
            "carried_ms": self.carried_ms,
            "backoff": self.backoff,
            "last_fetch_ms": self.last_fetch_ms,
            "barren": self.barren,
            "try_n": len(self.marks) + self.marks[0].silent if self.marks else 0,
            "try_epoch": self.marks[-1].tenure if self.marks else 0,
            "fresh_gap": self.fresh_gap_ms,
            "fresh_at": self.fresh_at,
            "fresh_turn": self.fresh_turn,
        }
        words = {
            "owner": self.owner,
            "prev_owner": self.before[0],
            "due_term": self.due_term,
            "delay_term": self.delay_term,
            "try_code": urls.compact(self.marks[-1].url, self.site) if self.marks else "",
        }
        for name, value in numbers.items():
            must(int(raw.get(name, 0)) == value, f"{name} is {raw.get(name, 0)}, not {value}")
        for name, word in words.items():
            must(raw.get(name, "") == word, f"{name} is {raw.get(name, '')!r}, not {word!r}")

    def check_answer(self, record: records.SiteRecord, keys: Keys) -> None:
        """What the caller was told is what stands, and what it was handed still stands in the queues."""
        ordered = [(url, priority) for priority in range(9, -1, -1) for url in self.queues[priority]][:HEAD]
        head = [(one.url, one.priority) for one in record.head]
        must(head == ordered, f"the head is {head}, not {ordered}")
        for one in record.head:
            codes = keys.get(f"queue:{one.priority}", [])
            must(urls.compact(one.url, self.site) in codes, f"{one.url} was handed out and is only in memory")
        raw = keys.get("site", {})
        told = (record.owner or "", record.owner_epoch, record.n, record.due_ms, round(record.delay_s * 1000))
        must(told == (*self.before, self.n, self.due_ms, self.delay_ms), f"the answer says {told}")
        counters = (record.pending, record.seen, record.pages, record.validators, record.checks, record.changes)
        names = ("pending", "seen_n", "pages", "validators", "checks", "changes")
        must(counters == tuple(int(raw.get(name, 0)) for name in names), f"the answer counts {counters}")
        must(
            (record.barren, record.later) == (self.barren > 0, len(self.later) + len(self.fresh)),
            "barren, or the size of later, is wrong",
        )

    def _member(self, priority: int, url: str) -> str:
        return f"{priority}:{urls.compact(url, self.site)}"

    def _url(self, code: str) -> str:
        return urls.expand(code, self.site)

    def _field(self, url: str) -> str:
        return hashlib.sha1(urls.compact(url, self.site).encode(), usedforsecurity=False).hexdigest()[:16]


def check_fenced(before: Keys, after: Keys) -> None:
    """P4: an earlier tenure changes nothing, but for a longer pause."""
    for name in {*before, *after} - {"site"}:
        must(before.get(name) == after.get(name), f"P4: a call of an earlier tenure changed {name}")
    old, new = before.get("site", {}), after.get("site", {})
    changed = {name for name in {*old, *new} if old.get(name) != new.get(name)}
    must(changed <= _MAY_CHANGE, f"P4: a call of an earlier tenure changed {sorted(changed - _MAY_CHANGE)}")
    for name in _MAY_GROW:
        must(int(new.get(name, 0)) >= int(old.get(name, 0)), f"P4: an earlier tenure shortened {name}")


def check_due(before: Keys, after: Keys) -> None:
    old, new = (int(keys.get("site", {}).get("due_ms", 0)) for keys in (before, after))
    must(new >= old, f"due moved back by {old - new} ms")


def _buckets(keys: Keys, stem: str) -> Iterable[tuple[int, Any]]:
    return [(int(name.removeprefix(stem)), bucket) for name, bucket in keys.items() if name.startswith(stem)]


def _bucket_of(hashed: int, buckets: int) -> int:
    """Linear hashing, as site.lua describes it."""
    size = 1 << (buckets.bit_length() - 1)
    place = hashed % (2 * size)
    return place if place < buckets else place - size
