"""What an origin's robots.txt is worth that has moved to another site, from that site's record of it; pure.

Source: RFC 9309 section 2.3.1.2: a file within five redirects, "even across authorities", binds the first of them.
Nobody but its owner contacts a site, so the owner of the other site asks, and its answer is read from the store.
"""

from typing import Final

import msgspec

from node import robots
from shared import records, urls

HOPS_MAX: Final = 5  # RFC 9309 2.3.1.2
AGAIN_S: Final = 15.0  # at most, between two looks at the other site's record: each is a read of the store
OWN_FILE: Final = 9
ANY_FILE: Final = 5  # as links
ANSWER_S: Final = 3_600.0  # unanswered so long, the file counts as unreachable


def key_of(url: str) -> str:
    """Under what a robots answer is kept in the record of its site: the origin, for the origin's own /robots.txt."""
    origin = urls.origin_of(url)
    return origin if url == f"{origin}/robots.txt" else url


def of_origin(key: str) -> bool:
    """Whether what is kept under this key is an origin's own answer, and binds it."""
    return "/" not in key.partition("://")[2]


def priority(target: str, site: str) -> int:
    """How urgent it is to its site that others wait for this file; as a link, but for the file of the site itself.

    One site may have any number of origins that name other files of another: they are not to go before its pages.
    """
    host = urls.host_of(target)
    return OWN_FILE if of_origin(key_of(target)) and host in {site, f"www.{site}"} else ANY_FILE


def again_s(robots_error_ttl_s: float) -> float:
    """How long an origin waits for another site's answer before it looks again, and its URLs with it."""
    return min(AGAIN_S, robots_error_ttl_s)


def moved(
    target: str,
    *,
    hops: int,
    status: int,
    previous: records.RobotsRecord | None,
    now_ms: int,
    robots_error_ttl_s: float,
) -> records.RobotsRecord:
    """Nothing may be fetched until the other site's answer is there; the last good copy is kept for when none comes."""
    return records.RobotsRecord(
        verdict="disallow",
        body=previous.body if previous is not None and previous.good_ms else b"",
        status=status,
        fetched_ms=now_ms,
        expires_ms=now_ms + int(again_s(robots_error_ttl_s) * 1000),
        good_ms=previous.good_ms if previous is not None else 0,
        moved_to=target,
        moved_ms=now_ms,
        moved_hops=hops,
    )


def goes_on(theirs: records.RobotsRecord | None, *, now_ms: int, robots_ttl_s: float) -> bool:
    """Whether the other site's file has itself moved to another site, and that is no old news."""
    return theirs is not None and theirs.moved_ms > 0 and now_ms - theirs.moved_ms <= robots_ttl_s * 1000


def taken_over(
    mine: records.RobotsRecord,
    theirs: records.RobotsRecord | None,
    *,
    hops: int,
    now_ms: int,
    robots_ttl_s: float,
    robots_error_ttl_s: float,
) -> records.RobotsRecord:
    """The record of an origin that waits (`moved`), after a look at the record where its redirects end.

    An answer that still holds is ours, no longer than it holds there, nor than a day from our own redirect; too many
    redirects are "unavailable": allow; no answer yet: wait, or unreachable after ANSWER_S.
    """
    until_ms = mine.moved_ms + int(robots_ttl_s * 1000)
    if hops > HOPS_MAX:
        return records.RobotsRecord(
            verdict="allow", status=mine.status, fetched_ms=mine.fetched_ms, expires_ms=until_ms, moved_to=mine.moved_to
        )
    if theirs is not None and theirs.moved_ms == 0 and theirs.expires_ms > now_ms:
        until_ms = min(until_ms, theirs.expires_ms)
        if robots.refusal(theirs) == "robots_unreachable":
            found = robots.unreachable(mine, status=theirs.status, now_ms=now_ms, again_ms=until_ms)
            return msgspec.structs.replace(found, moved_to=mine.moved_to)
        return msgspec.structs.replace(
            theirs, fetched_ms=mine.fetched_ms, expires_ms=until_ms, moved_to=mine.moved_to, moved_hops=hops
        )
    if now_ms - mine.moved_ms >= ANSWER_S * 1000:
        again_ms = now_ms + int(robots_error_ttl_s * 1000)
        found = robots.unreachable(mine, status=mine.status, now_ms=now_ms, again_ms=again_ms)
        return msgspec.structs.replace(found, moved_to=mine.moved_to)
    return msgspec.structs.replace(mine, expires_ms=now_ms + int(again_s(robots_error_ttl_s) * 1000))
