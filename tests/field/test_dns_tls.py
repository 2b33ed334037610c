"""Field cases of names and certificates: what is slow or bad costs its own site alone, and is told by reason."""

import asyncio
import datetime as dt
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from node import dns
from shared import clock, records
from tests import certificates
from tests.field.stage import OK, Names, Scene, Stage, case, outcomes
from tests.node import name_server, origins


class Zones(name_server.NameServer):
    """Answers after a while, and knows how many names wait for it at once."""

    def __init__(self) -> None:
        super().__init__()
        self.after_s = 0.0
        self.waiting: dict[bytes, int] = {}
        self.most_waiting = 0

    def datagram_received(self, data: bytes, addr: Any) -> None:
        name = data[12 : data.index(0, 12)]
        self.waiting[name] = self.waiting.get(name, 0) + 1
        self.most_waiting = max(self.most_waiting, len(self.waiting))
        asyncio.get_running_loop().call_later(self.after_s, self._answer, name, data, addr)

    def _answer(self, name: bytes, data: bytes, addr: Any) -> None:
        self.waiting[name] -= 1
        if not self.waiting[name]:
            del self.waiting[name]
        super().datagram_received(data, addr)


@pytest.fixture
async def zones():
    made = Zones()
    made.address = await made.start()
    yield made
    made.stop()


@case("dns-slow")
async def test_a_name_without_an_answer_keeps_only_its_own_site_waiting(scene: Scene, zones: Zones) -> None:
    port = scene.stage.origin.port
    slow = f"http://slow-{scene.site}:{port}/p"
    others = [f"http://{number}-{scene.site}:{port}/p" for number in range(40)]
    zones.mute.add(f"slow-{scene.site}")
    for number, url in enumerate(others):
        zones.records[f"{number}-{scene.site}"] = ["127.0.0.1"]
        scene.put(url, OK)
    resolver = dns.Resolver(allow_private=True, nameservers=[zones.address])
    async with scene.crawl(resolver=resolver) as crawl:
        await scene.seed(crawl, slow)
        began_s = clock.boot_s()
        waits = asyncio.create_task(crawl.run(lambda: bool(crawl.commits), within_s=15.0))
        await origins.until(lambda: f"slow-{scene.site}" in zones.asked)
        answers = await asyncio.gather(*(crawl.fetcher.fetch(url, permit=origins.Gate().permit(url)) for url in others))
        assert all(isinstance(answer.outcome, records.Fetched) for answer in answers)
        assert clock.boot_s() - began_s < 2.0
        assert not waits.done(), "the others did not wait for it"
        await waits
        assert clock.boot_s() - began_s < 12.0, "a look-up is bounded"
        look = await crawl.look(f"slow-{scene.site}")
    assert (look["set_aside"], look["later"] + look["pending"]) == ({}, 1), "it passes"
    assert len(scene.stage.log) == len(others)


@case("dns-flood")
async def test_a_flood_of_names_is_asked_for_in_turn_and_a_broken_zone_is_no_missing_name(
    scene: Scene, zones: Zones
) -> None:
    names = [f"h{number}.{scene.site}" for number in range(2_500)]
    broken, gone, good = set(names[::10]), set(names[1::10]), set(names) - set(names[::10]) - set(names[1::10])
    zones.records.update({name: ["127.0.0.1"] for name in good | broken})
    zones.broken = broken
    zones.after_s = 0.01
    resolver = dns.Resolver(allow_private=True, nameservers=[zones.address])

    async def ask(name: str) -> str:
        while True:
            try:
                return (await resolver.lookup(name, 80)).ip
            except dns.BusyError:
                continue
            except dns.UnresolvedError as error:
                return f"none: {error}"

    try:
        found = dict(zip(names, await asyncio.gather(*map(ask, names)), strict=True))
        assert zones.most_waiting <= dns.LOOKUPS_MAX
        assert {name for name, ip in found.items() if ip == "127.0.0.1"} == good
        asked = len(zones.asked)
        await asyncio.gather(*map(ask, gone))
        assert len(zones.asked) == asked, "what its zone denies is not asked for again"
        now_s = clock.boot_s()
        assert all(resolver._known[name].until_s - now_s > 80_000 for name in gone)
        assert all(resolver._known[name].until_s - now_s < 120 for name in broken)
    finally:
        await resolver.close()


