"""deploy/redis-users.acl: a node's user does all that a node does, a reader's reads, and neither does anything else."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from redis import exceptions

from coordinator import local
from shared import errors, frontier, keys, records, scope
from tests import redis_cluster as clusters
from tests import servers
from tests.stores import shapes

USERS = Path(__file__).parents[2] / "deploy" / "redis-users.acl"
CLUSTER = "default"  # the one whose keys the file names
WORDS = {"node": "a-node's/pass@word", "reader": "a-reader's", "replica": "a-replica's"}
QUOTED = {"node": "a-node%27s%2Fpass%40word", "reader": "a-reader%27s"}


def put_in(folder: Path, more: str = "") -> None:
    """The file with its passwords, in place of the one the server began with. `more`: what nodes may besides."""
    text = USERS.read_text().replace("+script|load", f"+script|load{more}")
    for who, word in WORDS.items():
        text = text.replace(f"SHA256-OF-THE-{who.upper()}S-PASSWORD", hashlib.sha256(word.encode()).hexdigest())
    assert "SHA256" not in text
    (folder / "users.acl").write_text(text)


def open_file(folder: Path) -> tuple[str, ...]:
    """A server's options: at its start it must still answer to anyone."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "users.acl").write_text("user default on nopass ~* &* +@all\n")
    return ("--aclfile", str(folder / "users.acl"))


def read_again(server: local.Server) -> None:
    client: Any = redis.Redis(port=server.port, protocol=2)
    with client:
        client.execute_command("ACL", "LOAD")


@pytest.fixture(params=["valkey9", "redis7"])
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[local.Server]:
    with servers.running(servers.STORES[request.param](tmp_path, options=open_file(tmp_path))) as server:
        put_in(tmp_path)
        read_again(server)
        yield server


@pytest.mark.parametrize("right", ["+sadd", "+rpush"])
@pytest.mark.parametrize("server", ["valkey9", "redis7"])
async def test_a_right_that_a_script_lacks_is_the_users_and_no_damage_of_a_site(
    tmp_path: Path, server: str, right: str
) -> None:
    """Else every new link would be dropped as one of a damaged site."""
    with servers.running(servers.STORES[server](tmp_path, options=open_file(tmp_path))) as running:
        put_in(tmp_path)
        text = (tmp_path / "users.acl").read_text()
        assert f" {right} " in text
        (tmp_path / "users.acl").write_text(text.replace(f" {right} ", " "))
        read_again(running)
        desk = await frontier.Frontier.open(url(running, "node"), CLUSTER)
        with pytest.raises(errors.StoreForbidden):
            await shapes.offered(desk, shapes.offer(1))
        await desk.close()


def url(server: local.Server, who: str) -> str:
    return f"redis://crawlring-{who}:{QUOTED[who]}@{server.address}/0"


async def whole_life(desk: frontier.Frontier) -> None:
    """Every call a node or a `seed` makes."""
    sites = [f"s{number}.org" for number in range(5)]
    offers = [shapes.offer(number, site) for site in sites for number in range(3)]
    assert set(await shapes.offered(desk, *offers, owner_of=lambda _site: "n1")) == {"accepted"}
    # Enough of one site to split both kinds of bucket, and one that is asked for again.
    await shapes.offered(desk, *(shapes.offer(number, sites[0]) for number in range(1_000)))
    again = shapes.offer(7, sites[0], again=True)
    await shapes.offered(desk, again)
    assert set(await desk.inbox("n1", at_most=10)) == set(sites)
    await desk.empty_inbox("n1", 10)
    await desk.wake("n1", sites)
    for record in await desk.claim(sites, "n1", 1, delay_s=0.0):
        assert isinstance(record, records.SiteRecord)
        assert await desk.attempt(record.site, "n1", 1, record.head[0].url) == 0
        pages = tuple((shapes.url(number, record.site), records.PageRecord(etag='"a"')) for number in range(100))
        robots = tuple((f"https://h{number}.org", records.RobotsRecord(verdict="allow")) for number in range(270))
        change = shapes.done(
            record.head[0], pages=pages, robots=robots, later=((record.head[1].url, 0.0, 9),), set_aside=()
        )
        assert not (await desk.commit(record.site, "n1", 1, 1, change)).repeated
        assert (await desk.commit(record.site, "n1", 1, 1, change)).repeated
        await desk.claim([record.site], "n1", 1, delay_s=0.0, again=True)
        await seen_again(desk, record)
        assert await desk.robots(record.site, "https://h269.org") is not None
    await desk.tell_owners(lambda _site: "n1")
    await desk.report(
        records.NodeReport(id="n1", incarnation=1, epoch=1, weight=1, address="", time_ms=1, state="member")
    )
    await desk.append_handoffs([records.Handoff(kind="moved", time_ms=1, epoch=1, node="n1")])
    assert await desk.add_scopes([scope.SeedRule(kind="any")]) == 1
    assert (await desk.scope_version(), len(await desk.scopes())) == (1, 1)
    assert (await desk.pause(["*", "s1.org"]), await desk.resume(["*"])) == (1, 2)
    assert await desk.run_id()
    await reads(desk)


