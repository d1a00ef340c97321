"""Keys, certificates, accounts and kubeconfig files of one development cluster.

Enters: accounts wanted by the caller. Leaves: files in the cluster's own folder. May not live here: processes.
"""

import base64
import datetime
import ipaddress
import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID_DAYS = 30


@dataclass(frozen=True, slots=True)
class Account:
    """A user known by a fixed token, for example of a component under test."""

    user: str
    groups: tuple[str, ...] = ()
    token: str = field(default_factory=lambda: secrets.token_hex(16))


@dataclass(frozen=True, slots=True)
class Credentials:
    """Paths of everything that the API server and its clients need to trust each other."""

    ca: Path
    server_certificate: Path
    server_key: Path
    service_account_key: Path
    token_file: Path


def create_credentials(folder: Path, accounts: Sequence[Account], addresses: Sequence[str]) -> Credentials:
    """Write keys, certificates and the token file into the folder; the addresses are the API server's."""
    folder.mkdir(parents=True, exist_ok=True)
    result = Credentials(
        ca=folder / "ca.crt",
        server_certificate=folder / "server.crt",
        server_key=folder / "server.key",
        service_account_key=folder / "service-account.key",
        token_file=folder / "tokens.csv",
    )
    _write_certificates(result, addresses)
    _write_private(result.service_account_key, _pem(ec.generate_private_key(ec.SECP256R1())))
    lines = [_token_line(account, number) for number, account in enumerate(accounts)]
    _write_private(result.token_file, "".join(lines).encode())
    return result


def write_kubeconfig(path: Path, *, server: str, ca: bytes, token: str) -> Path:
    """Write a kubeconfig for one token. JSON is valid YAML, and every client reads it."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "devcluster",
                "cluster": {"server": server, "certificate-authority-data": base64.b64encode(ca).decode()},
            }
        ],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": "devcluster", "context": {"cluster": "devcluster", "user": "user"}}],
        "current-context": "devcluster",
    }
    _write_private(path, json.dumps(content, indent=1).encode())
    return path


def _token_line(account: Account, number: int) -> str:
    groups = f',"{",".join(account.groups)}"' if account.groups else ""
    return f"{account.token},{account.user},devcluster-{number}{groups}\n"


def _write_certificates(paths: Credentials, addresses: Sequence[str]) -> None:
    ca_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "devcluster-ca")])
    ca_certificate = (
        _certificate(ca_name, ca_name, ca_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    names = [
        *(x509.DNSName(name) for name in ("localhost", "kubernetes", "kubernetes.default.svc")),
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in addresses),
    ]
    server_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    server_certificate = (
        _certificate(server_name, ca_name, server_key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(authority, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    paths.ca.write_bytes(ca_certificate.public_bytes(serialization.Encoding.PEM))
    paths.server_certificate.write_bytes(server_certificate.public_bytes(serialization.Encoding.PEM))
    _write_private(paths.server_key, _pem(server_key))


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=signs_certificates, crl_sign=signs_certificates,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
