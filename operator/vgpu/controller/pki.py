"""Keys and certificates for mutual TLS between kube-scheduler and the extender.

Pure but for the random numbers of the keys. Enters: names, a time. Leaves: PEM bytes and an SSL context. May not
live here: requests.
"""

import ipaddress
import ssl
import tempfile
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from vgpu import names
from vgpu.errors import ConfigurationError

VALID_FOR = timedelta(days=3650)
BACKDATED = timedelta(hours=1)  # machines whose clocks lag must not find the certificate "not yet valid"

_Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate, its private key and the CA that signed it, each PEM."""

    certificate: bytes
    key: bytes = field(repr=False)
    ca: bytes


@dataclass(frozen=True, slots=True)
class Authority:
    """A CA that can sign. The key stays with the extender's Secret, which only the operator reads."""

    certificate: bytes
    key: bytes = field(repr=False)


def create_authority(now: datetime) -> Authority:
    """A new CA for this installation."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name("vgpu-operator CA")
    certificate = (
        _builder(subject, subject, key, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(_pem(certificate), _key_pem(key))


def issue_server(authority: Authority, namespace: str, now: datetime) -> Pair:
    """The extender's certificate: its Service's names, and localhost for a scheduler on the same machine."""
    service = names.EXTENDER_SERVICE
    full = f"{service}.{namespace}.svc"
    dns = [full, f"{full}.cluster.local", f"{service}.{namespace}", service]
    alternatives = x509.SubjectAlternativeName(
        [x509.DNSName(name) for name in [*dns, "localhost"]] + [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    )
    return _issue(authority, full, ExtendedKeyUsageOID.SERVER_AUTH, alternatives, now)


def issue_client(authority: Authority, now: datetime) -> Pair:
    """kube-scheduler's certificate."""
    alternatives = x509.SubjectAlternativeName([x509.DNSName(names.SCHEDULER_NAME)])
    return _issue(authority, names.SCHEDULER_NAME, ExtendedKeyUsageOID.CLIENT_AUTH, alternatives, now)


def check_same_authority(server: Pair, client: Pair) -> None:
    """Raises ConfigurationError when the extender would not accept the scheduler, or the reverse."""
    for pair, ca, who in ((client, server.ca, "client"), (server, client.ca, "server")):
        try:
            certificate = x509.load_pem_x509_certificate(pair.certificate)
            authorities = x509.load_pem_x509_certificates(ca)
        except ValueError as error:
            raise ConfigurationError(f"the {who} certificate or its CA is not readable PEM: {error}") from error
        if not any(_signed_by(certificate, authority) for authority in authorities):
            raise ConfigurationError(
                f"the {who} certificate is not of the other side's CA: Secrets {names.EXTENDER_TLS_SECRET} and "
                f"{names.SCHEDULER_CLIENT_SECRET} must come from one CA; delete both to have them made anew"
            )


def server_tls(pair: Pair) -> ssl.SSLContext:
    """TLS of the extender: no client certificate of our CA, no connection. Raises ConfigurationError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    # kube-scheduler never resumes a session and opens two connections for three pods: tickets are a third of that.
    context.num_tickets = 0
    return _loaded(context, pair)


def client_tls(pair: Pair) -> ssl.SSLContext:
    """TLS of a caller of the extender (tests, the command line). Raises ConfigurationError."""
    return _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), pair)


def _loaded(context: ssl.SSLContext, pair: Pair) -> ssl.SSLContext:
    """The ssl module reads keys from files only."""
    with tempfile.TemporaryDirectory(prefix="vgpu-tls-") as folder:
        chain = Path(folder) / "chain.pem"
        chain.touch(mode=0o600)
        chain.write_bytes(pair.certificate + b"\n" + pair.key)
        try:
            context.load_cert_chain(chain)
            context.load_verify_locations(cadata=pair.ca.decode("ascii"))
        except (ssl.SSLError, ValueError) as error:
            raise ConfigurationError(f"the TLS certificate, key or CA cannot be used: {error}") from error
    return context


def _issue(
    authority: Authority,
    common_name: str,
    purpose: x509.ObjectIdentifier,
    alternatives: x509.SubjectAlternativeName,
    now: datetime,
) -> Pair:
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = serialization.load_pem_private_key(authority.key, None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise ConfigurationError("the CA's key is not an elliptic curve key")
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(_name(common_name), issuer.subject, key, now)
        .add_extension(alternatives, critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return Pair(_pem(certificate), _key_pem(key), authority.certificate)


def _builder(subject: x509.Name, issuer: x509.Name, key: _Key, now: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + VALID_FOR)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _signed_by(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: _Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
