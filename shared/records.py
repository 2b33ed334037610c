"""The frozen values that cross a process border: etcd's, Redis', the logs'.

Units end the names of bare numbers. `None` is "not known", never zero.
"""

import math
import re
import typing
from typing import Annotated, Any, Literal, NamedTuple

import msgspec


# Type checkers learn here that every record is frozen and built by keyword: they do not look at the base.
@typing.dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Base of all records: immutable, built by keyword."""


# --- etcd: who takes part -------------------------------------------------------------------------------------------


class MemberValue(Record):
    """What a node writes under `members/<id>`."""

    weight: float
    address: str
    fingerprint: dict[str, str]


class Member(Record):
    """One member of a view; `incarnation` is the create revision of its member key."""

    incarnation: int
    weight: float
    address: str


class View(Record):
    """The agreed members. Its epoch is the etcd revision at which it was put, with `generation` above it."""

    members: dict[str, Member]
    overrides: dict[str, str] = {}
    fingerprint: dict[str, str] = {}
    generation: int = 0
    previous: int = 0
    """Revision of the view before this one; 0 for the first."""
    elders: tuple[tuple[str, int], ...] = ()
    """(node id, incarnation) of those that must be past this epoch before a gained site is claimed."""


class Beat(Record):
    """What a confirm writes under `beats/<incarnation>`."""

    node: str
    applied: int
    """Newest epoch whose losses are stopped and committed: the ack."""
    resigned: bool = False


# --- what one fetch came to -----------------------------------------------------------------------------------------


class Fetched(Record, tag="fetched"):
    """A whole answer with a body, of any status but 304 and redirects."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    """Decoded (gzip, deflate, br, zstd), at most `limits.body_bytes_max`."""
    truncated: str | None = None
    """None, or which limit or fault cut the body short: size, time, connection, encoding, type (not wanted), range
    (a 206 that nobody asked for)."""
    decoding: str | None = None
    """`mislabelled` where the body was not coded as its label says and was read all the same."""


class NotModified(Record, tag="not_modified"):
    """304: the page record stands."""

    status: int = 304
    headers: tuple[tuple[str, str], ...] = ()


class Redirected(Record, tag="redirected"):
    """3xx that points elsewhere; never followed inside the client."""

    status: int
    location: str
    """As it came; empty where there is none to believe: no Location, or two that differ."""
    headers: tuple[tuple[str, str], ...] = ()


class Refused(Record, tag="refused"):
    """Not asked for at all, and why: robots, private_address, scope, url."""

    reason: str


class Failed(Record, tag="failed"):
    """Asked for, and no whole answer came: dns, connect, tls (tls_expired, tls_self_signed, tls_wrong_host,
    tls_untrusted), timeout, disconnected, protocol, headers, aborted; or not asked for yet: crowded.
    """

    reason: str
    detail: str = ""


Outcome = Fetched | NotModified | Redirected | Refused | Failed


# --- the site's durable record in Redis -----------------------------------------------------------------------------


Role = Literal["page", "sitemap", "robots"]
"""What a URL was queued as: a page, a sitemap (read as one whatever its type), a robots.txt that another site uses."""


class PageRecord(Record, array_like=True):
    """One page's freshness, packed (msgpack array) into `pages:<bucket>` under the URL's digest."""

    etag: str | None = None
    last_modified: str | None = None
    content: int | None = None
    """63-bit digest of the body last seen."""
    checks: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Visits after the first."""
    changes: Annotated[int, msgspec.Meta(ge=0)] = 0
    observed_s: Annotated[float, msgspec.Meta(ge=0, le=1e12)] = 0.0
    """Seconds between the first and the last visit."""
    last_check_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    status: int = 0
    attempts: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Visits in a row that ended without an answer."""
    priority: Annotated[int, msgspec.Meta(ge=0, le=9)] = 5
    depth: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Links from a seed."""
    role: Role = "page"
    intervals: Annotated[tuple[Annotated[int, msgspec.Meta(ge=0, le=10**12)], ...], msgspec.Meta(max_length=96)] = ()
    """Between visits, by whether it had changed: see `node.rates`. () with `checks`: a record older than this field."""
    doubts: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Answers in a row that spoke against its validators (`node.revisit`)."""
    unproved: Annotated[int, msgspec.Meta(ge=0)] = 0
    """304s since its content was last compared, longer waits counting for more."""
    gone: Annotated[int, msgspec.Meta(ge=0)] = 0
    """404s and 410s in a row."""
    captured_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The WARC-Date of the record that holds the body its validators stand for; 0: no archive has it."""
    payload: Annotated[str, msgspec.Meta(max_length=32)] = ""
    """SHA-1 of that body as it was archived, in Base32: the scripts' reader of msgpack knows no binary."""


