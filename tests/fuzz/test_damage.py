"""Bytes in the store that nobody of ours wrote: an error that names the site, and every other site goes on."""

import asyncio
import hashlib
import json
import math
from types import SimpleNamespace

import msgspec
import pytest
import redis
from hypothesis import example
from hypothesis import strategies as st

from coordinator import small_web
from shared import config, errors, frontier, keys, packing, records, ring, sites
from tests.cluster import harness
from tests.cluster import web as cluster_web
from tests.fuzz import budget, raw_web, test_raw_origins

DELAY_S = 0.2
HURT, WELL = "hurt.example", "well.example"
URLS = [f"https://{HURT}/{number}" for number in range(3)]
NUMBERS = [
    "n",
    "epoch",
    "prev_epoch",
    "due_ms",
    "pending",
    "delay_ms",
    "seen_n",
    "seen_b",
    "pages_n",
    "pages_b",
    "checks",
    "barren",
    "backoff",
    "carried_ms",
    "try_n",
]
WORDS = ["owner", "prev_owner", "due_term", "delay_term", "try_code", "unknown", "aside:robots"]
KINDS = ["site", "queue:5", "later", "robots", "pages:0", "seen:0"]
junk = st.binary(max_size=12) | st.sampled_from(
    [
        b"nan",
        b"inf",
        b"-1",
        b"9" * 400,
        b"1e5",
        b"0x10",
        b" 1",
        b"1.5",
        b"-",
        b"\xff\xfe",
        b"https://x",
        b"http://",
        b"/a b",
        b"",
        b"\x00",
        b"\x93\x01\x02\x03",
        b"99999999999",
    ]
)
damages = st.one_of(
    st.tuples(st.just("field"), st.sampled_from(NUMBERS + WORDS), junk),
    st.tuples(st.just("kind"), st.sampled_from(KINDS), junk),
    st.tuples(st.just("queue"), st.sampled_from(["queue:5", "queue:9", "queue:0"]), junk),
    st.tuples(st.just("later"), st.sampled_from([b"", b"5:", b"x:"]), junk),
    st.tuples(st.just("page"), st.sampled_from(URLS), junk),
    st.tuples(st.just("robots"), st.sampled_from([f"https://{HURT}".encode(), b"\xff"]), junk),
)


def hurt(client: redis.Redis, cluster: str, damage: tuple[str, str | bytes, bytes], site: str = HURT) -> None:
    """Write one piece of junk into the keys of a site."""
    what, where, value = damage
    stem = keys.RedisKeys(cluster).site(site).removesuffix("site")
    match what:
        case "field":
            client.hset(f"{stem}site", where, value)
        case "kind":
            client.delete(f"{stem}{where}")
            client.set(f"{stem}{where}", value)
        case "queue":
            client.lpush(f"{stem}{where}", value)
            client.hincrby(f"{stem}site", "pending", 1)
        case "later":
            client.zadd(f"{stem}later", {where + value: 0})
        case "page":
            code = packing.urls.compact(where, site)
            client.hset(f"{stem}pages:0", hashlib.sha1(code.encode()).hexdigest()[:16], value)
            client.hset(f"{stem}site", "pages_n", 1)
        case _:
            client.hset(f"{stem}robots", where, value)


def offers(site: str, *, urls: list[str]) -> list[records.Offer]:
    score = ring.score_of("xxh3-64", site)
    return [records.Offer(url=url, site=site, score=score) for url in urls]


