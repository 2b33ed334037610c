"""etcd with TLS, client certificates, users and tokens that run out: a session lives on, and a refusal says what to do."""

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from coordinator import cli, local
from shared import agreement, config, errors, etcd, etcd_access, keys, membership, records
from tests import certificates, guarded_etcd, servers

QUICK = agreement.Settings(
    view_lease_s=2.0, wire_s=0.5, confirm_s=0.3, gather_s=0.2, rejoin_s=0.5, lease_ttl_s=3, look_s=0.3
)
VALUE = records.MemberValue(weight=1.0, address="here", fingerprint={"ring": "xxh3-64/16"})
PASSWORD = "Correct-Horse-7"
USER = "crawler"

Start = Callable[..., servers.Server]


@pytest.fixture(params=["etcd35", "etcd34"])
def program(request: pytest.FixtureRequest) -> str:
    if request.param == "etcd35":
        return local.find_etcd()
    return servers.need(servers.ETCD34, of="Debian's package etcd-server")


@pytest.fixture
def authority(tmp_path: Path) -> certificates.Authority:
    return certificates.Authority(tmp_path / "ca")


@pytest.fixture
def start(tmp_path: Path, program: str) -> Iterator[Start]:
    started: list[servers.Server] = []

    def start_one(**kwargs: object) -> servers.Server:
        server = guarded_etcd.etcd(tmp_path / f"etcd{len(started)}", program=program, **kwargs)
        started.append(server)
        server.start()
        return server

    yield start_one
    for server in started:
        server.kill()


class Peer:
    """A session whose owner of sites owns nothing; what authority it lost is noted."""

    def __init__(self, address: str, cluster: str, security: config.EtcdSecurity) -> None:
        self.store = etcd.Etcd(address, security=security)
        self.session = membership.Session(
            self.store, cluster, node="a", value=VALUE, settings=QUICK, on_effect=self._on_effect
        )
        self.task = asyncio.create_task(self.session.run())

    def _on_effect(self, effect: membership.OwnerEffect, _now_s: float) -> None:
        loop = asyncio.get_running_loop()
        if isinstance(effect, agreement.Adopt):
            loop.call_soon(self.session.feed, agreement.Applied(effect.views[-1][0]))
        elif isinstance(effect, agreement.StopAll):
            loop.call_soon(self.session.feed, agreement.Stopped(effect.incarnation))

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.store.close()


@pytest.fixture
async def peer() -> AsyncIterator[Callable[..., Peer]]:
    opened: list[Peer] = []

    def open_one(*arguments: object) -> Peer:
        opened.append(Peer(*arguments))
        return opened[-1]

    yield open_one
    for one in opened:
        await one.close()


