"""How the frontier's scripts are asked and how their answers read: pure, it knows no store.

A script gets one msgpack document, packed and taken apart in C, where a list of arguments would be packed one
by one in Python. It answers with an array of byte strings.
"""

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from shared import errors, records, scope, urls

Arguments = tuple[bytes, ...]
MICRO = 1_000_000  # a price is kept in millionths: the scripts' numbers are whole
VERDICTS = {"A": "accepted", "K": "known", "C": "changed", "F": "full", "D": "damaged"}
HEADS_KEPT = 4_096  # origins whose short form is remembered: pages name the same ones again
HASH_RANGE = 1 << 22  # as site.lua has it: a URL's digest modulo this chooses its bucket
DAMAGED = b"D"  # said in place of a script that could not say anything

# As much of the canonical form as the node's steps rely on.
_URL = re.compile(r"https?://[a-z0-9_.:\[\]-]+/[!-~]*")

_pack = msgspec.msgpack.Encoder().encode
_page_decoder = msgspec.msgpack.Decoder(records.PageRecord)
_robots_decoder = msgspec.msgpack.Decoder(records.RobotsRecord)
_content_decoder = msgspec.msgpack.Decoder(records.ContentRef)
_rules_decoder = msgspec.msgpack.Decoder(tuple[scope.SeedRule, ...])


class Share(NamedTuple):
    """URLs of one site that go to the store in one call."""

    site: str
    at: Sequence[int]
    """Their places among the offers."""


def shares(offers: Sequence[records.Offer], *, most: int, together: bool) -> list[list[Share]]:
    """The calls that take these offers, at most so many URLs in each; `together`: of any number of sites."""
    by_site: dict[str, list[int]] = defaultdict(list)
    for at, offer in enumerate(offers):
        by_site[offer.site].append(at)
    calls: list[list[Share]] = []
    room = 0
    for site, whole in by_site.items():
        for begin in range(0, len(whole), most):
            share = Share(site, whole[begin : begin + most])
            if not together or len(share.at) > room:
                calls.append([])
                room = most
            calls[-1].append(share)
            room -= len(share.at)
    return calls


def offers(
    call: Sequence[Share],
    offers: Sequence[records.Offer],
    *,
    stem: str,
    pages_max: int,
    owner_of: Callable[[str], str | None] | None,
) -> dict[str, Any]:
    """The document of offer.lua, flat: each name and each number in it costs the store time.

    `owner_of`: the script sees to the index and the owners' hints too.
    """
    sites: list[str | int] = []
    flat: list[str | int] = []
    inboxes: dict[str, int] = {}
    changes: dict[int, int] = {}
    for site, places in call:
        owner = owner_of(site) if owner_of else None
        inbox = inboxes.setdefault(owner, len(inboxes) + 1) if owner is not None else 0
        sites += (site, offers[places[0]].score if owner_of else 0, inbox, len(places))
        for at in places:
            offer = offers[at]
            digest = urls.digest(offer.url)
            how = _priority(offer.priority) + (20 if offer.meta[:1] == "r" else 10 if offer.again else 0)
            if offer.changed_ms:
                changes[len(flat) + 1] = offer.changed_ms
            flat += (str(digest), digest % HASH_RANGE, how, _code(offer.url, site, offer.meta))
    return {
        "max": pages_max,
        "stem": stem,
        "sites": sites,
        "inboxes": [f"{stem}inbox:{node}" for node in inboxes],
        "urls": flat,
        "changes": changes or None,
    }


def offer(document: dict[str, Any]) -> Arguments:
    """What offer.lua takes."""
    return (_pack(document),)


def claim(node: str, epoch: int, *, delay_s: float) -> Arguments:
    return (_pack({"node": node, "epoch": epoch, "delay_ms": _ms(delay_s)}),)


def attempt(site: str, node: str, *, tenure: int, url: str) -> Arguments:
    """What try.lua takes."""
    return (_pack({"node": node, "tenure": tenure, "code": urls.compact(url, site)}),)


