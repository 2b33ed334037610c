"""P1 as a site's web server sees it: pairs of requests that start too close; and a run told so that one can follow it."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

DELAY_S = 1.0
EXACT_S = 1e-6


@dataclass(frozen=True, slots=True)
class Contact:
    """One request as it reaches the site."""

    at: float
    site: str
    node: str
    tenure: int
    why: str = ""
    """Why the process thought that it might; only where a run is told."""


Pair = tuple[Contact, Contact]


def judge(contacts: Iterable[Contact]) -> list[Pair]:
    """Pairs of contacts of one site that start closer than its delay."""
    by_site: dict[str, list[Contact]] = {}
    for contact in sorted(contacts, key=lambda contact: contact.at):
        by_site.setdefault(contact.site, []).append(contact)
    return [pair for row in by_site.values() for pair in itertools.pairwise(row) if too_close(*pair)]


def too_close(one: Contact, other: Contact) -> bool:
    return abs(other.at - one.at) < DELAY_S - EXACT_S


def moves(contacts: Iterable[Contact]) -> int:
    """How often a site was visited by another tenure than before."""
    last: dict[str, int] = {}
    count = 0
    for contact in sorted(contacts, key=lambda contact: contact.at):
        count += last.get(contact.site, contact.tenure) != contact.tenure
        last[contact.site] = contact.tenure
    return count


def transcript(told: Iterable[tuple[float, str, str]], pair: Pair, *, head: str = "") -> str:
    """Time, who, what happened; then the two requests that came too close and why each was thought allowed."""
    first, second = pair
    lines = [head] if head else []
    lines += [f"{at:8.2f}  {who:<5} {what}" for at, who, what in sorted(told, key=lambda line: line[0])]
    lines += [
        "",
        f"{first.site}: two requests {second.at - first.at:.3f} s apart, {DELAY_S:g} s are owed",
        f"{first.at:8.2f}  {first.node:<5} {first.why}",
        f"{second.at:8.2f}  {second.node:<5} {second.why}",
    ]
    return "\n".join(lines)
