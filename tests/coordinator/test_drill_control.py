"""What a drill breaks is healed when it says so or ends, however it ends; nobody but its own user can ask."""

import asyncio
import signal
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordinator import control, local, nodes, relay
from shared import config, errors
from tests import servers

SLEEPER = "import time; print('up', flush=True); time.sleep(60)"


async def wait(condition: Callable[[], object], *, within_s: float = 10) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "not within the deadline"
        await asyncio.sleep(0.02)


def stopped(pid: int) -> bool:
    return ") T" in Path(f"/proc/{pid}/stat").read_text()


def holding(folder: Path, text: bytes) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[nodes.Crew]:
    """Two processes that do nothing, as nodes."""
    made = nodes.Crew(nodes.Place("h:1", "redis://h:2/0", "c", tmp_path / "out", tmp_path))
    for node in ("n1", "n2"):
        made._children[node] = local.Child([sys.executable, "-c", SLEEPER], log=made.log(node))
    deadline = time.monotonic() + 10
    while not all("up" in made.log(node).read_text() for node in ("n1", "n2")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    yield made
    made.kill()


def stage(crew: nodes.Crew, *ours: local.Server, **relays: dict) -> control.Stage:
    return control.Stage(config.Config(redis="redis://:secret@h:2/0"), crew, ours, relays)


@pytest.fixture
async def running(crew: nodes.Crew, tmp_path: Path):
    made = control.Control(stage(crew), tmp_path)
    await made.start()
    yield made
    await made.close()


async def test_a_drill_learns_what_runs_and_only_its_user_may_connect(
    running: control.Control, crew: nodes.Crew, tmp_path: Path
):
    link = await control.Link.open(tmp_path)
    assert link.hello.nodes == {node: crew.pid(node) for node in ("n1", "n2")}
    assert link.hello.settings.redis == "redis://:secret@h:2/0"
    assert (link.hello.stores, link.hello.relayed, link.hello.out) == ((), False, str(tmp_path / "out"))
    assert stat.S_IMODE((tmp_path / control.NAME).stat().st_mode) == 0o600
    assert not holding(tmp_path, b"secret")
    await link.close()


async def test_a_frozen_node_runs_again_when_the_drill_is_gone(
    running: control.Control, crew: nodes.Crew, tmp_path: Path
):
    link = await control.Link.open(tmp_path)
    await link.ask("freeze", node="n1")
    await wait(lambda: stopped(crew.pid("n1")))
    assert running.busy
    await link.close()  # as by kill -9: nothing was said
    await wait(lambda: not stopped(crew.pid("n1")))
    await wait(lambda: not running.busy)
    assert crew.alive() == ["n1", "n2"]


async def test_heal_heals_and_the_end_of_up_does_too(running: control.Control, crew: nodes.Crew, tmp_path: Path):
    link = await control.Link.open(tmp_path)
    for end in (lambda: link.ask("heal"), running.close):
        await link.ask("freeze", node="n2")
        await wait(lambda: stopped(crew.pid("n2")))
        await end()
        await wait(lambda: not stopped(crew.pid("n2")))
    await wait(lambda: link.ended)
    with pytest.raises(errors.StoreUnavailable, match="has ended"):
        await link.ask("heal")
    await link.close()
    assert not (tmp_path / control.NAME).exists()


async def test_a_killed_node_is_dead_and_cannot_be_broken_again(
    running: control.Control, crew: nodes.Crew, tmp_path: Path
):
    link = await control.Link.open(tmp_path)
    await link.ask("kill", node="n1")
    assert [(end.node, end.status) for end in crew.ended()] == [("n1", -signal.SIGKILL)]
    with pytest.raises(errors.StoreUnavailable, match="n1 does not run"):
        await link.ask("freeze", node="n1")
    assert await link.ask("heal") > 0, "the connection goes on"
    await link.close()


async def test_one_drill_at_a_time(running: control.Control, tmp_path: Path):
    first = await control.Link.open(tmp_path)
    with pytest.raises(errors.ConfigError, match="another drill"):
        await control.Link.open(tmp_path)
    await first.close()
    await wait(lambda: not running.busy)
    await (await control.Link.open(tmp_path)).close()


async def test_nonsense_is_answered_and_breaks_nothing(running: control.Control, crew: nodes.Crew, tmp_path: Path):
    link = await control.Link.open(tmp_path)
    for line in (b"{}\n", b"not json\n", b'{"do":"burn","node":"n1"}\n'):
        link._writer.write(line)
        assert b'"error":"' in await link._reader.readline()
    assert crew.alive() == ["n1", "n2"]
    await link.close()


async def test_without_up_there_is_nothing_to_drill(tmp_path: Path):
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(errors.ConfigError, match="no `crawlring up`"):
            await control.Link.open(folder)


async def test_what_a_killed_up_left_is_replaced_and_a_deep_folder_is_no_obstacle(crew: nodes.Crew, tmp_path: Path):
    deep = tmp_path / ("deep" * 30) / ("er" * 60)
    deep.mkdir(parents=True)
    made = control.Control(stage(crew), deep)
    await made.start()
    made._server.close()  # type: ignore[union-attr]
    with pytest.raises(errors.ConfigError, match="refused"):
        await control.Link.open(deep)
    again = control.Control(stage(crew), deep)
    await again.start()
    await (await control.Link.open(deep)).close()
    await again.close()


async def test_a_cut_reaches_the_relays_of_one_node_and_one_store(crew: nodes.Crew, tmp_path: Path):
    relays = {
        node: {store: [relay.Relay("127.0.0.1", 9)] for store in ("etcd", "redis")}  # never started: only the switch
        for node in ("n1", "n2")
    }
    made = control.Control(stage(crew, **relays), tmp_path)
    await made.start()
    link = await control.Link.open(tmp_path)
    assert link.hello.relayed

    def cut() -> list[tuple[str, str]]:
        return [(n, s) for n, known in relays.items() for s, (one,) in known.items() if not one._whole.is_set()]

    await link.ask("cut", node="n1", stores=("etcd",))
    assert cut() == [("n1", "etcd")]
    await link.ask("cut", node="n1", stores=("redis",))
    assert cut() == [("n1", "etcd"), ("n1", "redis")]
    await link.ask("heal")
    assert cut() == []
    await link.close()
    await made.close()


async def test_a_store_is_killed_and_comes_back_with_its_data_where_it_was(crew: nodes.Crew, tmp_path: Path):
    with servers.running(servers.valkey9(tmp_path / "valkey")) as server:
        made = control.Control(stage(crew, server), tmp_path)
        await made.start()
        link = await control.Link.open(tmp_path)
        assert link.hello.stores == ("redis",)
        local._ask(server.port, b"SET kept 1\r\nQUIT\r\n")
        await link.ask("stop_store", stores=("redis",))
        assert (server.exit_status, server.answers()) == (-signal.SIGKILL, False)
        await link.ask("heal")
        assert b"$1\r\n1" in local._ask(server.port, b"GET kept\r\nQUIT\r\n")
        await link.ask("stop_store", stores=("redis",))
        await link.close()
        await wait(server.answers)
        await made.close()
