"""This module creates the certificates of one pool: an authority that lives as long as the pool, and a certificate for
each side. The pool and its nodes present a certificate of this authority to each other, so no other process can join,
read or give orders, not even one of another user on the same machine. The authority's own key is discarded as soon as
both certificates exist.
"""

from __future__ import annotations

import datetime as dt
import os
import ssl
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_YEARS = 10
"""The longest life of a pool."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """The certificates and the key of one side, as PEM text."""

    authority: str
    certificate: str
    key: str


def make_credentials(*names: str) -> tuple[Credentials, ...]:
    """Create a new authority; return credentials for each of the names."""
    now = dt.datetime.now(dt.UTC)
    issuer = _name("windlass pool")
    own = ec.generate_private_key(ec.SECP256R1())
    root = (
        _certificate(issuer, issuer, own.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(own, hashes.SHA256())
    )
    made = []
    for name in names:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = (
            _certificate(_name(name), issuer, key.public_key(), now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(own, hashes.SHA256())
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        made.append(Credentials(_pem(root), _pem(certificate), private.decode("ascii")))
    return tuple(made)


def tls_context(credentials: Credentials, *, server: bool) -> ssl.SSLContext:
    """Return a context in which both sides present a certificate of the pool's authority. Host names are not checked:
    machines have many.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=credentials.authority)
    # The context reads a file only. This one is in memory, so that the key is never on disk.
    with open(os.memfd_create("windlass", os.MFD_CLOEXEC), "w", encoding="ascii") as file:  # noqa: PTH123
        file.write(credentials.certificate + credentials.key)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    return context


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))  # the clock of a node may be behind
        .not_valid_after(now + dt.timedelta(days=365 * _YEARS))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode("ascii")