async def until(condition: Callable[[], bool], what: str, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not in time: {what}"
        await asyncio.sleep(0.02)


def reach(address: str, **security: str) -> None:
    """One look as a command begins."""
    settings = config.Config(cluster="c", etcd=address, etcd_security=config.EtcdSecurity(**security))
    with etcd.reached(settings):
        pass


def https(server: servers.Server) -> str:
    return f"https://{server.address}"


def guarded(start: Start, cluster: str, options: tuple[str, ...] = ()) -> tuple[servers.Server, guarded_etcd.Operator]:
    server = start(options=options)
    operator = guarded_etcd.Operator(server)
    operator.guard(cluster, USER, PASSWORD)
    return server, operator


async def test_a_session_over_tls_with_a_certificate_of_its_own(
    start: Start, authority: certificates.Authority, peer: Callable[..., Peer], cluster: str
) -> None:
    server = start(tls=authority, options=("--client-cert-auth", "--trusted-ca-file", str(authority.ca)))
    ours = authority.sign(USER)
    security = config.EtcdSecurity(ca_file=str(authority.ca), cert_file=str(ours.cert), key_file=str(ours.key))
    one = peer(https(server), cluster, security)
    await until(lambda: one.session.joined and one.session.authority(), "a member over TLS")
    assert await asyncio.to_thread(one.store.drain, keys.EtcdKeys(cluster), "a")
    assert await asyncio.wait_for(asyncio.shield(one.task), 15)


def test_what_is_wrong_with_a_certificate_is_said(
    start: Start, authority: certificates.Authority, tmp_path: Path
) -> None:
    server = start(tls=authority, options=("--client-cert-auth", "--trusted-ca-file", str(authority.ca)))
    ca, ours = str(authority.ca), authority.sign(USER)
    stranger = certificates.Authority(tmp_path / "other")
    theirs = stranger.sign(USER)
    mine = {"cert_file": str(ours.cert), "key_file": str(ours.key)}
    reach(https(server), ca_file=ca, **mine)
    reach(https(server).replace(local.LOOPBACK, "localhost"), ca_file=ca, **mine)
    for security, said in (
        ({"ca_file": ca}, r"it wants a certificate of ours: etcd_security\.cert_file"),
        ({"ca_file": ca, "cert_file": str(theirs.cert), "key_file": str(theirs.key)}, "it does not take a certificate"),
        ({"ca_file": str(stranger.ca), **mine}, r"not one that etcd_security\.ca_file vouches for"),
    ):
        with pytest.raises(errors.StoreForbidden, match=said) as caught:
            reach(https(server), **security)
        assert str(caught.value).startswith(f"etcd at {server.address}: ")
    with pytest.raises(errors.StoreUnavailable, match="write https:// in front"):
        reach(server.address)


def test_a_name_that_the_certificate_does_not_have_is_refused(start: Start, authority: certificates.Authority) -> None:
    server = start(tls=authority, alt="DNS:elsewhere.test")
    with pytest.raises(errors.StoreForbidden, match=r"for the name 127\.0\.0\.1"):
        reach(https(server), ca_file=str(authority.ca))


def test_tls_where_etcd_speaks_none(start: Start, authority: certificates.Authority) -> None:
    server = start()
    with pytest.raises(errors.StoreUnavailable, match="no TLS"):
        reach(https(server), ca_file=str(authority.ca))


def test_a_certificate_that_is_changed_in_its_file_is_read_anew(
    start: Start, authority: certificates.Authority, tmp_path: Path, cluster: str
) -> None:
    server = start(tls=authority)
    named = tmp_path / "named.pem"
    named.write_bytes(certificates.Authority(tmp_path / "other").ca.read_bytes())
    store = etcd.Etcd(https(server), security=config.EtcdSecurity(ca_file=str(named)))
    names = keys.EtcdKeys(cluster)
    with pytest.raises(errors.StoreForbidden):
        store.reach(names)
    named.unlink()
    with pytest.raises(errors.StoreForbidden, match="cannot read"):
        store.reach(names)
    named.write_bytes(authority.ca.read_bytes())
    store.reach(names)
    store.close()


async def test_a_user_with_the_least_rights_can_do_all_that_a_node_and_a_command_do(
    start: Start, peer: Callable[..., Peer], cluster: str
) -> None:
    server, _ = guarded(start, cluster)
    security = config.EtcdSecurity(user=USER, password=PASSWORD)
    names = keys.EtcdKeys(cluster)
    command = etcd.Etcd(server.address, security=security)
    assert await asyncio.to_thread(command.found, names, dict(VALUE.fingerprint))
    hints, stop = [], threading.Event()
    watching = threading.Thread(target=lambda: hints.extend(command.hints(names, stop)))
    watching.start()
    one = peer(server.address, cluster, security)
    await until(lambda: one.session.joined and one.session.authority(), "a member")
    first = one.session.state.incarnation
    assert await asyncio.to_thread(command.kill_lease, names, "a", 0.1)
    await until(lambda: one.session.joined and one.session.state.incarnation != first, "a member again")
    assert await asyncio.to_thread(command.drain, names, "a")
    assert await asyncio.wait_for(asyncio.shield(one.task), 15)
    stop.set()
    await asyncio.to_thread(command.found, names, {})  # no event, but the stream may also end by the close
    command.close()
    await asyncio.to_thread(watching.join, 10)
    assert not watching.is_alive()
    assert hints, "the watch was allowed too"

    other = etcd.Etcd(server.address, security=security)
    with pytest.raises(errors.StoreForbidden, match="'crawler' needs a role with readwrite on the prefix"):
        await asyncio.to_thread(other.reach, keys.EtcdKeys(f"{cluster}x"))
    other.close()


def test_a_wrong_user_or_none_is_told_what_to_set(start: Start, cluster: str) -> None:
    server, _ = guarded(start, cluster)
    for security, said in (
        ({"user": USER, "password": "no"}, r"check etcd_security\.user and its password"),
        ({"user": "nobody", "password": PASSWORD}, r"check etcd_security\.user and its password"),
        ({}, r"nobody asked: set etcd_security\.user and etcd_security\.password_file"),
    ):
        with pytest.raises(errors.StoreForbidden, match=said) as caught:
            reach(server.address, **security)
        assert PASSWORD not in str(caught.value)


async def test_authority_holds_over_tokens_that_run_out(
    start: Start, peer: Callable[..., Peer], cluster: str, tmp_path: Path
) -> None:
    """A token ends 1 s after its making, however much it is used: four of them in a row, and no moment without."""
    server, _ = guarded(start, cluster, guarded_etcd.brief_tokens(tmp_path, ttl_s=1))
    one = peer(server.address, cluster, config.EtcdSecurity(user=USER, password=PASSWORD))
    await until(lambda: one.session.joined and one.session.authority(), "a member")
    tokens = set()

    def seen() -> bool:
        assert one.session.authority(), one.session.trouble
        tokens.add(one.store._account._token)
        return len(tokens) >= 4

    await until(seen, "four tokens")


async def test_a_restarted_etcd_forgets_its_tokens_and_the_session_logs_in_again(
    start: Start, peer: Callable[..., Peer], cluster: str
) -> None:
    server, _ = guarded(start, cluster)
    one = peer(server.address, cluster, config.EtcdSecurity(user=USER, password=PASSWORD))
    await until(lambda: one.session.joined and one.session.authority(), "a member")
    before = one.store._account._token
    await asyncio.to_thread(server.stop)
    await until(lambda: not one.session.authority(), "no authority without etcd")
    await asyncio.to_thread(server.start)
    await until(lambda: one.session.joined and one.session.authority(), "authority again")
    assert one.store._account._token not in (None, before)
    assert not one.task.done()


async def test_a_password_that_is_changed_in_its_file_is_read_at_the_next_login(
    start: Start, peer: Callable[..., Peer], cluster: str, tmp_path: Path
) -> None:
    server, operator = guarded(start, cluster)
    secret = tmp_path / "password"
    secret.write_text(f"{PASSWORD}\n")
    one = peer(server.address, cluster, config.EtcdSecurity(user=USER, password_file=str(secret)))
    await until(lambda: one.session.joined and one.session.authority(), "a member")
    await asyncio.to_thread(operator.change_password, USER, "Another-Horse-8")
    await until(lambda: one.session.trouble is not None, "it is refused")
    assert "check etcd_security.user" in str(one.session.trouble)
    assert not one.task.done(), "a refusal ends no node that runs: its authority runs out meanwhile"
    secret.write_text("Another-Horse-8\n")
    await until(lambda: one.session.joined and one.session.authority(), "authority again")


def test_the_script_for_operators_makes_such_a_user(start: Start, cluster: str, tmp_path: Path) -> None:
    servers.need("/usr/bin/etcdctl", of="Debian's package etcd-client")
    script = Path(__file__).parents[2] / "deploy" / "etcd-users.sh"
    root, crawler = tmp_path / "root", tmp_path / "crawler"
    root.write_text("of-the-operator\n")
    crawler.write_text(f"{PASSWORD}\n")
    server = start()
    environ = {**os.environ, "ETCDCTL_ENDPOINTS": server.address}
    done = subprocess.run([script, cluster, root, crawler], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert PASSWORD not in done.stdout + done.stderr
    store = etcd.Etcd(server.address, security=config.EtcdSecurity(user="crawler", password_file=str(crawler)))
    store.reach(keys.EtcdKeys(cluster))
    assert store.found(keys.EtcdKeys(cluster), {})
    with pytest.raises(errors.StoreForbidden, match="needs a role"):
        store.reach(keys.EtcdKeys("another"))
    store.close()


async def test_an_etcd_without_users_lets_a_user_in(etcd: str, cluster: str) -> None:
    store = membership.etcd.Etcd(etcd, security=config.EtcdSecurity(user=USER, password=PASSWORD))
    await asyncio.to_thread(store.reach, keys.EtcdKeys(cluster))
    store.close()


def test_a_command_goes_to_the_endpoint_that_answers(etcd: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["drain", "n9", f"--etcd=127.0.0.1:1,{etcd}"]) == cli.NO
    assert cli.main(["drain", "n9", "--etcd=127.0.0.1:1,127.0.0.1:2"]) == cli.UNREACHABLE
    said = capsys.readouterr().err
    assert "127.0.0.1:1" in said
    assert "127.0.0.1:2" in said


def test_a_command_that_is_not_let_in_says_so_once_and_exits_2(
    start: Start, cluster: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, _ = guarded(start, cluster)
    secret = tmp_path / "password"
    monkeypatch.setenv("CRAWLRING_ETCD_SECURITY__USER", USER)
    monkeypatch.setenv("CRAWLRING_ETCD_SECURITY__PASSWORD_FILE", str(secret))
    line = ["drain", "n9", f"--etcd={server.address}", f"--cluster={cluster}"]
    for content, status, said in (
        (None, cli.USAGE, "cannot read"),
        ("\n", cli.USAGE, "no password in its first line"),
        ("wrong\n", cli.USAGE, "check etcd_security.user and its password"),
        (PASSWORD, cli.NO, ""),
    ):
        if content is not None:
            secret.write_text(content)
        assert cli.main(line) == status
        err = capfd.readouterr().err
        assert said in err
        assert err.count("\n") == (1 if said else 0), err


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("https://h:1,h:2", "every endpoint or of none"),
        ("http://user:secret@h:1", "no user and no password"),
        ("ftp://h:1", "http:// or https://"),
        ("h:1", "not https://"),
    ],
)
def test_addresses_that_contradict_themselves_or_the_certificates(address: str, said: str) -> None:
    with pytest.raises(errors.ConfigError, match=said) as caught:
        etcd.Etcd(address, security=config.EtcdSecurity(ca_file="/etc/hostname"))
    assert "secret" not in str(caught.value)


def test_settings_that_belong_together() -> None:
    for options in (
        {"etcd_security.user": "u"},
        {"etcd_security.cert_file": "c"},
        {"etcd_security.user": "u", "etcd_security.password": "p", "etcd_security.password_file": "f"},
    ):
        with pytest.raises(errors.ConfigError, match="etcd_security"):
            config.load(environ={}, options=options)


def test_an_etcd_that_up_starts_itself_has_no_users(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = tmp_path / "crawl.toml"
    named.write_text('[etcd_security]\nca_file = "/etc/hostname"\n')
    line = ["up", f"--config={named}", f"--data={tmp_path / 'data'}", "--user-agent=Test/1.0 (+https://localhost/x)"]
    assert cli.main(line) == cli.USAGE
    assert "say where it is (--etcd)" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_one_endpoint_that_forbids_is_no_verdict_while_another_is_away() -> None:
    away, forbidden = errors.StoreUnavailable("away"), errors.StoreForbidden("no")
    assert type(etcd_access.joined([away, forbidden])) is errors.StoreUnavailable
    assert type(etcd_access.joined([forbidden, forbidden])) is errors.StoreForbidden
    assert str(etcd_access.joined([forbidden, forbidden])) == "no"
