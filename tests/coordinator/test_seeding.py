"""Seeding: good lines are queued where their owner finds them, bad ones are told, and a strange cluster is refused."""

import asyncio
import io
import json
import time

import pytest

from coordinator import agreed, bounding, cli, seeding
from shared import config, errors, frontier, lists, records, ring
from tests.coordinator import clusters

LINES = [
    "# the start",
    "https://www.example.org/a",
    "http://Example.org:80/b#top",
    "",
    "not a url",
    "https://www.example.org/%61",
    "ftp://example.org/x",
    "https://shop.test/",
    "https://www.example.org/a\r\n",
    "https://long.test/" + "x" * 4_000,
]


@pytest.fixture
def settings(etcd, valkey, cluster):
    return clusters.settings_of(etcd, valkey, cluster)


async def test_lines_are_accepted_known_or_refused_with_their_number(settings):
    report = await seeding.seed_lines(settings, LINES)
    assert (report.accepted, report.known) == (3, 2)
    assert [(one.line, one.reason) for one in report.refused if one.line == 10] == [(10, "too_long")]
    assert [one.line for one in report.refused] == [5, 7, 10]
    assert report.refused_total == 3


async def test_sites_wait_in_the_index_at_their_position_before_any_node_has_joined(settings):
    await seeding.seed_lines(settings, ["https://www.example.org/a"])
    position = ring.position("xxh3-64", "example.org")
    score = ring.score("xxh3-64", position)
    store = await frontier.Frontier.open(settings.redis, settings.cluster)
    try:
        found = [site async for page in store.sites_in([(score >> 40, score, score)]) for site in page]
        known = await store.look("example.org")
    finally:
        await store.close()
    assert found == ["example.org"]
    assert (known["pending"], known["head"]) == (1, ["https://www.example.org/a"])


async def test_the_owner_gets_a_hint(settings):
    with clusters.members(settings, {"n1": 1.0}):
        await seeding.seed_lines(settings, ["https://a.test/", "https://b.test/"])
        store = await frontier.Frontier.open(settings.redis, settings.cluster)
        try:
            assert sorted(await store.inbox("n1", at_most=10)) == ["a.test", "b.test"]
        finally:
            await store.close()


async def test_more_than_one_batch_is_counted_whole(settings):
    count = seeding.BATCH_LINES + 10
    shown = []
    lines = iter(enumerate((f"https://s{number}.test/" for number in range(count)), 1))
    report = await seeding.seed_numbered(settings, lines, usual=bounding.Usual(3), progress=shown.append)
    assert report.accepted == count
    assert [one.accepted for one in shown] == [seeding.BATCH_LINES, count]


@pytest.mark.parametrize(
    ("other", "part"),
    [
        ({"ring.algorithm": "sha1-64"}, "ring: the cluster has xxh3-64/1024, this command sha1-64/1024"),
        ({"ring.vnodes": 150}, "ring: the cluster has xxh3-64/1024, this command xxh3-64/150"),
        ({"sites.private_suffixes": ("github.io",)}, "sites: "),
    ],
)
async def test_a_cluster_with_other_rules_is_not_seeded(settings, other, part):
    where = {"etcd": settings.etcd, "redis": settings.redis, "cluster": settings.cluster}
    mine = config.load(environ={}, options=where | other)
    with clusters.members(settings, {"n1": 1.0}), pytest.raises(errors.FingerprintMismatch, match=part):
        await seeding.seed_lines(mine, ["https://a.test/"])
    store = await frontier.Frontier.open(settings.redis, settings.cluster)
    try:
        assert await store.site_count() == 0
    finally:
        await store.close()


def test_the_command_prints_its_counts_as_json_and_answers_0_even_so(settings, tmp_path, capsys):
    file = tmp_path / "seeds.txt"
    file.write_bytes("\ufeffhttps://a.test/\r\n".encode() + b"http://b.test/\xff\nhttps://\n")
    status = cli.main(["seed", str(file), "--json", *clusters.arguments(settings)])
    told = json.loads(capsys.readouterr().out)
    assert status == 0
    assert (told["accepted"], told["known"]) == (1, 0)
    assert told["refused"][0] == {"line": 2, "url": "http://b.test/\\xff", "reason": "not UTF-8"}
    assert [one["line"] for one in told["refused"]] == [2, 3]


def test_the_command_tells_a_reader_which_lines_were_refused(settings, tmp_path, capsys):
    file = tmp_path / "seeds.txt"
    file.write_text("https://a.test/\nnonsense\n")
    assert cli.main(["seed", str(file), "--priority=9", *clusters.arguments(settings)]) == 0
    printed = capsys.readouterr()
    assert printed.out == "1 accepted, 0 known, 1 refused\n"
    assert printed.err.startswith("line 2: ")


