"""Schedules from a seed: what nodes ask of the store, what becomes of the question and of its answer, and when the store forgets.

A schedule is a list of moves that runs with any of them left out, so that a failing one can be made short. What a move
asks for is worked out when it is its turn, from what its node knows then.
"""

import random
from dataclasses import dataclass
from typing import Any

from shared import records

SITES = ("example.com", "example.org")
NODES = ("n1", "n2", "n3")
CLASSES = (0, 5, 9)
URLS, PAGES_MAX = 24, 20
DELAY_S = 2.0


@dataclass(frozen=True, slots=True)
class Move:
    """One step of a schedule; `number` is its name, and the name of the call that it makes."""

    number: int
    kind: str
    node: str = ""
    site: str = ""
    salt: int = 0
    """What the move's own choices are drawn from; or the move whose call is repeated; or seconds; or how far back."""
    fate: str = "heard"
    """heard; unheard: done, and the answer was lost; lost: never done, yet."""


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    strict: bool
    moves: tuple[Move, ...]
    honest: bool = True
    """False: the store answers as a strict one does, and is none."""


def drawn(record: records.SiteRecord, rng: random.Random) -> records.Commit:
    """What a visit of some of the head came to."""
    visited = record.head[: rng.choice((0, 1, 1, 1, 2, 3))]
    later, fresh, pages, aside = [], [], [], []
    for one in visited:
        what = rng.choice(("finished", "recrawl", "retry", "aside"))
        if what == "aside":
            aside.append((one.url, rng.choice(("robots", "three_tenures"))))
            continue
        etag = rng.choice((None, '"a"', '"b"'))
        checks = (one.page.checks + 1) if one.page else rng.randrange(3)
        page = records.PageRecord(
            etag=etag,
            checks=checks,
            changes=rng.randint(0, checks),
            observed_s=rng.randrange(90) / 2,
            priority=one.priority,
        )
        pages.append((one.url, page))
        if what == "recrawl":
            fresh.append((one.url, rng.choice((0.0, 60.0, 600.0))))
        elif what == "retry":
            later.append(records.Later(one.url, rng.choice((0.0, 0.0, 3.0, 20.0, 3600.0)), one.priority, one.meta))
    delay_s, term = rng.choice(
        ((DELAY_S, "minimum"), (DELAY_S, "minimum"), (9.0, "crawl_delay"), (30.0, "crawl_delay"), (40.0, "duration"))
    )
    robots = rng.random() < 0.2
    return records.Commit(
        done=visited,
        later=tuple(later),
        fresh=tuple(fresh),
        fresh_gap_s=rng.choice((0.0, 1.0, 30.0)),
        pages=tuple(pages),
        robots=((f"https://www.{record.site}", records.RobotsRecord(verdict="allow")),) if robots else (),
        due_in_s=delay_s + rng.choice((0.0, 0.0, 50.0)),
        due_term=term,
        delay_s=delay_s,
        delay_term=term,
        backoff=rng.randrange(2),
        fetched_ms_ago=rng.randrange(2000) if pages else None,
        visits=len(pages),
        set_aside=tuple(aside),
    )


def planned(seed: int, *, length: int = 40) -> Plan:
    """Odd seeds are strict."""
    rng = random.Random(seed)
    strict = seed % 2 == 1
    nodes, sites = NODES[: rng.randint(2, 3)], SITES[: rng.randint(1, 2)]
    moves: list[Move] = []

    owners = dict.fromkeys(sites, nodes[0])
    calls: list[int] = []

    def add(kind: str, *, salt: int | None = None, fate: str = "", node: str = "", site: str = "") -> None:
        fate = fate or rng.choices(("heard", "unheard", "lost"), (8, 3, 1))[0]
        salt = rng.randrange(1 << 30) if salt is None else salt
        site = site or rng.choice(sites)
        node = node or (owners[site] if kind != "view" and rng.random() < 0.8 else rng.choice(nodes))
        if kind == "view":
            owners[site] = node
        if kind in {"offer", "view", "commit", "attempt"}:
            calls.append(len(moves))
        moves.append(Move(len(moves), kind, node, site, salt, fate))
        if kind in {"view", "commit"} and fate != "heard" and rng.random() < 0.7:
            add("retry", node=node, site=site, fate="heard")

    def death(site: str) -> None:
        """A tenure that outlives its due and commits nothing; the next notes its page."""
        add("tick", salt=120)
        add("view", site=site, fate="heard")
        add("attempt", node=owners[site], site=site)

    def lapse(site: str) -> None:
        """What strict durability may lose too: done, not answered, lost, and asked for again."""
        kind = rng.choice(("commit", "commit", "view"))
        add(kind, node=owners[site], site=site, fate="unheard")
        add("forget", salt=0, fate="level")
        add("retry", node=owners[site], site=site, fate="heard")

    for site in sites:
        add("offer", site=site)
        add("view", site=site, fate="heard")
    kinds = {"offer": 4, "commit": 16, "view": 4, "resend": 9, "tick": 4, "save": 2, "forget": 2, "reclaim": 1}
    while len(moves) < length:
        kind = rng.choices([*kinds, "attempt", "death", "lapse"], [*kinds.values(), 1, 1, 1])[0]
        match kind:
            case "resend":
                # Half of them soon after, the others at any time.
                add(kind, salt=rng.choice(calls[-3:] if rng.random() < 0.5 else calls))
            case "tick":
                add(kind, salt=rng.choice((1, 3, 10, 60)))
            case "forget":
                add(kind, fate=rng.choice(("level", "level", "behind")))
            case "death":
                site = rng.choice(sites)
                for _ in range(rng.randint(1, 4)):
                    death(site)
            case "lapse":
                lapse(rng.choice(sites))
            case _:
                add(kind)
    return Plan(seed, strict, tuple(moves))


def number_of(url: str) -> str:
    return url.rpartition("/")[2]


def shown(change: records.Commit) -> str:
    later = ", ".join(f"{number_of(url)} in {in_s:.0f} s" for url, in_s, *_ in change.later)
    done = " ".join(number_of(one.url) for one in change.done)
    return f"done [{done}] later [{later}] due in {change.due_in_s:.0f} s, delay {change.delay_s:.0f} s by {change.delay_term}"


def spoken(answer: Any) -> str:
    match answer:
        case None:
            return "refused"
        case records.SiteRecord():
            head = " ".join(number_of(one.url) for one in answer.head)
            return f"granted, n {answer.n}, head [{head}], due in {answer.due_in_s:.0f} s{', barren' if answer.barren else ''}"
        case records.Committed():
            word = "repeated" if answer.repeated else "forgotten" if answer.forgotten else "applied"
            return f"{word}, head [{' '.join(number_of(one.url) for one in answer.record.head)}], due in {answer.record.due_in_s:.0f} s"
        case list():
            return " ".join(answer)
        case _:
            return str(answer)
