"""No password shows anywhere but where the operator put it: not in a log, an output, a command line or a store's keys."""

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from coordinator import local, nodes
from shared import config
from tests import guarded_etcd, servers
from tests.cluster import web

CLUSTER = "sealed"
REDIS_SECRET = "Rsecret-5e1f"
ETCD_SECRET = "Esecret-77ab"
WRONG = "Wsecret-90cd"
SECRETS = (REDIS_SECRET, ETCD_SECRET, WRONG)
AGENT = "Test/1.0 (+https://localhost/secrets)"
CRAWL_S = 60.0
COMMAND_S = 30.0


@dataclass
class Stage:
    """Two stores with passwords, a web, and all that commands have said."""

    folder: Path
    redis: local.Server
    etcd: servers.Server
    web: local.Server
    said: list[str] = field(default_factory=list)

    def environ(self, **more: str) -> dict[str, str]:
        return nodes.packages() | {
            "CRAWLRING_CLUSTER": CLUSTER,
            "CRAWLRING_ETCD": self.etcd.address,
            "CRAWLRING_ETCD_SECURITY__USER": "crawler",
            "CRAWLRING_ETCD_SECURITY__PASSWORD": ETCD_SECRET,
            "CRAWLRING_REDIS": f"redis://:{REDIS_SECRET}@{self.redis.address}/0",
            "CRAWLRING_MEMBERSHIP__VIEW_LEASE_S": "2.5",
            **more,
        }

    def line(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "coordinator.cli", *arguments]

    def command(self, *arguments: str, status: int | None = 0, **more: str) -> str:
        """Run one command; what it said is kept for the search, and returned."""
        done = subprocess.run(
            self.line(*arguments),
            env=self.environ(**more),
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        self.said.append(done.stdout + done.stderr)
        assert status is None or done.returncode == status, f"{arguments}: {done.returncode}: {done.stderr}"
        return done.stdout + done.stderr

    def clean(self) -> None:
        """Nothing that was said, and no file in the folder, holds a secret."""
        for text in self.said:
            _clean(text, "an output")
        for path in self.folder.rglob("*"):
            if path.is_file():
                _clean(path.read_bytes().decode("latin-1"), str(path))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The passwords are given to the stores in files outside the folder that is searched."""
    kept, searched = tmp_path_factory.mktemp("kept"), tmp_path_factory.mktemp("searched")
    (kept / "users.acl").write_text(f"user default on >{REDIS_SECRET} ~* &* +@all\n")
    redis = local.Server(
        "valkey",
        command=lambda port, _: [
            *(local.find_valkey(), "--port", str(port), "--bind", local.LOOPBACK, "--dir", str(searched / "valkey")),
            *("--appendonly", "yes", "--aclfile", str(kept / "users.acl")),
        ],
        answers=lambda port: local._ask(port, b"PING\r\nQUIT\r\n").startswith(b"-NOAUTH"),
        data=searched / "valkey",
    )
    etcd = guarded_etcd.etcd(kept / "etcd", program=local.find_etcd())
    site = web.process(searched / "web", sites=6, pages=4, slow_s=0.1)
    with servers.running(redis), servers.running(etcd), servers.running(site):
        guarded_etcd.Operator(etcd).guard(CLUSTER, "crawler", ETCD_SECRET)
        yield Stage(searched, redis, etcd, site)


@contextlib.contextmanager
def command_lines() -> Iterator[set[str]]:
    """All command lines and names of processes that are seen meanwhile."""
    seen: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            for entry in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    seen.add((entry / "cmdline").read_bytes().decode("latin-1").replace("\0", " "))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


@pytest.mark.cluster
def test_a_whole_crawl_on_stores_with_passwords_shows_none_of_them(stage: Stage) -> None:
    seeds = stage.folder / "seeds.txt"
    seeds.write_text("".join(f"{url}\n" for url in web.build(sites=6, pages=4).seeds()))
    data = stage.folder / "data"
    started = ["up", "--nodes=2", f"--data={data}", f"--seeds={seeds}", f"--connect-to={stage.web.address}"]
    started += [f"--user-agent={AGENT}", "--delay=0.3"]
    log = stage.folder / "up.log"
    with command_lines() as lines, log.open("wb") as out:
        up = subprocess.Popen(stage.line(*started), env=stage.environ(), stdout=out, stderr=subprocess.STDOUT)
        try:
            _until(lambda: _pages(stage) >= 6, up, log)
            for line in (
                ("status",),
                ("ring", "--json"),
                ("owner", "site1.example"),
                ("site", web.build(sites=6, pages=4).sites[0].name, "--json"),
                ("handoffs", "--json"),
                ("seed", str(seeds)),
                ("node", "--id=n9", f"--user-agent={AGENT}", "--check-config"),
                ("node", "--id=n9", f"--user-agent={AGENT}", "--check-config", "--json"),
            ):
                stage.command(*line)
            for one in json.loads(stage.command("status", "--json"))["nodes"]:
                for path in ("state", "metrics", "readyz", "healthz"):
                    with urllib.request.urlopen(f"http://{one['address']}/{path}", timeout=5) as answer:
                        stage.said.append(answer.read().decode())
            stage.command("kill-lease", "n1", "--rejoin=1", "--json")
            stage.command("drain", "n2")
            _until(lambda: _pages(stage) >= 6, up, log)
        finally:
            up.send_signal(signal.SIGINT)
            status = up.wait(COMMAND_S)
    assert status == 0, log.read_text()
    stage.command("audit", str(data / "out"), "--json", status=None)
    assert any("--id=n1" in one for one in lines), "the nodes' command lines were seen"
    for one in lines:
        _clean(one, "a command line")
    stage.clean()
    _clean(_keys_in_etcd(stage), "etcd")
    assert list((data / "out").glob("crawl-*.jsonl"))
    assert list((data / "logs").glob("*.log"))


@pytest.mark.parametrize(
    "more",
    [
        {"CRAWLRING_REDIS": f"redis://:{WRONG}@{{redis}}/0"},
        {"CRAWLRING_REDIS": f"redis://:{REDIS_SECRET}@127.0.0.1:1/0"},
        {"CRAWLRING_REDIS": f"redis://:a/{REDIS_SECRET}#b?c@127.0.0.1:1/0"},
        {"CRAWLRING_REDIS": f"redis://:{REDIS_SECRET}@127.0.0.1:port/0"},
        {"CRAWLRING_REDIS": f"redis://{{redis}}/0?password={WRONG}"},
        {"CRAWLRING_REDIS": f"redis-cluster://:{REDIS_SECRET}@127.0.0.1:1,127.0.0.1:2"},
        {"CRAWLRING_ETCD_SECURITY__PASSWORD": WRONG},
        {"CRAWLRING_ETCD": f"http://crawler:{ETCD_SECRET}@{{etcd}}"},
        {"CRAWLRING_ETCD": "127.0.0.1:1"},
    ],
    ids=str,
)
def test_what_fails_for_a_password_or_beside_one_says_so_without_it(stage: Stage, more: Mapping[str, str]) -> None:
    """Every command that opens a store, and a node, which tries again until it is stopped or is told that it may not."""
    given = {name: value.format(redis=stage.redis.address, etcd=stage.etcd.address) for name, value in more.items()}
    lines = (("status",), ("seed", "/dev/null"), ("node", "--id=n9", f"--user-agent={AGENT}", f"--out={stage.folder}"))
    logs = [stage.folder / f"{line[0]}.log" for line in lines]
    started = [_start(stage, line, log, given) for line, log in zip(lines, logs, strict=True)]
    try:
        for process in started[:2]:
            process.wait(COMMAND_S)
        _until(lambda: "unreachable" in logs[2].read_text() or started[2].poll() is not None, None, logs[2])
    finally:
        for process in started:
            process.kill()
            process.wait(COMMAND_S)
    for log in logs:
        assert "Traceback" not in log.read_text(), log.read_text()
    (said,) = logs[0].read_text().splitlines()
    assert said.startswith("crawlring: ")
    assert started[0].returncode in {2, 3}
    stage.clean()


def _start(stage: Stage, line: Sequence[str], log: Path, given: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    with log.open("wb") as out:
        return subprocess.Popen(stage.line(*line), env=stage.environ(**given), stdout=out, stderr=subprocess.STDOUT)


def test_a_password_that_is_given_on_a_command_line_is_remarked_on(stage: Stage) -> None:
    url = f"redis://:{REDIS_SECRET}@{stage.redis.address}/0"
    assert "everybody on this machine can read" in stage.command("handoffs", f"--redis={url}")
    assert "everybody" not in stage.command("handoffs")
    stage.clean()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis://:p@h:1/0", "redis://:***@h:1/0"),
        ("rediss://u:p@h:1/0?ssl_ca_certs=/a", "rediss://u:***@h:1/0?ssl_ca_certs=/a"),
        ("redis://u:p@ss/w#o?rd@h/0", "redis://u:***@h/0"),
        ("redis://word@h/0", "redis://:***@h/0"),
        ("redis://h/0?password=p&db=1", "redis://h/0?password=***&db=1"),
        ("unix://u:p@/run/redis.sock", "unix://u:***@/run/redis.sock"),
        ("redis-cluster://u:p@a:1,b:2", "redis-cluster://u:***@a:1,b:2"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert config.without_password(url) == shown


def test_a_configuration_that_is_printed_or_logged_shows_no_secret() -> None:
    options = {
        "redis": f"redis://:{REDIS_SECRET}@h/0",
        "etcd_security.user": "u",
        "etcd_security.password": ETCD_SECRET,
    }
    _clean(repr(config.load(environ={}, options=options)), "repr")


def _clean(text: str, where: str) -> None:
    found = [secret for secret in SECRETS if secret in text]
    at = text.find(found[0]) if found else 0
    assert not found, f"{found} in {where}: …{text[max(0, at - 200) : at + 60]}…"


def _pages(stage: Stage) -> int:
    log = stage.folder / "web" / web.LOG
    return log.read_bytes().count(b"\n") if log.exists() else 0


def _until(condition: object, process: "subprocess.Popen[bytes] | None", log: Path) -> None:
    deadline = time.monotonic() + CRAWL_S
    assert callable(condition)
    while not condition():
        assert process is None or process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def _keys_in_etcd(stage: Stage) -> str:
    return guarded_etcd.Operator(stage.etcd).everything()
