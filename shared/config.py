"""The one configuration tree: TOML, then `CRAWLRING_*` variables, then options; frozen, unknown keys refused.

Every field has its unit in its name, a default, and the reason for the default in its docstring.
"""

import ipaddress
import math
import os
import re
import tomllib
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from shared import errors

Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(gt=0)]

ENV_PREFIX = "CRAWLRING_"
SHORT_ENV = {"ETCD": "etcd", "REDIS": "redis", "CLUSTER": "cluster"}
WIRE_MIN_S = 2.25  # the guard's check of 0.25 s and TCP_USER_TIMEOUT's 2 s
OTHER_ENV = ("CRAWLRING_CONFORMANCE",)  # the tests' own, not ours
HIDDEN = "***"  # stands for a secret wherever one would show
LISTS = (
    "sites.private_suffixes",
    "sites.drop_params",
    "node.listen_names",
    "politeness.address_exempt",
    "scope.allow",
    "scope.deny",
    "scope.content_types",
)  # in a variable: names with commas between


# Type checkers learn here that every table is frozen and built by keyword: they do not look at the base.
@typing.dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of the TOML file."""


class Membership(Section):
    lease_ttl_s: Annotated[int, msgspec.Meta(ge=3)] = 10
    """etcd keeps a silent node's key this long; shorter finds deaths sooner, and takes a busy machine for dead."""
    view_lease_s: Positive = 5.0
    """VL: authority lasts this long from the sending of a confirm; longer survives longer etcd outages."""
    wire_s: Positive = 2.25
    """G: from the guard's clock read to the last byte the kernel may send: 0.25 s check + 2 s TCP_USER_TIMEOUT."""
    confirm_s: Positive = 1.0
    """Between confirms; four may be lost within VL."""
    call_s: Positive = 0.8
    """Deadline of one etcd call; under VL / 5 so that an endpoint can be changed in time."""
    gather_s: Positive = 1.0
    """Joins are gathered this long, so that a cluster's start is one view; losses are never held back."""
    rejoin_s: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    """After a lost lease, so that the failure can be watched; at once if nobody else is alive."""
    stop_s: Positive = 5.0
    """What is in flight on a lost site may finish this long, then it is reset."""
    drain_s: Positive = 30.0
    """A drain takes at most this long, then it is as a crash."""


class EtcdSecurity(Section):
    ca_file: str = ""
    """PEM of the authority that signed etcd's certificates; empty: the machine's own list. For https:// addresses."""
    cert_file: str = ""
    """PEM of our certificate, where etcd wants one; its common name is then our user, if etcd has users."""
    key_file: str = ""
    """PEM of its key."""
    user: str = ""
    """Name of the user, where etcd has users; its role needs read and write on /crawlring/<cluster>/, nothing else."""
    password_file: str = ""
    """File whose first line is the user's password; read again at each login, so that it can be changed."""
    password: str = ""
    """The password itself, for CRAWLRING_ETCD_SECURITY__PASSWORD; a file is seen by fewer."""

    def __repr__(self) -> str:
        return f"EtcdSecurity(user={self.user!r})"


class RingSettings(Section):
    algorithm: str = "xxh3-64"
    """xxh3-64, or the articles' sha1-64 and md5-32."""
    vnodes: Count = 1024
    """Points of a node of weight 1: with 10,000 sites the busiest of 16 nodes has 1.09 of the mean (256: 1.13)."""


class SiteSettings(Section):
    private_suffixes: tuple[str, ...] = ()
    """Private suffixes (github.io) that count as public: each name below them is then a site of its own."""
    drop_params: tuple[str, ...] = ()
    """Query parameters taken off every URL that is queued (utm_source): pages that differ only by them are one."""
    drop_session_ids: bool = False
    """Take session ids of known shapes (jsessionid, PHPSESSID, (S(...))) off every URL that is queued; a site may need
    them."""
    sitemaps: bool = True
    """Read the sitemaps that robots.txt names, as a source of URLs and of what changed."""
    aliases: dict[str, str] = {}
    """Host -> the host it is another name of: its URLs are queued, placed and asked for under that name."""


class Identity(Section):
    user_agent: str = ""
    """Product token and contact, as in `Name/1.0 (+https://example.org/bot)`; there is no silent default."""