def commit(
    site: str,
    node: str,
    *,
    tenure: int,
    n: int,
    change: records.Commit,
    offers: dict[str, Any] | None = None,
    remember: tuple[str, bytes, records.ContentRef] | None = None,
) -> Arguments:
    """What commit.lua takes. `offers`: the document of offer.lua; `remember`: key, digest and place of a content."""

    def code(url: str, meta: str = "") -> str:
        return _code(url, site, meta)

    document = _pack(
        {
            "node": node,
            "tenure": tenure,
            "n": n,
            "due_in_ms": _ms(change.due_in_s),
            "due_term": change.due_term,
            "delay_ms": _ms(change.delay_s),
            "delay_term": change.delay_term,
            "backoff": change.backoff,
            "fetched_ms_ago": -1 if change.fetched_ms_ago is None else max(0, change.fetched_ms_ago),
            "visits": change.visits,
            "done": [(_priority(url.priority), code(url.url, url.meta)) for url in change.done],
            "later": [
                (_ms(in_s), _priority(priority), code(url, *meta)) for url, in_s, priority, *meta in change.later
            ],
            "fresh": [(_ms(in_s), code(url)) for url, in_s in change.fresh],
            "fresh_gap_ms": _ms(change.fresh_gap_s),
            "fresh_min_ms": _ms(change.fresh_min_s),
            "price": round(change.price * MICRO),
            "bytes": change.bytes,
            "endless": None if change.endless is None else " ".join(change.endless),
            "pages": [code(url) for url, _ in change.pages],
            "robots": [origin for origin, _ in change.robots],
            "aside": sorted(Counter(reason for _, reason in change.set_aside).items()) if change.set_aside else (),
            "content": remember[0] if remember else None,
            "offers": offers,
            "ahead": change.ahead,
        }
    )
    # Packed records travel beside the document: the scripts' msgpack knows no byte strings.
    pages = (_pack(page) for _, page in change.pages)
    return (
        document,
        *pages,
        *(_pack(one) for _, one in change.robots),
        *((remember[1], _pack(remember[2])) if remember else ()),
    )


def verdicts(letters: bytes) -> list[str]:
    """What became of each offer, in the order of the offers."""
    return [VERDICTS[letter] for letter in letters.decode()]


@contextmanager
def reading(site: str) -> Iterator[None]:
    """Whatever cannot be read of the store's bytes is DamagedSite: errors of one site are no errors of the node."""
    try:
        yield
    except (ValueError, KeyError, IndexError, TypeError, OverflowError) as error:
        raise errors.DamagedSite(f"{site}: {type(error).__name__}: {error}") from error


def names(raws: Iterable[bytes]) -> list[str]:
    """The names that are text; another is no site that was ever offered."""
    found = []
    for raw in raws:
        try:
            found.append(raw.decode())
        except UnicodeDecodeError:
            continue
    return found


def fields_of(answer: Sequence[Any]) -> dict[str, str]:
    """The site's hash, by field."""
    flat: list[bytes] = answer[2]
    return {name.decode(): value.decode() for name, value in zip(flat[::2], flat[1::2], strict=True)}


def site_record(site: str, answer: Sequence[Any]) -> records.SiteRecord:
    """The answer of a script as site.lua describes it. Raises DamagedSite."""
    with reading(site):
        return _site_record(site, answer)


def _site_record(site: str, answer: Sequence[Any]) -> records.SiteRecord:
    now_ms = int(answer[1])
    fields = fields_of(answer)

    def number(name: str) -> int:
        return int(fields.get(name, "0"))

    return records.SiteRecord(
        site=site,
        owner=fields.get("prev_owner") or None,
        owner_epoch=number("prev_epoch"),
        n=number("n"),
        pending=number("pending"),
        later=answer[3],
        later_in_s=max(0.0, (float(answer[4]) - now_ms) / 1000) if answer[4] else None,
        head=_head(site, answer[5]),
        due_in_s=max(0.0, (number("due_ms") - now_ms) / 1000),
        due_ms=number("due_ms"),
        due_term=fields.get("due_term", ""),
        delay_s=number("delay_ms") / 1000,
        delay_term=fields.get("delay_term", ""),
        backoff=number("backoff"),
        last_fetch_ms=number("last_fetch_ms") or None,
        pages=number("pages"),
        seen=number("seen_n"),
        validators=number("validators"),
        checks=number("checks"),
        changes=number("changes"),
        observed_s=number("observed_ms") / 1000,
        answered_ms=now_ms,
        barren=number("barren") > 0,
        page_records=number("pages_n"),
        bytes=number("bytes"),
        price=number("price") / MICRO,
        endless=tuple(fields.get("endless", "").split()),
    )


