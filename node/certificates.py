"""What is wrong with a server's certificate, judged after a handshake that let it pass, in `node.tls`'s words.

It opens no connection. The judgement is by the library `cryptography` (RFC 5280 as the web's authorities apply it),
which wants more of a certificate's form than OpenSSL does: what it tells may be a fault that a refused handshake would
not have been. The library takes 16 MB, so that only who judges imports this file.
"""

import contextlib
import datetime as dt
import ipaddress
import ssl
import warnings
from collections.abc import Sequence
from pathlib import Path

from cryptography import exceptions, x509
from cryptography.x509 import verification


class Judge:
    """Judges certificates by the authorities that a context trusts."""

    def __init__(self, trusted: ssl.SSLContext | None = None) -> None:
        self._store = verification.Store(_readable(_authorities(trusted)))

    def __call__(self, secured: ssl.SSLObject) -> str | None:
        """The fault of the certificate behind a connection; None where there is none."""
        return self.fault(_chain(secured), secured.server_hostname or "")

    def fault(self, chain: Sequence[bytes], host: str, *, now: dt.datetime | None = None) -> str | None:
        """The same for certificates as DER, the server's own first.

        Where there are several faults, the first of self-signed, wrong host, expired, untrusted.
        """
        try:
            leaf, *others = [x509.load_der_x509_certificate(der) for der in chain]
            named = any(_covers(name, host) for name in _names(leaf))
            if named and self._passes(leaf, others, host, now):
                return None
            if leaf.issuer == leaf.subject and _signed_itself(leaf):
                return "tls_self_signed"
        except ValueError:  # no certificate, or none that can be read
            return "tls_untrusted"
        if not named:
            return "tls_wrong_host"
        nearest = min(max(now or dt.datetime.now(dt.UTC), leaf.not_valid_before_utc), leaf.not_valid_after_utc)
        return "tls_expired" if self._passes(leaf, others, host, nearest) else "tls_untrusted"

    def _passes(
        self, leaf: x509.Certificate, others: list[x509.Certificate], host: str, now: dt.datetime | None
    ) -> bool:
        builder = verification.PolicyBuilder().store(self._store)
        try:
            subject = _subject(host)
        except ValueError:
            # The library takes no name with `_`, which hosts do have. That the certificate is for it is known here by
            # then, so any other name under the same wildcard will do; one that spells the `_` out cannot be verified.
            subject = x509.DNSName(f"any.{host.partition('.')[2]}")
        try:
            builder.time(now or dt.datetime.now(dt.UTC)).build_server_verifier(subject).verify(leaf, others)
        except (verification.VerificationError, ValueError):
            return False
        return True


def _readable(certificates: list[bytes]) -> list[x509.Certificate]:
    """Old authorities break rules that newer versions of the library insist on: one is not to cost us the others."""
    found = []
    with warnings.catch_warnings(action="ignore"):
        for der in certificates:
            with contextlib.suppress(ValueError):
                found.append(x509.load_der_x509_certificate(der))
    return found


def _authorities(trusted: ssl.SSLContext | None) -> list[bytes]:
    found = (trusted or ssl.create_default_context()).get_ca_certs(binary_form=True)
    if found or trusted is not None:
        return found
    # A folder of authorities is read by OpenSSL one by one when it needs them, and listed nowhere.
    folder = ssl.get_default_verify_paths().capath
    texts = [path.read_text(errors="ignore") for path in Path(folder).glob("*.pem")] if folder else []
    return [ssl.PEM_cert_to_DER_cert(text) for text in texts if text.strip().startswith("-----BEGIN CERTIFICATE")]


def _chain(secured: ssl.SSLObject) -> list[bytes]:
    """All that the server sent. Python has it in public since 3.13; without it the server's own must do."""
    public = getattr(secured, "get_unverified_chain", None)
    if public is not None:
        return list(public())
    inner = getattr(getattr(secured, "_sslobj", None), "get_unverified_chain", None)
    if inner is not None:
        return [ssl.PEM_cert_to_DER_cert(one.public_bytes()) for one in inner() or ()]
    own = secured.getpeercert(binary_form=True)
    return [own] if own else []


def _signed_itself(leaf: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(leaf)
    except (exceptions.InvalidSignature, TypeError, ValueError):
        return False
    return True


def _subject(host: str) -> x509.DNSName | x509.IPAddress:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _names(leaf: x509.Certificate) -> list[str]:
    try:
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [
        *names.get_values_for_type(x509.DNSName),
        *(str(ip) for ip in names.get_values_for_type(x509.IPAddress)),
    ]


def _covers(name: str, host: str) -> bool:
    """Whether a certificate's name is this host.

    `*` stands for the first label alone (RFC 9525 section 6.3), and not for all that is below one suffix.
    """
    name, host = name.lower(), host.lower()
    rest = host.partition(".")[2]
    return name == host or (name.startswith("*.") and "." in rest and name[2:] == rest)