async def asked_all(url: str, cluster: str, damage: list[tuple[str, str | bytes, bytes]]) -> None:
    """Everything a node asks of a store, of a site that is hurt and of one that is well."""
    with redis.Redis.from_url(url) as client:
        store = await frontier.Frontier.open(url, cluster)
        try:
            whole = offers(HURT, urls=URLS) + offers(WELL, urls=[f"https://{WELL}/"])
            await store.offer(whole, owner_of=lambda _: "n1", pages_max=100)
            for one in damage:
                try:
                    hurt(client, cluster, one)
                except redis.ResponseError:
                    continue  # what was damaged before does not take this as well
            more = offers(HURT, urls=[f"https://{HURT}/new"]) + offers(WELL, urls=[f"https://{WELL}/new"])
            said = await store.offer(more, owner_of=lambda _: "n1", pages_max=100)
            assert said[0] in {"accepted", "known", "full", "damaged"}
            assert said[1] == "accepted"
            ill, well = await store.claim([HURT, WELL], "n1", 7, delay_s=1.0)
            assert isinstance(well, records.SiteRecord)
            assert well.pending == 2
            assert isinstance(ill, records.SiteRecord | errors.DamagedSite) or ill is None
            if isinstance(ill, errors.DamagedSite):
                assert HURT in str(ill)
            if isinstance(ill, records.SiteRecord):
                assert math.isfinite(ill.due_in_s)
                records.change_rate(ill.checks, ill.changes, ill.observed_s)
            head = ill.head if isinstance(ill, records.SiteRecord) else ()
            page = (URLS[0], records.PageRecord(etag="x"))
            change = records.Commit(done=head[:1], pages=(page,), delay_s=1.0, due_in_s=1.0, visits=1)
            await tolerated(store.commit(HURT, "n1", 7, 1, change))
            await tolerated(store.attempt(HURT, "n1", 7, URLS[0]))
            await tolerated(store.look(HURT))
            await tolerated(store.robots(HURT, f"https://{HURT}"))
            assert (
                await store.commit(WELL, "n1", 7, 1, records.Commit(done=well.head[:1], delay_s=1.0))
            ).record.pending == 1
        finally:
            await store.close()
        client.flushall()


async def tolerated(asked) -> None:
    try:
        await asked
    except (errors.DamagedSite, errors.StaleEpoch) as error:
        said = str(error)
    else:
        return
    assert HURT in said or "redis: WRONGTYPE" in said


@budget.tried(st.lists(damages, min_size=1, max_size=3), share=0.4)
def test_a_damaged_site_is_an_error_of_its_own(store, cluster, damage):
    asyncio.run(asked_all(store, cluster, damage))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", b"x"),
        ("epoch", b"nan"),
        ("due_ms", b"1e5"),
        ("pending", b" 1"),
        ("delay_ms", b"inf"),
        ("seen_b", b"9" * 400),
    ],
)
async def test_a_number_that_is_none_ends_a_script_before_it_changes_anything(store, cluster, field, value):
    """The last of them is infinite to Lua: a script that looped over its buckets would hold up the whole store."""
    opened = await frontier.Frontier.open(store, cluster)
    with redis.Redis.from_url(store) as client:
        whole = offers(HURT, urls=URLS)
        await opened.offer(whole, owner_of=lambda _: None, pages_max=100)
        hurt(client, cluster, ("field", field, value))
        key = keys.RedisKeys(cluster).site(HURT)
        before = client.hgetall(key)
        (said,) = await opened.claim([HURT], "n1", 7, delay_s=1.0)
        assert isinstance(said, errors.DamagedSite)
        with pytest.raises(errors.DamagedSite, match=f"(?s){HURT}.*DAMAGED {field}"):
            await opened.commit(HURT, "n1", 7, 1, records.Commit(delay_s=1.0))
        if field in {"pending", "seen_b"}:
            more = offers(HURT, urls=[f"https://{HURT}/new"])
            assert await opened.offer(more, owner_of=lambda _: None, pages_max=100) == ["damaged"]
        assert client.hgetall(key) == before
    await opened.close()


@pytest.mark.parametrize(
    "value", [b"\xff\xfe", b"", b"\x93\x01", b"\x01", msgspec.msgpack.encode([None, None, None, "x", 0, 0])]
)
async def test_a_page_record_that_is_none_is_replaced_by_the_next_visit(store, cluster, value):
    opened = await frontier.Frontier.open(store, cluster)
    with redis.Redis.from_url(store) as client:
        await opened.offer(offers(HURT, urls=URLS), owner_of=lambda _: None, pages_max=100)
        hurt(client, cluster, ("page", URLS[0], value))
        (claimed,) = await opened.claim([HURT], "n1", 7, delay_s=1.0)
        assert isinstance(claimed, records.SiteRecord)
        assert claimed.head[0].page is None
        page = records.PageRecord(etag="x", last_check_ms=1)
        change = records.Commit(done=claimed.head[:1], pages=((URLS[0], page),), delay_s=1.0, visits=1)
        done = await opened.commit(HURT, "n1", 7, 1, change)
        assert done.record.pending == len(URLS) - 1
    await opened.close()


packed = st.binary(max_size=60) | st.lists(
    st.none() | st.integers(-9, 2**64 - 1) | st.floats() | st.text(max_size=5) | st.binary(max_size=5), max_size=10
).map(msgspec.msgpack.encode)