def test_a_line_without_an_end_is_one_line_and_does_not_fill_the_memory():
    long = b"x" * (3 * seeding.LINE_BYTES_MAX + 5)
    lines = list(seeding.numbered(io.BytesIO(long + b"\nhttps://a.test/\n" + long)))
    assert [(number, len(text)) for number, text in lines] == [
        (1, seeding.LINE_BYTES_MAX),
        (2, len("https://a.test/")),
        (3, seeding.LINE_BYTES_MAX),
    ]


def test_a_line_of_just_the_limit_is_followed_by_the_next():
    exact = b"x" * (seeding.LINE_BYTES_MAX - 1) + b"\n"
    assert [number for number, _ in seeding.numbered(io.BytesIO(exact + b"a\n"))] == [1, 2]


async def test_a_list_is_taken_oldest_first_and_is_empty_then(settings):
    urls = ["https://a.test/1", "nonsense", "https://a.test/2", "https://a.test/1"]
    source = await lists.Lists.open(settings.redis)
    try:
        ring_of_one = lists.Agreement(workers=("w1",), vnodes=1, sites="any")
        await source.agree(ring_of_one, instead_of=None)
        assert await source.push(ring_of_one, [("w1", url) for url in urls])
        key = lists.queue_of("w1")
        report = await seeding.seed_list(settings, settings.redis, key, usual=bounding.Usual())
        assert await source.lengths([key]) == [0]
    finally:
        await source.close()
    assert (report.accepted, report.known) == (2, 1)
    assert [(one.line, one.url) for one in report.refused] == [(2, "nonsense")]
    store = await frontier.Frontier.open(settings.redis, settings.cluster)
    try:
        assert (await store.look("a.test"))["head"] == ["https://a.test/1", "https://a.test/2"]
    finally:
        await store.close()


async def test_a_list_keeps_what_was_not_offered(settings, cluster):
    source = await lists.Lists.open(settings.redis)
    away = clusters.settings_of(settings.etcd, "redis://127.0.0.1:1/0", cluster)
    try:
        ring_of_one = lists.Agreement(workers=("w1",), vnodes=1, sites="any")
        await source.agree(ring_of_one, instead_of=None)
        assert await source.push(ring_of_one, [("w1", "https://a.test/1")])
        with pytest.raises(errors.StoreUnavailable):
            await seeding.seed_list(away, settings.redis, lists.queue_of("w1"), usual=bounding.Usual())
        assert await source.lengths([lists.queue_of("w1")]) == [1]
    finally:
        await source.close()


# -- seeds with a scope of their own


async def rules_of(settings):
    store = await frontier.Frontier.open(settings.redis, settings.cluster)
    try:
        return {str(rule) for rules in (await store.scopes()).values() for rule in rules}
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("line", "url", "said"),
    [
        ("https://e.org/a", "https://e.org/a", (5, None, None)),
        ("https://e.org/a scope=page", "https://e.org/a", (5, "page", None)),
        ("https://e.org/a\t depth=2  priority=9 scope=host", "https://e.org/a", (9, "host", 2)),
        ("https://e.org/a depth=2", "https://e.org/a", (5, "any", 2)),
        ("https://e.org/a b", "https://e.org/a b", (5, None, None)),
        ("https://e.org/a b=c scope=any", "https://e.org/a b=c", (5, "any", None)),
        ("https://e.org/?scope=page", "https://e.org/?scope=page", (5, None, None)),
        ("scope=page", "scope=page", (5, None, None)),
    ],
)
def test_a_line_is_a_url_and_its_options(line, url, said):
    assert bounding.parted(line, bounding.Usual()) == (url, said)


@pytest.mark.parametrize(
    "options", ["scope=all", "scope=", "depth=-1", "depth=x", "depth=99999", "priority=10", "depth=1 depth=2"]
)
def test_an_option_that_says_nothing_is_a_refused_line(options):
    with pytest.raises(errors.InvalidUrl):
        bounding.parted(f"https://e.org/ {options}", bounding.Usual())


async def test_rules_are_written_and_priorities_are_a_lines_own(settings):
    lines = [
        "https://docs.e.org/a/x.html scope=prefix depth=2",
        "https://f.org/ scope=site priority=9",
        "https://f.org/2 scope=site",
        "https://g.org/x scope=page",
        "https://h.org/ depth=nine",
    ]
    report = await seeding.seed_lines(settings, lines)
    assert (report.accepted, report.scopes, [one.line for one in report.refused]) == (4, 3, [5])
    assert await rules_of(settings) == {
        "https://docs.e.org/a/ scope=prefix depth=2",
        "f.org scope=site",
        "https://g.org/x scope=page",
    }
    store = await frontier.Frontier.open(settings.redis, settings.cluster)
    try:
        (record,) = await store.claim(["f.org"], "n1", 1, delay_s=0.0)
    finally:
        await store.close()
    assert [(queued.url, queued.priority) for queued in record.head] == [("https://f.org/", 9), ("https://f.org/2", 5)]
    again = await seeding.seed_lines(settings, lines)
    assert (again.known, again.scopes) == (4, 0)


