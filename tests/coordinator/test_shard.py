"""`crawlring shard` does what the article's script does, on a real Valkey, and loses nothing while it re-shards."""

import collections
import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from coordinator import cli, shard, shard_ring
from shared import errors, lists

ROOT = Path(__file__).parents[2]
WORKERS = ("worker-0", "worker-1", "worker-2", "worker-3")
FOUR = ",".join(WORKERS)


@pytest.fixture
def store(valkey):
    with redis.Redis.from_url(valkey) as client:
        yield client


@pytest.fixture
async def opened(valkey):
    found = await lists.Lists.open(valkey)
    yield found
    await found.close()


def run(url, *options, given="", workers=FOUR, **environ):
    """The command as its own process; returns (exit status, stdout, stderr)."""
    environ = {"SHARD_WORKERS": workers, "SHARD_REDIS_DSN": url, **environ}
    ran = subprocess.run(
        [sys.executable, "-m", "coordinator.cli", "shard", *options],
        cwd=ROOT,
        env={**os.environ, **{name: value for name, value in environ.items() if value is not None}},
        input=given.encode("utf-8", "surrogateescape"),
        capture_output=True,
        timeout=30,
        check=False,
    )
    return ran.returncode, ran.stdout.decode(), ran.stderr.decode()


def the_articles_worker(key, workers=WORKERS, vnodes=150):
    """The owner of a key by the article's rule, in other words than the code under test."""
    points = {}
    for worker in workers:
        for i in range(vnodes):
            points[int(hashlib.md5(f"{worker}#{i}".encode()).hexdigest()[:8], 16)] = worker
    position = int(hashlib.md5(key.encode()).hexdigest()[:8], 16)
    later = [point for point in points if point > position]
    return points[min(later or points)]


def on_lists(store, workers=WORKERS):
    """Every URL that stands on a list or aside, with its worker."""
    found = []
    for worker in dict.fromkeys(workers):
        for key in (lists.queue_of(worker), lists.aside_of(worker)):
            found += [(worker, url.decode("utf-8", "surrogateescape")) for url in store.lrange(key, 0, -1)]
    return found


# --- pushing -------------------------------------------------------------------------------------------------


def test_each_url_is_pushed_to_its_sites_worker_and_printed(valkey, store):
    sites = [f"shop{i}.example" for i in range(40)]
    given = [f"https://www.{site}/a" for site in sites] + [f"http://{site}/b?c" for site in sites]
    status, out, err = run(valkey, given="\n".join(given) + "\n")
    owners = {site: the_articles_worker(site) for site in sites}
    expected = [(owners[".".join(url.split("/")[2].split(".")[-2:])], url) for url in given]
    assert (status, err) == (0, "")
    assert out.splitlines() == [f"{url} -> {worker}" for worker, url in expected]
    for worker in WORKERS:
        pushed = [url for owner, url in expected if owner == worker]
        assert store.lrange(f"frontier:{worker}", 0, -1) == [url.encode() for url in reversed(pushed)]
    assert len(set(owners.values())) == len(WORKERS)


def test_a_worker_takes_the_oldest_url_with_brpop(valkey, store):
    run(valkey, given="https://example.com/first\nhttps://example.com/second\n")
    worker = the_articles_worker("example.com")
    assert store.brpop([f"frontier:{worker}"], timeout=1)[1] == b"https://example.com/first"


def test_subdomains_never_part_and_the_key_is_the_projects_site(valkey):
    given = "https://www.shop.example.com/\nhttps://checkout.shop.example.com/\nHTTPS://EXAMPLE.com./\n"
    _, out, _ = run(valkey, given=given)
    assert {line.split(" -> ")[1] for line in out.splitlines()} == {the_articles_worker("example.com")}
    _, out, _ = run(valkey, given="http://127.0.0.1:8080/\nhttp://2130706433/\nhttp://co.uk/\n")
    workers = [line.split(" -> ")[1] for line in out.splitlines()]
    assert workers == [the_articles_worker(key) for key in ("127.0.0.1", "127.0.0.1", "co.uk")]