class Politeness(Section):
    delay_min_s: Positive = 2.0
    """From the end of one fetch to the start of the next on a site; between StormCrawler's 1 s and Heritrix' 3 s."""
    delay_cap_s: Positive = 300.0
    """Crawl-delay above it is cut to it, and logged; crawler-commons caps at the same 300 s."""
    duration_factor: Annotated[float, msgspec.Meta(ge=0)] = 1.0
    """The delay is at least this many times the last fetch's duration: a slow site is left alone longer."""
    jitter: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Random share of the delay added to it; jitter only adds."""
    backoff_min_s: Positive = 60.0
    """First pause after a 429 or 503 without Retry-After, doubling."""
    backoff_cap_s: Positive = 86_400.0
    """Longest pause, Retry-After included: a day."""
    robots_ttl_s: Positive = 86_400.0
    """RFC 9309 2.4: robots.txt is not used longer than a day."""
    robots_error_ttl_s: Positive = 3_600.0
    """After an unreachable robots.txt, when to ask again."""
    robots_forbidden: Literal["allow", "deny"] = "allow"
    """What a robots.txt answered by 401 or 403 means: RFC 9309 lets all be fetched, some sites mean the opposite."""
    address_delay_s: Annotated[float, msgspec.Meta(ge=0)] = 0.1
    """Between two requests of this node to one address, whatever the sites: one machine often hosts hundreds. 0: none.
    `connect_to` and loopback addresses are exempt."""
    address_exempt: tuple[str, ...] = ()
    """Networks (192.0.2.0/24) without that limit: a content delivery network has one address for many machines."""


class Limits(Section):
    body_bytes_max: Count = 10 * 1024 * 1024
    """Decoded; the rest is dropped and the page marked truncated."""
    robots_bytes_max: Count = 500 * 1024
    """RFC 9309 2.5: at least 500 KiB."""
    header_bytes_max: Count = 64 * 1024
    """One header line; some sites send a policy of this size."""
    connect_s: Positive = 10.0
    """One address, one try."""
    first_byte_s: Positive = 30.0
    """From the request to the first byte of the answer."""
    total_s: Positive = 60.0
    """One fetch, body included; endless pages end here."""
    url_bytes_max: Count = 2_048
    """Longer ones are traps as a rule."""
    path_depth_max: Count = 32
    """Path segments of a URL."""
    path_repeats_max: Count = 3
    """One segment standing more often than this in a path is a trap."""
    links_per_page_max: Count = 5_000
    """The rest of a page's links is dropped."""
    pages_per_site_max: Count = 1_000_000
    """URLs ever accepted for one site."""
    attempts_max: Count = 4
    """Visits of one URL that ended without an answer before it is set aside."""
    redirects_max: Count = 5
    """Redirects in a row, each a URL of its own, before the next is set aside as a loop; browsers stop at 20."""
    alike_max: Count = 200
    """Pages of one URL pattern that all say the same before the pattern counts as endless: a calendar, a session id."""
    sitemap_bytes_max: Count = 50 * 1024 * 1024
    """The protocol's own limit of a sitemap, decompressed."""
    sitemap_urls_max: Count = 50_000
    """The protocol's own limit of one sitemap; the rest is dropped."""


class Scope(Section):
    """What may be asked for at all; rules are explained in shared/scope.py."""

    allow: tuple[str, ...] = ()
    """Only what one of these rules matches; none: everything. `example.com`, `https://example.com/docs/`, `~regex`."""
    deny: tuple[str, ...] = ()
    """Never what one of these matches, whatever allows it."""
    depth_max: Annotated[int, msgspec.Meta(ge=0)] | None = None
    """Links from a seed."""
    pages_per_site: Count | None = None
    """Page visits of one site, recrawls included; what is left then is set aside."""
    bytes_per_site: Count | None = None
    """Of bodies, as received."""
    content_types: tuple[str, ...] = ()
    """Only bodies of these types are read (text/html, text/*); of others the header alone. None: all."""


class Recrawl(Section):
    enabled: bool = False
    """Visit pages again after an interval from their change rate."""
    interval_min_s: Positive = 3_600.0
    """No page is visited again sooner; what changes more often is news, and its site's own feed tells of it."""
    interval_max_s: Positive = 30 * 86_400.0
    """No page waits longer, as far as the budget allows: whatever it was, a month later it may be gone."""
    interval_start_s: Positive = 86_400.0
    """Before any second visit."""
    visits_per_page_day: Positive = 1.0
    """The recrawl budget: so many visits a day for each page a site has, as far as its delay allows."""


