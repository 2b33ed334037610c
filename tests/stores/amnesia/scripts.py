"""The frontier's scripts, each rule of theirs weakened by a change of their text; and what the exploration changes of all."""

import contextlib
import copy
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from shared import frontier

Change = tuple[str, str]

# The clock is the schedule's, and buckets hold little, so that they split.
ALL: tuple[Change, ...] = (
    ("redis.call('TIME')", "{redis.call('GET', 'schedule-clock'), 0}"),
    ("local SEEN_PER_BUCKET = 200", "local SEEN_PER_BUCKET = 3"),
    ("local PAGES_PER_BUCKET = 44", "local PAGES_PER_BUCKET = 2"),
    ("local DUE_AT_ONCE = 100", "local DUE_AT_ONCE = 2"),
)


@dataclass(frozen=True, slots=True)
class Mutation:
    script: str
    says: str
    changes: tuple[Change, ...]


MUTATIONS = {
    "commit-no-epoch": Mutation(
        "commit",
        "no check of the epoch: an earlier tenure's commit is applied",
        (("if asked.tenure < stored or (asked.tenure == stored and not held) then", "if false then"),),
    ),
    "claim-no-epoch": Mutation(
        "claim",
        "no check of the epoch: an earlier tenure is granted again",
        (("if asked.epoch < stored or (asked.epoch == stored and fields.owner ~= asked.node) then", "if false then"),),
    ),
    "claim-any-epoch": Mutation(
        "claim",
        "no check of the epoch: an earlier epoch takes the site back",
        (
            ("if asked.epoch < stored or (asked.epoch == stored and fields.owner ~= asked.node) then", "if false then"),
            ("if asked.epoch > stored then", "if asked.epoch ~= stored then"),
        ),
    ),
    "claim-begins-again": Mutation(
        "claim",
        "a claim that is repeated begins the tenure again",
        (("if asked.epoch > stored then", "if asked.epoch >= stored then"),),
    ),
    "claim-at-once": Mutation(
        "claim",
        "a claim does not lengthen the due",
        (("if number('due_ms') < due then", "if false then"),),
    ),
    "claim-own-delay": Mutation(
        "claim",
        "a claim waits the record's delay, though the minimum is longer",
        (("if number('delay_ms') < asked.delay_ms then", "if false then"),),
    ),
    "commit-no-n": Mutation(
        "commit",
        "no check of n: a commit that is repeated is applied again",
        (("if held and asked.n <= number('n') then", "if false then"),),
    ),
    "commit-same-n-only": Mutation(
        "commit",
        "only the last n is known as a repeat, not those before it",
        (("if held and asked.n <= number('n') then", "if held and asked.n == number('n') then"),),
    ),
    "commit-no-jump": Mutation(
        "commit",
        "a jump of n is not noticed: the store never forgot",
        (("local forgotten = not held or asked.n > number('n') + 1", "local forgotten = not held"),),
    ),
    "commit-no-lost-claim": Mutation(
        "commit",
        "a claim that was lost is not noticed",
        (("local forgotten = not held or asked.n", "local forgotten = held and asked.n"),),
    ),
    "forgotten-shortens": Mutation(
        "commit",
        "after the store forgot, the larger delay is not kept",
        (("if forgotten then floor = math.max(floor, number('delay_ms')) end", ""),),
    ),
    "due-moves-back": Mutation(
        "commit",
        "a commit sets its due, also an earlier one: a fenced commit shortens it",
        (("if number('due_ms') > due then return end", ""),),
    ),
    "fenced-due-dropped": Mutation(
        "commit",
        "a fenced commit's longer due is dropped",
        (("  lengthen_due()\n  if asked.delay_ms", "  if asked.delay_ms"),),
    ),
    "fenced-delay-dropped": Mutation(
        "commit",
        "a fenced commit's longer delay is dropped",
        (("if asked.delay_ms > number('delay_ms') then", "if false then"),),
    ),
    "carried-dropped": Mutation(
        "commit",
        "the owner may go below a delay that a fenced commit told",
        (("local floor = number('carried_ms')", "local floor = 0"),),
    ),
    "removed-from-the-end": Mutation(
        "commit",
        "a URL is removed by its place in the queue, not by its value",
        (
            (
                "redis.call('LREM', stem .. 'queue:' .. url[1], 1, url[2])",
                "(redis.call('LPOP', stem .. 'queue:' .. url[1]) and 1 or 0)",
            ),
        ),
    ),
    "page-counted-twice": Mutation(
        "commit",
        "a page's record is counted beside the one that it replaces",
        (("if old then count(old, -1) end", ""),),
    ),
    "commit-keeps-mark": Mutation(
        "commit",
        "a commit does not end the count of tenures at one page",
        (("if fields.try_code then", "if false then"),),
    ),
    "offer-unseen": Mutation(
        "offer",
        "an offer does not look at what was seen",
        (
            ("redis.call('SADD', bucket, digest) == 1", "redis.call('SADD', bucket, digest) >= 0"),
            ("redis.call('SADD', name, digests[1]) == 1", "redis.call('SADD', name, digests[1]) >= 0"),
            ("if there == 0 and not", "if not"),
        ),
    ),
    "try-no-tenure": Mutation(
        "try",
        "no check of the tenure: an earlier one leaves its mark",
        (
            (
                "if asked.tenure < stored or (asked.tenure == stored and fields.owner ~= asked.node) then return",
                "if false then return",
            ),
        ),
    ),
    "try-after-commit": Mutation(
        "try",
        "a call that runs late, after a commit of its tenure, leaves its mark",
        (("if number('n') > 0 then return {'TRIED', 0} end", ""),),
    ),
    "try-counts-repeats": Mutation(
        "try",
        "a repeat of the same tenure is counted again",
        (("ended = marked == stored and number('try_n') - 1 or number('try_n')", "ended = number('try_n')"),),
    ),
}


def changed(text: str, changes: tuple[Change, ...]) -> str:
    for what, instead in changes:
        assert what in text, f"the scripts no longer say {what!r}"
        text = text.replace(what, instead)
    return text


@contextlib.contextmanager
def weakened(mutation: str | None) -> Iterator[None]:
    """The scripts that a Frontier loads and runs, on the schedule's clock, one of them weakened."""
    kept = dict(frontier.SCRIPTS)
    weak = MUTATIONS[mutation] if mutation else None
    for name, script in kept.items():
        instead = copy.copy(script)
        instead.text = changed(script.text, ALL + (weak.changes if weak and weak.script == name else ()))
        instead.sha = hashlib.sha1(instead.text.encode(), usedforsecurity=False).hexdigest()
        frontier.SCRIPTS[name] = instead
    try:
        yield
    finally:
        frontier.SCRIPTS.update(kept)