def test_a_bad_line_is_told_with_its_number_and_never_stops_the_others(valkey, store):
    given = "https://a.example/\n\nno url\nftp://b.example/\nhttp://a..b/\n\udcff\nhttps://c.example/"
    status, out, err = run(valkey, given=given)
    assert status == 1
    assert [line.split(" -> ")[0] for line in out.splitlines()] == ["https://a.example/", "https://c.example/"]
    assert err.splitlines() == [
        "line 3: invalid: no url",
        "line 4: scheme: ftp://b.example/",
        "line 5: host: http://a..b/",
        "line 6: not UTF-8: \\xff",
    ]
    assert len(on_lists(store)) == 2


def test_options_win_over_the_variables(valkey, store):
    options = ("--workers", "a, b", "--vnodes", "10", "--redis", valkey)
    status, out, _ = run("redis://127.0.0.1:1/0", *options, given="https://example.com/\n", SHARD_VNODES="7")
    assert (status, out) == (0, f"https://example.com/ -> {the_articles_worker('example.com', ('a', 'b'), 10)}\n")
    assert json.loads(store.get("frontier-ring"))["workers"] == ["a", "b"]


def test_what_has_arrived_is_pushed_before_the_input_ends(valkey):
    process = subprocess.Popen(
        [sys.executable, "-m", "coordinator.cli", "shard", "--redis", valkey],
        cwd=ROOT,
        env={**os.environ, "SHARD_WORKERS": "a,b"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        process.stdin.write(b"https://example.com/\n")
        process.stdin.flush()
        assert process.stdout.readline().startswith(b"https://example.com/ -> ")
        process.stdin.close()
        assert process.wait(timeout=10) == 0


def test_lines_are_numbered_over_chunks_and_an_endless_one_is_cut():
    text = b"a\n" + b"x" * 300_000 + b"\nb\n\nc"
    lines = [line for arrived in shard.arrivals(io.BytesIO(text)) for line in arrived]
    assert [number for number, _ in lines] == [1, 2, 3, 4, 5]
    assert [line for _, line in lines if len(line) < 9] == [b"a", b"b", b"", b"c"]
    assert shard.LINE_BYTES_MAX < len(lines[1][1]) < 300_000


@pytest.mark.parametrize(
    ("options", "environ", "message"),
    [
        ((), {"workers": None}, "workers are required"),
        (("--workers", "a,,b"), {}, "names, each once"),
        (("--workers", "a,a"), {}, "names, each once"),
        (("--vnodes", "0"), {}, "vnodes must be"),
        (("--vnodes", "many"), {}, "vnodes must be"),
        ((), {"SHARD_VNODES": "-3"}, "vnodes must be"),
        (("--redis", "nonsense"), {}, "redis URL"),
        (("--check", "--depth"), {}, "not allowed with"),
    ],
)
def test_wrong_usage_says_what_is_wrong_and_exits_2(monkeypatch, capsys, options, environ, message):
    for name, value in {
        "SHARD_WORKERS": environ.get("workers", FOUR),
        "SHARD_VNODES": environ.get("SHARD_VNODES"),
    }.items():
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
    assert cli.main(["shard", *options]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert message in told.err


def test_without_a_redis_it_exits_3():
    status, _, err = run("redis://127.0.0.1:1/0", given="https://example.com/\n")
    assert status == 3
    assert "redis" in err


@pytest.mark.parametrize(
    "options", [("--workers", "worker-0,worker-1"), ("--vnodes", "100"), ("--workers", "worker-1,worker-0")]
)
def test_another_ring_on_the_same_redis_is_refused(valkey, store, options):
    run(valkey, given="https://example.com/\n")
    before = on_lists(store)
    status, out, err = run(valkey, *options, given="https://other.example/\n")
    assert (status, out) == (2, "")
    assert "worker-0,worker-1,worker-2,worker-3 with 150 vnodes, not over" in err
    assert "--reshard" in err
    assert on_lists(store) == before


async def test_a_running_shard_is_refused_once_the_ring_has_changed(opened):
    old, new = shard_ring.Shards(("a", "b"), 10), shard_ring.Shards(("a", "c"), 10)
    assert await opened.agree(old.agreement, instead_of=None) == old.agreement
    assert await opened.push(old.agreement, [("a", "https://example.com/")])
    await shard_ring.reshard(opened, new)
    assert not await opened.push(old.agreement, [("b", "https://example.com/2")])
    assert await opened.lengths(["frontier:b"]) == [0]


# --- checks --------------------------------------------------------------------------------------------------


def test_the_articles_checks_print_what_its_code_measures(valkey):
    status, out, _ = run("redis://127.0.0.1:1/0", "--check")
    assert status == 0
    assert out.splitlines() == [
        "PASS: a host goes to the same worker each time",
        "PASS: the busiest worker has 560 of 500 on average (worker-0 560, worker-1 466, worker-2 493, worker-3 481)",
        "PASS: one more worker moves 20.85 % of the hosts (ideal 20 %, at most 35 %)",
        "with 1 vnode per worker, the last worker's leaving would move 44.4 %",
    ]


@pytest.mark.parametrize(("workers", "balanced", "moves_little"), [(5, False, True), (3, True, False)])
def test_a_poor_ring_fails_and_more_vnodes_are_advised(capsys, workers, balanced, moves_little):
    names = ",".join(f"worker-{i}" for i in range(workers))
    status = cli.main(["shard", "--check", "--workers", names, "--vnodes", "1", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert (status, found["passed"], found["deterministic"]) == (1, False, True)
    assert (found["balanced"], found["moves_little"]) == (balanced, moves_little)
    assert found["advice"].startswith("raise SHARD_VNODES, now 1")
    assert sum(found["counts"].values()) == found["hosts"] == 2000
    cli.main(["shard", "--check", "--workers", names, "--vnodes", "1"])
    assert "FAIL: " in capsys.readouterr().out


def test_the_checks_work_for_one_worker_and_for_a_taken_name():
    assert shard_ring.check(("only",), 150).moved_fraction_1_vnode is None
    assert shard_ring.check(("worker-1",), 150).passed
    assert shard_ring.check(WORKERS, 150).advice is None


# --- looking -------------------------------------------------------------------------------------------------


def test_depth_counts_each_list(valkey, store):
    run(valkey, given="https://example.com/1\nhttps://example.com/2\n")
    owner = the_articles_worker("example.com")
    status, out, _ = run(valkey, "--depth", "--json")
    found = json.loads(out)
    assert (status, found["total"], found["aside"]) == (0, 2, 0)
    assert found["queues"] == {worker: 2 * (worker == owner) for worker in WORKERS}
    _, out, _ = run(valkey, "--depth")
    assert out.splitlines() == [f"{worker}: {2 * (worker == owner)}" for worker in WORKERS]


def test_depth_needs_no_workers_once_they_are_agreed_on(valkey):
    run(valkey, given="https://example.com/1\n")
    status, out, _ = run(valkey, "--depth", workers=None)
    assert (status, len(out.splitlines())) == (0, 4)


def test_misplaced_finds_a_site_on_two_lists_and_one_on_a_strangers(valkey, store):
    run(valkey, given="https://www.example.com/1\nhttps://good.example/\n")
    assert run(valkey, "--misplaced")[0] == 0
    owner, alone = the_articles_worker("example.com"), the_articles_worker("other.example")
    wrong = next(worker for worker in WORKERS if worker not in {owner, alone})
    store.lpush(f"frontier:{wrong}", "https://example.com/2", "https://other.example/", b"\xff no url")
    status, out, _ = run(valkey, "--misplaced", "--json")
    found = json.loads(out)
    assert status == 1
    assert (found["urls"], found["misplaced"], found["unreadable"]) == (5, 2, 1)
    assert found["sites"] == [
        {"site": "example.com", "worker": owner, "queues": dict(sorted({owner: 1, wrong: 1}.items()))},
        {"site": "other.example", "worker": alone, "queues": {wrong: 1}},
    ]
    status, out, _ = run(valkey, "--misplaced")
    assert status == 1
    assert out.endswith("2 of 5 URLs are misplaced, 1 are no URLs\n")


# --- sharing out again ---------------------------------------------------------------------------------------

URLS = [f"https://shop{i % 37}.example/page/{i}" for i in range(300)]


def fill(valkey, store, urls=URLS):
    assert run(valkey, given="\n".join(urls))[0] == 0
    store.lpush("frontier:worker-0", b"\xff no url")  # somebody else's
    return [*urls, "\udcff no url"]


def check_placed(store, urls, workers):
    """Every URL stands once, on its owner's list, the older ones of a site further right."""
    found = on_lists(store, (*WORKERS, *workers))
    assert collections.Counter(url for _, url in found) == collections.Counter(urls)
    for worker, url in found:
        if url.startswith("https"):
            assert worker == the_articles_worker(url.split("/")[2], workers), url
    order = {url: place for place, (_, url) in enumerate(found)}
    for older, newer in zip(URLS, URLS[37:], strict=False):
        assert order[newer] < order[older]
    assert store.keys("frontier-aside:*") == []


@pytest.mark.parametrize("workers", [("worker-0", "worker-1", "worker-2"), (*WORKERS, "worker-4"), ("x", "y")])
def test_reshard_puts_every_url_where_the_new_ring_says_and_loses_none(valkey, store, workers):
    urls = fill(valkey, store)
    expected = sum(
        the_articles_worker(url.split("/")[2]) != the_articles_worker(url.split("/")[2], workers) for url in URLS
    )
    status, out, err = run(valkey, "--reshard", "--json", workers=",".join(workers))
    done = json.loads(out)
    assert (status, err) == (0, "")
    assert (done["urls"], done["unreadable"]) == (301, 1)
    assert done["moved"] in {expected, expected + 1}
    check_placed(store, urls, workers)
    assert run(valkey, given="https://example.com/\n", workers=",".join(workers))[0] == 0
    assert run(valkey, given="https://example.com/\n")[0] == 2


class Interrupted(lists.Lists):
    """A connection that is lost after some number of its steps, the last of which was carried out."""

    left = 0

    async def _run(self, script, keys, args):
        answer = await super()._run(script, keys, args)
        self.left -= 1
        if self.left == 0:
            raise errors.StoreUnavailable("lost")
        return answer


async def test_reshard_may_be_cut_short_after_any_step_and_run_again(valkey, store):
    """And at every moment in between each URL stands exactly once, and nobody can push by the old ring."""
    workers = ("worker-0", "worker-1", "worker-2")
    old, new = shard_ring.Shards(WORKERS, 150), shard_ring.Shards(workers, 150)
    for steps in range(1, 30):
        store.flushdb()
        opened = await Interrupted.open(valkey)
        assert await opened.agree(old.agreement, instead_of=None) == old.agreement
        await opened.push(old.agreement, [(old.worker_of(url), url) for url in URLS])
        opened.left = steps
        try:
            await shard_ring.reshard(opened, new)
            finished = True
        except errors.StoreUnavailable:
            finished = False
        assert collections.Counter(url for _, url in on_lists(store)) == collections.Counter(URLS)
        opened.left = 0
        assert not await opened.push(old.agreement, [("worker-3", "https://late.example/")])
        await shard_ring.reshard(opened, new)
        check_placed(store, URLS, workers)
        assert await opened.agreement() == new.agreement
        await opened.close()
        if finished:
            break
    assert finished
    assert steps > 8


async def test_while_a_reshard_is_unfinished_every_push_is_refused(valkey, store):
    fill(valkey, store)
    opened = await Interrupted.open(valkey)
    opened.left = 3
    workers = ("worker-0", "worker-1")
    with pytest.raises(errors.StoreUnavailable):
        await shard_ring.reshard(opened, shard_ring.Shards(workers, 150))
    await opened.close()
    for named in (",".join(WORKERS), ",".join(workers)):
        status, out, err = run(valkey, given="https://example.com/\n", workers=named)
        assert (status, out) == (2, "")
        assert "finish it with --reshard" in err
    assert "cut short" in run(valkey, "--depth")[1]
    assert run(valkey, "--reshard")[0] == 0, "another ring than the unfinished one may finish it"
    check_placed(store, [*URLS, "\udcff no url"], WORKERS)


def test_a_killed_reshard_loses_nothing(valkey, store):
    """A real process, killed at moments spread over its work, until one run comes through."""
    urls = [f"https://shop{i % 500}.example/{i}" for i in range(20_000)]
    owners = shard_ring.Shards(WORKERS, 150)
    assert run(valkey)[0] == 0
    pipe = store.pipeline(transaction=False)
    for url in urls:
        pipe.lpush(f"frontier:{owners.worker_of(url)}", url)
    pipe.execute()
    command = [
        sys.executable,
        "-m",
        "coordinator.cli",
        "shard",
        "--reshard",
        "--workers",
        "worker-0,worker-1",
        "--redis",
        valkey,
    ]
    killed = 0
    for after in (1, 3, 6, 10):
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        start = store.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0)
        deadline = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < deadline:
            if store.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0) >= start + after:
                process.send_signal(signal.SIGKILL)
                break
        process.wait(timeout=10)
        killed += process.returncode == -signal.SIGKILL
        assert sorted(url for _, url in on_lists(store)) == sorted(urls)
    assert killed >= 2
    status, _, _ = run(valkey, "--reshard", workers="worker-0,worker-1")
    assert status == 0
    assert sorted(url for _, url in on_lists(store, ("worker-0", "worker-1"))) == sorted(urls)


async def test_two_reshards_at_once_lose_nothing(valkey, store):
    """The later one takes over; the earlier one says so."""
    import asyncio  # noqa: PLC0415 - only here

    fill(valkey, store)
    one, two = await lists.Lists.open(valkey), await lists.Lists.open(valkey)
    told = await asyncio.gather(
        shard_ring.reshard(one, shard_ring.Shards(("worker-0", "worker-1"), 150)),
        shard_ring.reshard(two, shard_ring.Shards(("worker-2", "worker-9"), 150)),
        return_exceptions=True,
    )
    assert collections.Counter(url for _, url in on_lists(store, (*WORKERS, "worker-9"))) == collections.Counter(
        [*URLS, "\udcff no url"]
    )
    assert any(isinstance(each, errors.ConfigError) for each in told)
    await shard_ring.reshard(one, shard_ring.Shards(WORKERS, 150))
    check_placed(store, [*URLS, "\udcff no url"], WORKERS)
    await one.close()
    await two.close()


# --- lists for `seed --from-list` ----------------------------------------------------------------------------


async def test_taking_gives_the_oldest_first_and_keeps_what_was_not_accepted(opened, store):
    urls = [f"https://example.com/{i}" for i in range(25)]
    for url in urls:
        store.lpush("frontier:w", url)
    taken = []
    async for page in opened.taking("frontier:w", at_most=10):
        if len(taken) == 20:
            break  # as if the cluster had refused: this page stays
        taken += page
    assert taken == urls[:20]
    assert await opened.oldest("frontier:w") == urls[20:]
    assert [page async for page in opened.taking("frontier:w")] == [urls[20:]]
    assert await opened.lengths(["frontier:w"]) == [0]


async def test_taking_passes_over_what_a_worker_took_meanwhile(opened, store):
    for url in ("a", "b", "a", "c"):
        store.lpush("frontier:w", url)
    pages = []
    async for page in opened.taking("frontier:w", at_most=2):
        pages.append(page)
        if len(pages) == 1:
            assert store.rpop("frontier:w") == b"a"
            store.lpush("frontier:w", "d")
    assert [url for page in pages for url in page].count("c") == 1
    assert "d" in [url for page in pages for url in page]
    assert store.llen("frontier:w") == 0


async def test_whatever_bytes_stand_in_a_list_come_back_as_they_were(opened, store):
    store.lpush("frontier:w", b"\xff\x00")
    assert [page async for page in opened.taking("frontier:w")] == [["\udcff\x00"]]
    assert store.llen("frontier:w") == 0


async def test_a_key_of_another_kind_is_told(opened, store):
    store.set("frontier:w", "x")
    with pytest.raises(errors.ConfigError):
        await opened.oldest("frontier:w")
    store.set(lists.AGREEMENT, "not ours")
    with pytest.raises(errors.ConfigError, match="something else"):
        await opened.agreement()