class Archive(Section):
    warc: bool = False
    """Write WARC 1.1 files to OUT: requests, responses, revisits."""
    warc_bytes_max: Count = 1_000_000_000
    """A file is closed beyond it; 1 GB is what archives exchange."""
    prefix: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_]{0,62}$")] = "crawlring"
    """File names begin with it; no hyphen, since that parts a name's fields."""
    operator: str = ""
    """Who runs the crawl, for warcinfo; empty: what the user agent says."""
    handler: str = ""
    """module:function of Python that is given every page."""
    handler_s: Positive = 30.0
    """A handler that takes longer has failed."""
    dedup: bool = True
    """Content that was fetched before, from whatever site, is told as a duplicate: a WARC revisit, no second copy."""


class Node(Section):
    id: Annotated[str, msgspec.Meta(pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]{0,62})?$")] = ""
    """This node's name, one per running node: the ring knows nodes by it."""
    weight: Annotated[float, msgspec.Meta(ge=0, le=100)] = 1.0
    """Share of sites against the others' weights."""
    concurrency: Count = 64
    """Sites visited at one time."""
    sites_held_max: Annotated[int, msgspec.Meta(ge=1)] = 100_000
    """Sites held in memory, some 2 KB each; more stay in the store, and the node goes round them as there is room."""
    out: str = "out"
    """Where the crawl log and the pages go."""
    listen: str = "127.0.0.1:0"
    """Status endpoint; loopback by default, port 0 = any free one."""
    listen_names: tuple[str, ...] = ()
    """Names by which the status endpoint may be asked, besides addresses and localhost; `*`: any. A web page whose
    name is made to point here (DNS rebinding) is not to read it."""
    connect_to: str = ""
    """HOST:PORT that every connection goes to (a staging web)."""
    allow_private: bool = False
    """Allow private, loopback and link-local addresses."""
    jsonl: bool = True
    """Write pages as JSON Lines to OUT/pages-<node>.jsonl."""
    tls_faults: Literal["refuse", "record"] = "refuse"
    """A bad certificate: refuse is no answer, by reason; record fetches all the same and tells the fault with the page
    (archives want that). http is never tried instead."""


class Config(Section):
    cluster: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")] = "default"
    """Name of the crawl: stores may hold several, which know nothing of each other."""
    etcd: str = "127.0.0.1:2379"
    """HOST:PORT[,HOST:PORT...]; https:// in front of each for TLS."""
    etcd_security: EtcdSecurity = EtcdSecurity()
    redis: str = "redis://127.0.0.1:6379/0"
    """Where the queues are; redis-cluster://HOST:PORT,... for a cluster, rediss:// and rediss-cluster:// for TLS."""
    durability: Literal["default", "strict"] = "default"
    """strict: nothing is accepted, claimed or committed before the store's disk has it (WAITAOF; on an older store a
    replica, WAIT), nor before the page's line is on this machine's disk. default: a crash of the store's machine may
    take about a second, and no page waits for a disk (strict: twice some 0.1 s). Set it on all nodes, and for `seed`.
    """
    membership: Membership = Membership()
    ring: RingSettings = RingSettings()
    sites: SiteSettings = SiteSettings()
    identity: Identity = Identity()
    politeness: Politeness = Politeness()
    limits: Limits = Limits()
    recrawl: Recrawl = Recrawl()
    scope: Scope = Scope()
    archive: Archive = Archive()
    node: Node = Node()

    def __repr__(self) -> str:
        return f"Config(cluster={self.cluster!r}, etcd={self.etcd!r}, redis={without_password(self.redis)!r})"


def load(
    path: Path | None = None, *, environ: Mapping[str, str] | None = None, options: Mapping[str, Any] | None = None
) -> Config:
    """Build the tree: file, then variables, then options (dotted name -> value; None is "not given").

    Raises ConfigError naming the key and where it came from.
    """
    tree: dict[str, Any] = {}
    given: list[str] = []
    if path is not None:
        try:
            tree = tomllib.loads(path.read_text())
        except (
            OSError,
            ValueError,
            RecursionError,
        ) as error:  # ValueError: no UTF-8, no TOML, a number of 5,000 digits
            raise errors.ConfigError(f"cannot read {path}: {error}") from error
    for name, value in (os.environ if environ is None else environ).items():
        if name.startswith(ENV_PREFIX) and name not in OTHER_ENV:
            key = _env_key(name)
            given.append(name)
            _put(tree, key, [part.strip() for part in value.split(",") if part.strip()] if key in LISTS else value)
    for name, value in (options or {}).items():
        if value is not None:
            _put(tree, name, value)
    try:
        config = msgspec.convert(tree, Config, strict=False)
    except ValueError as error:  # msgspec's among them; a variable that is no UTF-8 is another
        said = f" (variables read: {', '.join(sorted(given))})" if given else ""
        raise errors.ConfigError(f"configuration: {error}{said}") from error
    return _checked(config)