def look(site: str, answer: Sequence[Any]) -> dict[str, Any]:
    """What `crawlring site --json` tells, all but the robots answers. Raises DamagedSite."""
    with reading(site):
        return _look(site, answer)


def _look(site: str, answer: Sequence[Any]) -> dict[str, Any]:
    record = _site_record(site, answer)
    fields = fields_of(answer)
    aside = {name.removeprefix("aside:"): int(n) for name, n in fields.items() if name.startswith("aside:")}
    tenure = int(fields.get("epoch", "0"))
    return {
        "site": site,
        "owner": fields.get("owner"),
        "epoch": tenure,
        "tenure": tenure,
        "pending": record.pending,
        "head": [url.url for url in record.head],
        "later": record.later,
        "seen": record.seen,
        "validators": record.validators,
        "last_fetch_ms": record.last_fetch_ms,
        "due_ms": record.due_ms or None,
        "due_term": record.due_term or None,
        "delay_ms": int(fields["delay_ms"]) if "delay_ms" in fields else None,
        "delay_term": record.delay_term or None,
        "backoff": record.backoff,
        "change_rate": records.change_rate(record.checks, record.changes, record.observed_s),
        "pages": record.pages,
        "page_records": record.page_records,
        "bytes": record.bytes,
        "endless": record.endless,
        "set_aside": aside,
    }


def robots(packed: bytes | None) -> records.RobotsRecord | None:
    """A robots answer; what does not read is as good as none, since asking again is harmless."""
    if packed is None:
        return None
    try:
        return _robots_decoder.decode(packed)
    except msgspec.DecodeError:
        return None


def packed(record: records.Record) -> bytes:
    return _pack(record)


def content(packed: bytes | None) -> records.ContentRef | None:
    """What does not read is as good as none: the content is kept once more."""
    if packed is None:
        return None
    try:
        return _content_decoder.decode(packed)
    except msgspec.DecodeError:
        return None


def packed_rules(rules: Sequence[scope.SeedRule]) -> bytes:
    """One batch of seeds' rules."""
    return _pack(rules)


def seed_rules(packed: bytes | None) -> tuple[scope.SeedRule, ...]:
    """A batch of rules; what does not read admits nothing."""
    try:
        return _rules_decoder.decode(packed) if packed else ()
    except msgspec.DecodeError:
        return ()


def _page(packed: bytes) -> records.PageRecord | None:
    # A page record that does not read must not keep its site asleep: the page is fetched as a new one.
    try:
        return _page_decoder.decode(packed) if packed else None
    except msgspec.DecodeError:
        return None


def _head(site: str, flat: Sequence[Any]) -> tuple[records.QueuedUrl, ...]:
    return tuple(
        _queued(code.decode(), site, priority=priority, page=_page(packed))
        for priority, code, packed in zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    )


def _queued(code: str, site: str, *, priority: int, page: records.PageRecord | None) -> records.QueuedUrl:
    short, _, meta = code.partition(" ")
    records.trail_of(meta)
    return records.QueuedUrl(url=_url(short, site), priority=priority, page=page, meta=meta)


def _code(url: str, site: str, meta: str) -> str:
    """A URL as it stands in a queue: its short form, and how it was found where that is worth telling."""
    path = url.find("/", len("https://"))
    short = _head_of(url[:path], site) + url[path:]
    return f"{short} {meta}" if meta else short


@functools.lru_cache(maxsize=HEADS_KEPT)
def _head_of(origin: str, site: str) -> str:
    """What `urls.compact` makes of all that stands before a path; it leaves the path as it is."""
    return urls.compact(f"{origin}/", site)[:-1]


def _url(code: str, site: str) -> str:
    """A queue's URL; one that its own commit could not take from the queue again would be asked for for ever (P3)."""
    url = urls.expand(code, site)
    if _URL.fullmatch(url) is None or urls.compact(url, site) != code:
        raise ValueError(f"no URL of the queue: {code[:80]!r}")
    return url


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))


def _priority(priority: int) -> int:
    if not 0 <= priority <= 9:
        raise ValueError(f"priority {priority} is not 0 to 9")
    return priority