async def test_plain_seeds_bound_nothing_and_have_their_site_in_a_bounded_crawl_wherever_they_stand(settings):
    await seeding.seed_lines(settings, ["https://plain.org/"])
    assert await rules_of(settings) == set()
    more = [f"https://s{number}.org/" for number in range(seeding.BATCH_LINES)]
    report = await seeding.seed_lines(settings, [*more, "https://e.org/ scope=page", "https://z.org/"], bound=True)
    assert report.refused_total == 0
    assert await rules_of(settings) == {
        *(f"s{number}.org scope=site" for number in range(seeding.BATCH_LINES)),
        "https://e.org/ scope=page",
        "z.org scope=site",
    }


async def test_a_crawl_that_has_begun_without_bounds_gets_none_by_accident(settings):
    await seeding.seed_lines(settings, ["https://plain.org/"])
    with pytest.raises(errors.ConfigError, match="--bound"):
        await seeding.seed_lines(settings, ["https://e.org/ scope=page"])
    assert await rules_of(settings) == set()
    await seeding.seed_lines(settings, ["https://e.org/ scope=page"], bound=True)
    await seeding.seed_lines(settings, ["https://f.org/ scope=page"])  # it has bounds now
    assert len(await rules_of(settings)) == 2


def test_the_commands_scope_is_that_of_lines_without_one(settings, tmp_path, capsys):
    file = tmp_path / "seeds.txt"
    file.write_text("https://a.test/x/y\nhttps://b.test/ scope=any\n")
    options = ["--scope=prefix", "--depth=4", "--json"]
    assert cli.main(["seed", str(file), *options, *clusters.arguments(settings)]) == 0
    assert json.loads(capsys.readouterr().out)["scopes"] == 2
    assert asyncio.run(rules_of(settings)) == {"https://a.test/x/ scope=prefix depth=4", "scope=any depth=4"}


async def test_seeds_outside_the_operators_scope_are_refused_by_reason(etcd, valkey, cluster):
    where = {"etcd": etcd, "redis": valkey, "cluster": cluster, "scope.deny": ["e.org"], "scope.allow": ["~org"]}
    report = await seeding.seed_lines(
        config.load(environ={}, options=where), ["https://e.org/", "https://f.org/", "https://g.net/"]
    )
    assert [one.reason for one in report.refused] == ["scope_deny", "scope_allow"]


async def test_a_seed_is_offered_when_every_node_has_heard_of_its_scope(settings):
    with clusters.members(settings, {"n1": 1.0}) as (_, incarnations):
        store = await frontier.Frontier.open(settings.redis, settings.cluster)
        try:
            seeding_it = asyncio.create_task(seeding.seed_lines(settings, ["https://e.org/ scope=site"]))
            deadline = time.monotonic() + 10
            while not await store.scope_version():
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            assert await store.look("e.org") is None  # rule first, seed later
            await asyncio.sleep(0.2)
            assert await store.look("e.org") is None and not seeding_it.done()
            await store.report(
                records.NodeReport(
                    id="n1",
                    incarnation=incarnations["n1"],
                    epoch=1,
                    weight=1.0,
                    address="",
                    time_ms=1,
                    state="member",
                    scope_version=1,
                )
            )
            report = await asyncio.wait_for(seeding_it, 3)
            assert (report.accepted, report.unheard) == (1, ())
            assert (await store.look("e.org"))["pending"] == 1
        finally:
            await store.close()


async def test_a_node_that_says_nothing_is_named_and_waited_for_once(settings):
    offers = [records.Offer(url=f"https://s{number}.test/", site=f"s{number}.test", score=1) for number in range(3)]
    with clusters.members(settings, {"n1": 1.0}):
        bounds = bounding.Bounds(agreed.rules(settings), bound=False, heard_s=0.3)
        store = await frontier.Frontier.open(settings.redis, settings.cluster)
        try:
            await bounds.read(store)
            began = time.monotonic()
            for offer in offers:
                await bounds.admit(store, [bounding.Asked(offer, "page", None)])
            took_s = time.monotonic() - began
        finally:
            await store.close()
    assert bounds.unheard == {"n1"}
    assert bounds.added == 3
    assert 0.3 <= took_s < 0.6