def aged(folder: Path, host: str) -> tuple[certificates.Pair, Path]:
    """A certificate whose days are over, and the authority that signed it when both were valid."""
    now = dt.datetime.now(dt.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority of its day")])
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]

    def begun(subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: tuple[int, int]) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder(issuer_name=name, subject_name=subject, public_key=key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + dt.timedelta(days=days[0]))
            .not_valid_after(now + dt.timedelta(days=days[1]))
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(keys[0].public_key()), critical=False)
        )

    signs = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    ca = begun(name, keys[0], days=(-60, 60)).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    ca = ca.add_extension(signs, critical=True)
    ca = ca.add_extension(x509.SubjectKeyIdentifier.from_public_key(keys[0].public_key()), critical=False)
    leaf = begun(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "expired")]), keys[1], days=(-30, -1))
    leaf = leaf.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    leaf = leaf.add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    pair, authority = certificates.Pair(folder / "expired.pem", folder / "expired.key"), folder / "aged-ca.pem"
    pem = serialization.Encoding.PEM
    pair.cert.write_bytes(leaf.sign(keys[0], hashes.SHA256()).public_bytes(pem))
    authority.write_bytes(ca.sign(keys[0], hashes.SHA256()).public_bytes(pem))
    plain = serialization.NoEncryption()
    pair.key.write_bytes(keys[1].private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    return pair, authority


def server_of(pairs: dict[str, tuple[Path, Path]]) -> ssl.SSLContext:
    """One server that shows each host its own certificate."""
    contexts = {}
    for host, (cert, key) in pairs.items():
        contexts[host] = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        contexts[host].load_cert_chain(cert, key)
    outer = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    outer.load_cert_chain(*next(iter(pairs.values())))

    def choose(connection: Any, host: str, _context: ssl.SSLContext) -> None:
        connection.context = contexts[host]

    outer.sni_callback = choose  # type: ignore[assignment]
    return outer


@pytest.mark.parametrize("setting", ["refuse", "record"])
@case("tls-bad-cert")
async def test_a_bad_certificate_is_refused_or_recorded_by_its_fault(
    scene: Scene, authority: certificates.Authority, tmp_path: Path, setting: str
) -> None:
    hosts = {name: f"{name}-{scene.site}" for name in ("good", "expired", "self_signed", "wrong_host")}
    (tmp_path / "own").mkdir()
    origins.certificate(tmp_path / "own", hosts["self_signed"])
    old, old_authority = aged(tmp_path, hosts["expired"])
    pairs = {
        hosts["good"]: tuple(authority.sign("good", alt=f"DNS:{hosts['good']}")),
        hosts["expired"]: tuple(old),
        hosts["self_signed"]: (tmp_path / "own" / "cert.pem", tmp_path / "own" / "key.pem"),
        hosts["wrong_host"]: tuple(authority.sign("wrong", alt="DNS:elsewhere.test")),
    }
    stage = Stage(scene.site, server_of(pairs))  # type: ignore[arg-type]
    secured = Scene(scene.name, stage, scene.store, scene.out)
    pages = {name: f"https://{host}/p" for name, host in hosts.items()}
    for page in pages.values():
        stage.put(page, OK)
        stage.put(page.replace("https:", "http:"), OK)
    trust = ssl.create_default_context(cafile=str(authority.ca))
    trust.load_verify_locations(str(old_authority))
    faults = {"expired": "tls_expired", "self_signed": "tls_self_signed", "wrong_host": "tls_wrong_host"}
    async with stage.open(), secured.crawl(resolver=Names(stage), trust=trust, tls_faults=setting) as crawl:
        await secured.seed(crawl, *pages.values())
        if setting == "refuse":
            await crawl.run(lambda: bool(outcomes(crawl, pages["good"])) and len(crawl.commits) >= 5)
            for name, fault in faults.items():
                assert set(outcomes(crawl, f"https://{hosts[name]}/robots.txt")) == {f"failed:{fault}"}
                assert (await crawl.look(hosts[name]))["set_aside"] == {}
        else:
            await crawl.run(lambda: all(outcomes(crawl, page) for page in pages.values()))
            told = {name: crawl.pages()[page].tls_fault for name, page in pages.items()}
            assert told == {"good": None, **faults}
    asked = {one.url for one in stage.log}
    wanted = pages if setting == "record" else {"good": pages["good"]}
    assert asked == {url for page in wanted.values() for url in (page, page.replace("/p", "/robots.txt"))}