async def seen_again(desk: frontier.Frontier, record: records.SiteRecord) -> None:
    """Two pages that are wanted again: one of them has its slot at once, the other is said to have changed."""
    pages = tuple((one.url, records.PageRecord(last_check_ms=1)) for one in record.head[:2])
    change = shapes.done(
        pages=pages, fresh=tuple((url, 9e5) for url, _ in pages), fresh_gap_s=9e5, price=1.0, bytes=1, endless=("a",)
    )
    committed = await desk.commit(record.site, "n1", 1, 2, change)
    assert pages[0][0] in shapes.heads(committed.record)
    offers = [
        records.Offer(url=url, site=record.site, score=shapes.offer(0, record.site).score, changed_ms=2)
        for url, _ in pages
    ]
    assert "changed" in await shapes.offered(desk, *offers)
    digest = b"0123456789abcdef0123"
    where = records.ContentRef(url=pages[0][0], fetched_ms=1)
    await desk.remember_content(digest, where)
    assert await desk.content(digest) is not None


async def reads(desk: frontier.Frontier) -> None:
    """Every call a reading command makes."""
    assert await desk.look("s1.org") is not None
    assert await desk.look("never.org") is None
    assert len(await desk.reports(["n1", "n2"])) == 1
    assert await desk.site_count() == 5
    assert await desk.ping() > 0
    assert await desk.pauses() == records.Pauses(version=2, sites=frozenset(("s1.org",)))
    assert await desk.read_handoffs(at_most=5)
    assert await desk.inbox("n1", at_most=5)
    assert [page async for page in desk.sites_in([(shard, 0, 2**48 - 1) for shard in range(keys.INDEX_SHARDS)])]


FORBIDDEN_TO_ALL: tuple[tuple[Any, ...], ...] = (
    ("FLUSHALL",),
    ("CONFIG", "SET", "appendonly", "no"),
    ("CONFIG", "GET", "requirepass"),
    ("KEYS", "*"),
    ("SCAN", 0),
    ("DEL", "cr:default:handoffs"),
    ("GET", "another:key"),
    ("GET", "cr:other:mark"),
    ("EVAL", "return 1", 0),
    ("EVAL", "return redis.call('GET', 'another:key')", 0),
    ("SCRIPT", "FLUSH"),
    ("ACL", "LIST"),
    ("CLIENT", "KILL", "TYPE", "normal"),
    ("CLIENT", "LIST"),
    ("REPLICAOF", "NO", "ONE"),
    ("CLUSTER", "RESET"),
    ("MONITOR",),
    ("SHUTDOWN",),
    ("PUBLISH", "a", "b"),
)
FORBIDDEN_TO_READERS: tuple[tuple[Any, ...], ...] = (
    ("SET", "cr:default:mark", "1"),
    ("ZADD", "cr:default:index:00", 1, "a"),
    ("EVALSHA", frontier.SCRIPTS["claim"].sha, 1, "cr:default:{a}:site", "x"),
    ("RPUSH", "cr:default:inbox:n1", "a"),
)


async def is_forbidden(server: local.Server, who: str, *words: Any) -> None:
    client: Any = redis.asyncio.Redis(port=server.port, protocol=2, username=f"crawlring-{who}", password=WORDS[who])
    async with client as raw:
        with pytest.raises(exceptions.NoPermissionError):
            await raw.execute_command(*words)


async def test_a_node_may_what_it_needs_and_no_more(guarded: local.Server) -> None:
    desk = await frontier.Frontier.open(url(guarded, "node"), CLUSTER)
    await whole_life(desk)
    await desk.close()
    for words in FORBIDDEN_TO_ALL:
        await is_forbidden(guarded, "node", *words)


