"""A certificate's fault has its name, whether it ends the fetch or is told with it; http is never tried instead."""

import datetime as dt
import ipaddress
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from node import certificates, dns, fetch
from shared import config, records
from tests.node import origins
from tests.node.origins import Gate, Origin, answering

URL = "https://www.site.test/"
DAY = dt.timedelta(days=1)
NOW = dt.datetime.now(dt.UTC)


class Made(NamedTuple):
    """A certificate with its key, and those that lead to its authority."""

    cert: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    chain: tuple[x509.Certificate, ...] = ()


def made(
    name: str,
    by: Made | None = None,
    *,
    authority: bool = False,
    names: Sequence[str] = ("www.site.test",),
    days: tuple[int, int] = (-1, 2),
) -> Made:
    """Signed by `by`, or by itself; `days` from now in which it is valid."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer = by.key if by else key
    alternatives = [_alternative(one) for one in names]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.cert.subject if by else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW + days[0] * DAY)
        .not_valid_after(NOW + days[1] * DAY)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if authority:
        usage = dict.fromkeys(
            ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False
        )
        builder = builder.add_extension(
            x509.KeyUsage(**usage, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False),
            critical=True,
        )
    else:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    chain = (by.cert, *by.chain) if by and by.cert.issuer != by.cert.subject else ()
    return Made(builder.sign(signer, hashes.SHA256()), key, chain)


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


LONG = (-90, 90)
ROOT = made("root", authority=True, days=LONG)
BETWEEN = made("between", ROOT, authority=True, days=LONG)
STRANGER = made("stranger", authority=True)
CASES: dict[str, tuple[Made, str | None]] = {
    "good": (made("site", ROOT), None),
    "good by two steps": (made("site", BETWEEN), None),
    "good by a wildcard": (made("site", ROOT, names=("*.site.test",)), None),
    "expired": (made("site", ROOT, days=(-10, -1)), "tls_expired"),
    "not valid yet": (made("site", ROOT, days=(1, 10)), "tls_expired"),
    "wrong host": (made("site", ROOT, names=("other.test",)), "tls_wrong_host"),
    "a wildcard too deep": (made("site", ROOT, names=("*.www.site.test",)), "tls_wrong_host"),
    "self-signed": (made("site"), "tls_self_signed"),
    "self-signed and expired": (made("site", days=(-10, -1)), "tls_self_signed"),
    "unknown authority": (made("site", STRANGER), "tls_untrusted"),
    "a step left out": (made("site", BETWEEN)._replace(chain=()), "tls_untrusted"),
}


def pem(*certificates_: x509.Certificate) -> str:
    return "".join(one.public_bytes(serialization.Encoding.PEM).decode() for one in certificates_)


def server(one: Made, folder: Path) -> ssl.SSLContext:
    both = folder / "server.pem"
    key = one.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    both.write_text(key.decode() + pem(one.cert, *one.chain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context


def client() -> ssl.SSLContext:
    return ssl.create_default_context(cadata=pem(ROOT.cert))


async def asked(one: Made, folder: Path, *, faults: str, times: int = 1) -> tuple[list[fetch.Answer], Origin]:
    async with Origin(answering(origins.OK), tls=server(one, folder)) as origin:
        fetches = fetch.Fetcher(
            user_agent=origins.AGENT,
            limits=config.Limits(),
            resolver=dns.Resolver(connect_to=f"127.0.0.1:{origin.port}"),
            idle_max=4,
            tls=client(),
            tls_faults=faults,
        )
        await fetches.start()
        got = [await fetches.fetch(URL, permit=Gate().permit()) for _ in range(times)]
        await fetches.close()
        return got, origin


@pytest.mark.parametrize("name", CASES)
async def test_a_fault_ends_the_fetch_by_its_name(name: str, tmp_path: Path) -> None:
    one, fault = CASES[name]
    (answer,), origin = await asked(one, tmp_path, faults="refuse")
    if fault is None:
        assert isinstance(answer.outcome, records.Fetched)
        assert answer.tls_fault is None
        return
    assert isinstance(answer.outcome, records.Failed), answer.outcome
    assert answer.outcome.reason == fault
    assert (answer.sent, answer.tls_fault, answer.head) == (True, None, b"")
    assert origin.requests == [], "no request, by https or by http"


@pytest.mark.parametrize("name", CASES)
async def test_a_fault_is_told_with_the_page_where_that_is_wanted(name: str, tmp_path: Path) -> None:
    one, fault = CASES[name]
    answers, origin = await asked(one, tmp_path, faults="record", times=2)
    for answer in answers:
        assert isinstance(answer.outcome, records.Fetched), answer.outcome
        assert (answer.outcome.body, answer.tls_fault) == (b"ok", fault)
    assert (origin.connections, len(origin.requests)) == (1, 2), "one handshake, and its verdict is kept"


async def test_what_is_no_tls_is_no_fault_of_a_certificate() -> None:
    for faults in ("refuse", "record"):
        async with Origin(answering(b"HTTP/1.1 400 Bad\r\n\r\n", close=True)) as origin:
            fetches = fetch.Fetcher(
                user_agent=origins.AGENT,
                limits=config.Limits(connect_s=1.0, first_byte_s=0.3, total_s=0.4),
                resolver=dns.Resolver(connect_to=f"127.0.0.1:{origin.port}"),
                idle_max=4,
                tls_faults=faults,
            )
            await fetches.start()
            answer = await fetches.fetch(URL, permit=Gate().permit())
            await fetches.close()
            assert isinstance(answer.outcome, records.Failed)
            assert answer.outcome.reason in {"tls", "timeout", "disconnected", "connect"}
            assert origin.requests == []


@pytest.mark.parametrize(
    ("names", "host", "fault"),
    [
        (("192.0.2.7",), "192.0.2.7", None),
        (("192.0.2.7",), "192.0.2.8", "tls_wrong_host"),
        (("2001:db8::7",), "2001:db8::7", None),
        (("a.test", "b.test"), "B.TEST", None),
        (("*.b.test",), "a.b.test", None),
        (("*.test",), "b.test", "tls_wrong_host"),
        (("*.test",), "a.b.test", "tls_wrong_host"),
    ],
)
def test_names_are_compared_as_names_and_addresses(names: tuple[str, ...], host: str, fault: str | None) -> None:
    one = made("site", ROOT, names=names)
    chain = [one.cert.public_bytes(serialization.Encoding.DER)]
    assert certificates.Judge(client()).fault(chain, host) == fault


@pytest.mark.parametrize("chain", [[], [b""], [b"no certificate"], [b"\x30\x03\x02\x01\x01"]])
def test_what_is_no_certificate_is_untrusted(chain: list[bytes]) -> None:
    assert certificates.Judge(client()).fault(chain, "www.site.test") == "tls_untrusted"


def test_the_machines_own_authorities_are_read() -> None:
    judge = certificates.Judge()
    assert (
        judge.fault([made("site").cert.public_bytes(serialization.Encoding.DER)], "www.site.test") == "tls_self_signed"
    )
