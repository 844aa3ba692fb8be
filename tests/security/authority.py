"""Certificates for tests: an authority, and those that it has signed."""

from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates for 127.0.0.1, and keeps all files in one folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        signed = _signed(self._name, self._name, self._key, self._key, is_authority=True)
        self.path = folder / f"{name}.pem"
        self.path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def issue(self, name: str, file: str | None = None) -> Path:
        """A file with a certificate of this common name, and its key; replaces one that is there."""
        key = ec.generate_private_key(ec.SECP256R1())
        signed = _signed(_named(name), self._name, key, self._key, is_authority=False)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self._folder / (file or f"{name}-of-{self.path.stem}.pem")
        made = path.with_suffix(".new")
        made.write_bytes(signed.public_bytes(serialization.Encoding.PEM) + secret)
        made.replace(path)
        return path


def name_in(pem: str | bytes) -> str:
    """The common name of a certificate."""
    data = pem if isinstance(pem, bytes) else pem.encode()
    [found] = x509.load_pem_x509_certificate(data).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found.value)


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _signed(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> x509.Certificate:
    usage = {
        "digital_signature": True,
        "key_cert_sign": is_authority,
        "crl_sign": is_authority,
        **dict.fromkeys(
            (
                *("content_commitment", "key_encipherment", "data_encipherment"),
                *("key_agreement", "encipher_only", "decipher_only"),
            ),
            False,
        ),
    }
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2099, 1, 1, tzinfo=UTC))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        # Python 3.13 asks for it.
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(signer, hashes.SHA256())
    )