async def test_a_reader_reads_and_changes_nothing(guarded: local.Server) -> None:
    desk = await frontier.Frontier.open(url(guarded, "node"), CLUSTER)
    await whole_life(desk)
    await desk.close()
    reader = await frontier.Frontier.open(url(guarded, "reader"), CLUSTER)
    await reads(reader)
    for call in (
        shapes.offered(reader, shapes.offer(1)),
        reader.claim(["s1.org"], "n2", 2, delay_s=0.0),
        reader.wake("n1", ["s1.org"]),
    ):
        with pytest.raises(errors.StoreForbidden):
            await call
    await reader.close()
    for words in (*FORBIDDEN_TO_ALL, *FORBIDDEN_TO_READERS):
        await is_forbidden(guarded, "reader", *words)


@pytest.mark.parametrize("more", ["", " +config|get"], ids=["as it is", "with one right more"])
async def test_strict_on_one_server_must_see_its_policy(tmp_path: Path, more: str) -> None:
    options = (*open_file(tmp_path), "--appendfsync", "always")
    with servers.running(servers.valkey9(tmp_path, options=options)) as server:
        put_in(tmp_path, more)
        read_again(server)
        if not more:
            with pytest.raises(errors.ConfigError, match=r"\+config\|get"):
                await frontier.Frontier.open(url(server, "node"), CLUSTER, durability="strict")
            return
        desk = await frontier.Frontier.open(url(server, "node"), CLUSTER, durability="strict")
        await whole_life(desk)
        await desk.close()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text.replace("a-node%27s%2Fpass%40word", "wr0ng-secret"),
        lambda text: text.replace("crawlring-node", "nobody-secret"),
        lambda text: text.replace("crawlring-node:a-node%27s%2Fpass%40word@", ""),
    ],
    ids=["password", "user", "none"],
)
async def test_who_is_not_let_in_is_told_so_without_the_secret(
    guarded: local.Server, spoil: Callable[[str], str]
) -> None:
    with pytest.raises(errors.StoreForbidden) as refused:
        await frontier.Frontier.open(spoil(url(guarded, "node")), CLUSTER)
    assert "wr0ng" not in str(refused.value)
    assert "user" in str(refused.value)


async def test_another_clusters_keys_are_refused_and_named_as_the_users_matter(guarded: local.Server) -> None:
    desk = await frontier.Frontier.open(url(guarded, "node"), "other")
    with pytest.raises(errors.StoreForbidden):
        await shapes.offered(desk, shapes.offer(1))
    await desk.close()


@pytest.fixture
def guarded_cluster(tmp_path: Path) -> Iterator[clusters.Cluster]:
    """Whose replicas use the replica's user."""
    (tmp_path / "shared").mkdir()
    options = (*open_file(tmp_path / "shared"), "--masteruser", "crawlring-replica", "--masterauth", WORDS["replica"])
    # The servers begin without users, so the replicas cannot log in until the file is read.
    put_in(tmp_path / "shared")
    text = (tmp_path / "shared" / "users.acl").read_text()
    (tmp_path / "shared" / "users.acl").write_text(
        text.replace("user default reset off", "user default on nopass ~* &* +@all")
    )
    with clusters.running(tmp_path, store=servers.valkey9, options=(*options, "--appendfsync", "always")) as started:
        put_in(tmp_path / "shared")
        for server in started.servers:
            read_again(server)
        yield started


async def test_on_a_cluster_the_same_users_do(guarded_cluster: clusters.Cluster) -> None:
    address = guarded_cluster.servers[0].address
    where = f"redis-cluster://crawlring-node:{QUOTED['node']}@{address}"
    desk = await frontier.Frontier.open(where, CLUSTER)
    await whole_life(desk)
    await desk.close()
    strict = await frontier.Frontier.open(where, CLUSTER, durability="strict")
    await strict.claim(["s1.org"], "n2", 2, delay_s=0.0)
    await strict.close()
    reader = await frontier.Frontier.open(f"redis-cluster://crawlring-reader:{QUOTED['reader']}@{address}", CLUSTER)
    await reads(reader)
    await reader.close()
    with pytest.raises(errors.StoreForbidden) as refused:
        await frontier.Frontier.open(f"redis-cluster://crawlring-node:wr0ng@{address}", CLUSTER)
    assert "wr0ng" not in str(refused.value)