@budget.tried(packed, share=4)
@example(msgspec.msgpack.encode([None, None, None, 1, 0, math.inf, 0, 0, 0]))
@example(msgspec.msgpack.encode([None, None, None, 1, 0, math.nan, 0, 0, 0]))
@example(msgspec.msgpack.encode([None, None, None, -5, 0, 1.0, 0, 0, 0]))
@example(msgspec.msgpack.encode([None, None, None, 1, 5, 1.0, 0, 0, 0]))
def test_a_packed_record_is_a_sound_one_or_none(raw):
    page = packing._page(raw)
    if page is not None:
        assert math.isfinite(page.observed_s) and page.checks >= 0
        records.change_rate(page.checks, page.changes, page.observed_s)
    packing.robots(raw)


flat = st.lists(st.binary(max_size=6) | st.sampled_from([b"due_ms", b"pending", b"1", b"\xff"]), max_size=6)
answers = st.tuples(
    st.sampled_from([b"CLAIMED", b"APPLIED"]),
    st.binary(max_size=4) | st.just(b"1700000000000"),
    flat,
    st.integers(0, 9),
    st.sampled_from([b"", b"17", b"inf", b"x"]),
    st.lists(st.tuples(st.integers(0, 9), junk | st.just(b"/x"), junk), max_size=3).map(
        lambda rows: [one for row in rows for one in row]
    ),
).map(list)


@budget.tried(answers, share=4)
def test_an_answer_is_a_record_or_an_error_of_its_site(answer):
    for read in (packing.site_record, packing.look):
        try:
            read(HURT, answer)
        except errors.DamagedSite as error:
            said = str(error)
        else:
            continue
        assert HURT in said


@pytest.mark.cluster
def test_a_node_leaves_damaged_sites_alone_and_crawls_the_others(tmp_path, etcd, valkey, cluster) -> None:
    web = raw_web.RawWeb()
    good = test_raw_origins.bystanders(web)
    kinds = [
        *(
            ("field", "n", b"x"),
            ("field", "epoch", b"nan"),
            ("field", "seen_b", b"9" * 400),
            ("kind", "site", b"x"),
            ("kind", "queue:5", b"x"),
        ),
        *(
            ("kind", "robots", b"x"),
            ("queue", "queue:5", b"\xff"),
            ("queue", "queue:9", b"http://"),
            ("kind", "later", b"x"),
            ("kind", "pages:0", b"x"),
        ),
    ]
    ill = {f"ill{number}.example": damage for number, damage in enumerate(kinds)}
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / cluster_web.LOG).touch()
    seeds = [*(f"http://{site}/" for site in ill), *(url for url in good if url.endswith("/"))]
    places = sites.Sites()

    async def offered() -> None:
        store = await frontier.Frontier.open(valkey, cluster)
        whole = [one for url in seeds for one in offers(places.site_of(url), urls=[url])]
        await store.offer(whole, owner_of=lambda _: None, pages_max=config.Limits().pages_per_site_max)
        await store.close()

    asyncio.run(offered())
    with redis.Redis.from_url(valkey) as client:
        for site, damage in ill.items():
            hurt(client, cluster, damage, site)
        client.rpush(keys.RedisKeys(cluster).inbox("n1"), b"\xff\xfe", b"", b"no such site")
        client.zadd(keys.RedisKeys(cluster).index(5), {b"\xff\xfe": 5 << 40})
    with raw_web.serving(web):
        place = local_stand(tmp_path, web.port)
        run = harness.Cluster(*(tmp_path, etcd, valkey, cluster, small_web.Web(()), place, DELAY_S, harness.QUICK, ()))
        try:
            run.start_all("n1")
            run.until(lambda: good <= {line.url for line in run.crawl_lines()}, 30, "the other sites are crawled")
            node = run.nodes["n1"]

            def told() -> set[str]:
                events = [json.loads(line) for line in node.log().splitlines()]
                return {event["site"] for event in events if event["event"] == "site.damaged"}

            # The site whose page records are of another kind is found out by its first commit.
            run.until(lambda: set(ill) <= told() | {"ill8.example"}, 15, "each is named")
            status, reason = node.ready()
            assert run.command("site", "ill0.example", status=1).stderr.startswith("crawlring: ill0.example")
            run.drain()
        finally:
            for child in run.started:
                child.kill()
    assert (status, reason) == (200, "")
    assert "Traceback" not in node.log()


def local_stand(folder, port: int):
    """What the harness needs to know of a web: where it is, and where its log would be."""
    return SimpleNamespace(address=f"127.0.0.1:{port}", data=folder / "web")