class RobotsRecord(Record, array_like=True):
    """One origin's robots answer, packed into `robots` under the origin. RFC 9309 section 2.3.1."""

    verdict: Literal["rules", "allow", "disallow"]
    """rules: parse `body`; allow: 4xx; disallow: 429, 5xx, unreachable."""
    body: bytes = b""
    status: int = 0
    fetched_ms: int = 0
    expires_ms: int = 0
    good_ms: int = 0
    """When `body` was last confirmed by a 200; 0 = never."""
    moved_to: str = ""
    """A robots.txt of another site that this one redirects to: asked for by that site's owner, read from its record."""
    moved_ms: int = 0
    """When that was first seen; 0 once the other site's answer has been taken over, or nothing moved."""
    moved_hops: int = 0
    """Redirects up to `moved_to`."""


class QueuedUrl(Record, gc=False):
    """One pending URL as read from the head of a site's queues."""

    url: str
    priority: int
    page: PageRecord | None = None
    meta: str = ""
    """What stands behind the URL in its queue (`trail`); "" for a page of depth 0, and for one that was visited."""

    @property
    def role(self) -> Role:
        return self.page.role if self.page and not self.meta else trail_of(self.meta).role

    @property
    def depth(self) -> int:
        """Links from a seed."""
        return self.page.depth if self.page and not self.meta else trail_of(self.meta).depth

    @property
    def hops(self) -> int:
        """Redirects since the last page that was none."""
        return trail_of(self.meta).hops


class Trail(NamedTuple):
    """How a URL was found."""

    role: Role = "page"
    depth: int = 0
    hops: int = 0


_ROLES: dict[str, Role] = {"": "page", "s": "sitemap", "r": "robots"}
_LETTERS = {role: letter for letter, role in _ROLES.items()}
_TRAIL = re.compile(r"([sr]?)([0-9]{0,4})(?:\.([0-9]{1,3}))?")


def trail(role: Role = "page", depth: int = 0, hops: int = 0) -> str:
    """As it stands in a queue, behind the URL and a space: `[s|r][depth][.hops]`; "" where all is as usual."""
    return f"{_LETTERS[role]}{min(depth, 9999) or ''}{f'.{min(hops, 999)}' if hops else ''}"


def trail_of(meta: str) -> Trail:
    """What `trail` wrote. Raises ValueError."""
    found = _TRAIL.fullmatch(meta)
    if found is None:
        raise ValueError(f"no trail: {meta[:20]!r}")
    return Trail(_ROLES[found[1]], int(found[2] or 0), int(found[3] or 0))


class Later(NamedTuple):
    """A URL that waits in `later`: a retry, or what a refusal put off."""

    url: str
    seconds: float
    priority: int
    meta: str = ""


class ContentRef(Record, array_like=True):
    """Where content of one digest was first fetched."""

    url: str
    fetched_ms: int


class SiteRecord(Record, gc=False):
    """What `claim` and `commit` hand back; times are seconds from the moment of the store's answer."""

    site: str
    owner: str | None
    """The owner before this claim; None for a site that nobody has owned."""
    owner_epoch: int
    """The tenure before this claim; 0 for none."""
    n: int
    """Running number of the last commit of this tenure."""
    pending: int
    later: int
    later_in_s: float | None
    """Seconds until the first of `later` falls due; None without any."""
    head: tuple[QueuedUrl, ...]
    due_in_s: float
    """Never negative."""
    due_ms: int
    due_term: str
    delay_s: float
    delay_term: str
    backoff: int
    """Consecutive answers that asked for a pause; 0 = none."""
    last_fetch_ms: int | None
    pages: int
    """Page visits committed, recrawls included."""
    seen: int
    validators: int
    """Pages with an ETag or a Last-Modified."""
    checks: int
    changes: int
    observed_s: float
    answered_ms: int
    """The store's TIME at the answer."""
    barren: bool = False
    """The tenure before this one ended without any commit, and had had the time for one."""
    page_records: int = 0
    """Pages visited at least once, and still remembered."""
    bytes: int = 0
    """Of all bodies, as received."""
    price: float = 0.0
    """The index at which this site's pages are visited again (`node.revisit`); 0 = not known yet."""
    endless: tuple[str, ...] = ()
    """Patterns of URLs that were found to have no end (`node.traps`)."""


class Committed(Record):
    """The answer to a commit."""

    record: SiteRecord
    repeated: bool = False
    """This running number had been applied before; nothing changed."""
    forgotten: bool = False
    """The store was behind: it lost commits, and now holds what this one said."""
    verdicts: tuple[str, ...] = ()
    """What became of each offer that came with it, in their order."""