def without_password(url: str) -> str:
    """A store's URL for people and logs.

    By expression, not by a parser: a password that is not escaped as it should be must not show either.
    """
    shown = re.sub(r"//(?:([^:@/?#\s]*):)?.*@", lambda found: f"//{found[1] or ''}:{HIDDEN}@", url, flags=re.DOTALL)
    return re.sub(r"((?:password|passwd|secret|token)=)[^&\s]*", rf"\1{HIDDEN}", shown, flags=re.IGNORECASE)


def require_user_agent(config: Config) -> str:
    """The user agent, or ConfigError: it must carry a product token and a contact a site's operator can use."""
    agent = config.identity.user_agent.strip()
    example = "--user-agent 'Name/1.0 (+https://example.org/bot)'"
    if not agent:
        raise errors.ConfigError(f"a user agent is required: {example}")
    if not re.match(r"^[A-Za-z_-]+(/[\w.+-]+)?(\s|$)", agent):
        raise errors.ConfigError(f"the user agent must begin with a product token of letters, - and _: {example}")
    if not re.search(r"https?://[^\s)]+\.[^\s)]+|https?://localhost|[\w.+-]+@[\w-]+\.[\w.-]+", agent):
        raise errors.ConfigError(f"the user agent must say how to reach you (a URL or an e-mail address): {example}")
    if not agent.isascii() or not agent.isprintable():
        raise errors.ConfigError("the user agent must be printable ASCII")
    return agent


def product_token(user_agent: str) -> str:
    """The name that robots.txt groups are matched against (RFC 9309 2.2.1)."""
    found = re.match(r"[A-Za-z_-]+", user_agent)
    return found.group(0) if found else user_agent


def _env_key(name: str) -> str:
    short = name.removeprefix(ENV_PREFIX)
    return SHORT_ENV.get(short, short.lower().replace("__", "."))


def _put(tree: dict[str, Any], dotted: str, value: Any) -> None:
    *tables, leaf = dotted.split(".")
    for table in tables:
        tree = tree.setdefault(table, {})
        if not isinstance(tree, dict):
            raise errors.ConfigError(f"configuration: {dotted}: {table} is not a table")
    tree[leaf] = value


def _checked(config: Config) -> Config:
    infinite = _infinite(config)
    if infinite is not None:
        raise errors.ConfigError(f"{infinite} must be a finite number")
    member = config.membership
    if member.view_lease_s <= member.confirm_s + member.call_s:
        raise errors.ConfigError(
            "membership.view_lease_s must be longer than confirm_s + call_s, or authority flickers"
        )
    if member.wire_s < WIRE_MIN_S:
        raise errors.ConfigError(f"membership.wire_s is at least {WIRE_MIN_S:g}: so long the kernel may still send")
    security = config.etcd_security
    if bool(security.cert_file) != bool(security.key_file):
        raise errors.ConfigError("etcd_security.cert_file and etcd_security.key_file belong together")
    if security.password and security.password_file:
        raise errors.ConfigError("etcd_security.password and etcd_security.password_file: give one of them")
    if bool(security.user) != bool(security.password or security.password_file):
        raise errors.ConfigError("etcd_security.user and etcd_security.password_file belong together")
    if config.politeness.delay_cap_s < config.politeness.delay_min_s:
        raise errors.ConfigError("politeness.delay_cap_s is below politeness.delay_min_s")
    if config.limits.robots_bytes_max < 500 * 1024:
        raise errors.ConfigError("limits.robots_bytes_max is below 500 KiB, the least that RFC 9309 2.5 lets us read")
    _check_networks(config.politeness.address_exempt)
    if config.recrawl.interval_max_s < config.recrawl.interval_min_s:
        raise errors.ConfigError("recrawl.interval_max_s is below recrawl.interval_min_s")
    return config


def _check_networks(networks: tuple[str, ...]) -> None:
    for network in networks:
        try:
            ipaddress.ip_network(network)
        except ValueError as error:
            raise errors.ConfigError(f"politeness.address_exempt: {error}") from error


def _infinite(section: Section, before: str = "") -> str | None:
    """The first field that holds what no clock can wait for and no store can hold: TOML knows `inf`."""
    for name in section.__struct_fields__:
        value = getattr(section, name)
        found = _infinite(value, f"{before}{name}.") if isinstance(value, Section) else None
        if isinstance(value, float) and not math.isfinite(value):
            found = f"{before}{name}"
        if found is not None:
            return found
    return None
