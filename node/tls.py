"""The contexts of TLS connections, and why a handshake was refused, in one word.

The words: `tls_self_signed`, `tls_untrusted` (no way to an authority we know), `tls_wrong_host`, `tls_expired` (or not
valid yet), and `tls` for what is no matter of the certificate. `node.certificates` tells the same of a handshake that
let every certificate pass.
"""

import ssl

# OpenSSL's words for it (x509_vfy.h), as Python hands them on.
_REASONS = {
    9: "tls_expired",  # not valid yet
    10: "tls_expired",
    18: "tls_self_signed",
    62: "tls_wrong_host",
    64: "tls_wrong_host",  # an address that the certificate does not name
}


def reason_of(error: BaseException) -> str:
    """The word for a handshake that failed; `error` may wrap the TLS library's own."""
    cause = getattr(error, "certificate_error", error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _REASONS.get(cause.verify_code, "tls_untrusted")
    return "tls"


def unverified(trusted: ssl.SSLContext | None) -> ssl.SSLContext:
    """A context that lets every certificate pass, otherwise as the default one."""
    context = ssl.create_default_context()
    if trusted is not None:
        context.minimum_version = trusted.minimum_version
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def trusting() -> ssl.SSLContext:
    """The machine's own authorities; spoken is HTTP/1.1 (RFC 7301)."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