class Commit(Record):
    """All that one visit changes of a site, applied in one step."""

    done: tuple[QueuedUrl, ...] = ()
    """Leave the queue."""
    later: tuple[Later, ...] = ()
    """Retries, seconds from now."""
    fresh: tuple[tuple[str, float], ...] = ()
    """(url, seconds from now): visited again in a recrawl slot, the earliest first."""
    fresh_gap_s: float = 0.0
    """Between two recrawl slots; 0 = nothing is visited again."""
    fresh_min_s: float = 0.0
    """No page is visited again sooner."""
    price: float = 0.0
    bytes: int = 0
    """Of this visit's body, as received."""
    endless: tuple[str, ...] | None = None
    """Replaces the record's; None leaves it."""
    pages: tuple[tuple[str, PageRecord], ...] = ()
    robots: tuple[tuple[str, RobotsRecord], ...] = ()
    due_in_s: float = 0.0
    due_term: str = ""
    delay_s: float = 0.0
    delay_term: str = ""
    backoff: int = 0
    fetched_ms_ago: int | None = None
    """Milliseconds since the request started; None when nothing was sent."""
    visits: int = 0
    """Page visits (robots.txt does not count)."""
    set_aside: tuple[tuple[str, str], ...] = ()
    """(url, reason): given up; kept countable in the record."""
    ahead: int = 8
    """URLs of the head that the answer hands out, at most 8: each costs the store a look at its page."""


class Offer(Record):
    """A URL found or seeded, with its site and position worked out by the offerer."""

    url: str
    site: str
    score: int
    """Top 48 bits of the site's ring position."""
    priority: int = 5
    again: bool = False
    """Queue it even if it was seen (fetch-now, a page to look at again)."""
    changed_ms: int = 0
    """The site says that it changed then: a page looked at before that comes next among recrawls. 0 = not said."""
    meta: str = ""
    """See `trail`."""


# --- the handoff log ------------------------------------------------------------------------------------------------

Cause = Literal["joined", "drained", "lease_lost", "restarted", "override"]
Settled = Literal["ack", "resigned", "time"]


class Handoff(Record):
    """One line of the handoff log; a `first_fetch` line repeats its `moved` line, filled in."""

    kind: Literal["moved", "first_fetch", "epoch"]
    time_ms: int
    epoch: int
    node: str
    """Who wrote the line."""
    site: str | None = None
    cause: str | None = None
    from_node: str | None = msgspec.field(default=None, name="from")
    to: str | None = None
    settled_by: str | None = None
    pending: int | None = None
    validators: int | None = None
    change_rate: float | None = None
    """Changes per page and day; None before the second visit of any page."""
    last_fetch_ms: int | None = None
    due_ms: int | None = None
    due_term: str | None = None
    delay_ms: int | None = None
    first_fetch_ms: int | None = None
    gap_ms: int | None = None
    """From the last committed fetch to the first of this tenure."""
    before: tuple[str, ...] | None = None
    """epoch lines: members before."""
    after: tuple[str, ...] | None = None
    arcs: int | None = None
    sites: int | None = None
    moved_fraction: float | None = None
    ideal_fraction: float | None = None


class CrawlLine(Record):
    """One request in `crawl-<node>.jsonl`; gap = start minus the previous start of the site; robots.txt counts."""

    start_ms: int
    site: str
    url: str
    node: str
    epoch: int
    tenure: int
    status: int | None
    outcome: str
    visit: Literal["first", "recrawl", "retry", "robots"]
    bytes: int
    ms: int
    delay_ms: int
    """What was required before this request."""
    due_term: str
    clock_error_ms: int


class Pauses(Record):
    """What the operator has paused; `version` grows with every pause and resume."""

    version: int = 0
    sites: frozenset[str] = frozenset()
    """`*` for all."""


class NodeReport(Record):
    """A node's own figures, under `report:<node>` in Redis, a second old at most while it runs."""

    id: str
    incarnation: int
    epoch: int
    weight: float
    address: str
    time_ms: int
    state: str
    """joining, member, paused (a store is lost), draining."""
    sites: int = 0
    """Owned, as far as they are known."""
    held: int = 0
    """Of them in memory."""
    unlooked: int = 0
    """Of those out of memory, how many may have something to do."""
    pending: int = 0
    later: int = 0
    in_flight: int = 0
    pages: int = 0
    requests: int = 0
    unclaimed: int = 0
    """Sites known but not yet claimed; pending URLs may hide there."""
    confirm_age_s: float = 0.0
    fenced: int = 0
    late_contacts: int = 0
    smallest_gap_ratio: float | None = None
    later_in_s: float | None = None
    scope: str = ""
    """Digest of the operator's scope rules: nodes should not differ in it."""
    scope_version: int = 0
    """Which of the rules that came with seeds it has (`frontier.Scopes`)."""
    pause_version: int = 0
    """Up to which pause or resume it knows what is paused."""


def encode_json(value: Any) -> bytes:
    """One compact JSON document."""
    return msgspec.json.encode(value)


def change_rate(checks: int, changes: int, observed_s: float) -> float | None:
    """Changes per page and day from pooled visits, None before any second visit.

    Cho and Garcia-Molina, "Estimating frequency of change" (TOIT 3(3), 2003): -ln((n - X + 0.5) / (n + 0.5))
    changes per mean interval; unlike X / n it does not run into a wall when every visit finds a change.
    """
    if checks <= 0 or observed_s <= 0:
        return None
    per_interval = max(0.0, -math.log((max(checks - changes, 0) + 0.5) / (checks + 0.5)))
    return per_interval / (observed_s / checks / 86_400)
