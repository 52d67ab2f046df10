"""Certificates and keys of a deployment: a certificate authority, the server's certificate, and a key per data holder.

Private keys are files of mode 0600 and are never shown, logged or put on a command line.
"""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import os
import socket
import ssl
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sfumato.errors import FileError, OptionError, ProtocolError
from sfumato.federation.flower.guard import KNOWN

__all__ = [
    "check_certificate",
    "check_known",
    "check_server",
    "digest_of",
    "make_authority",
    "make_identity",
    "make_node_key",
    "public_key_file",
    "read_identity",
    "split_address",
]

_LOCAL = ("localhost", "127.0.0.1")
_IDENTITY = "identity.key"
_MOST_AHEAD, _MOST_BEHIND = 4.0, 290.0  # seconds, for the date of a signature; Flower accepts slightly more


def split_address(address: str) -> tuple[str, int]:
    """Return host and port.

    Examples
    --------
    >>> split_address("fed.example.org:9092")
    ('fed.example.org', 9092)
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise OptionError(f"the address must be HOST:PORT, got '{address}'", hint="for example fed.example.org:9092")
    return host, int(port)


def make_authority(folder: Path, host: str = "localhost", *, days: float = 365, start: datetime | None = None) -> Path:
    """Make a certificate authority and a server certificate that it signed; return the file of the authority.

    ``ca.pem`` goes to every data holder; ``server.key`` never leaves the machine. The authority's own key is thrown
    away, so that nobody can sign another certificate with it.

    Parameters
    ----------
    folder : where the files go: ca.pem, server.pem, server.key
    host : the name or address by which data holders reach the server; localhost is always added
    days : for how long the certificates hold
    start : when they begin to hold; five minutes ago by default, for clocks that are a little slow

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     check_certificate(make_authority(Path(folder), "fed.example.org"))
    ...     oct((Path(folder) / "server.key").stat().st_mode & 0o777)
    '0o600'
    """
    begin = start or datetime.now(UTC) - timedelta(minutes=5)
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())

    def certificate(subject: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Sfumato federation")])
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
        return (
            x509.CertificateBuilder(issuer, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + timedelta(days=days))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(identifier, critical=False)
        )

    usage = dict.fromkeys(_USES, False)
    root = (
        certificate("Sfumato federation", authority)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**{**usage, "key_cert_sign": True, "crl_sign": True}), critical=True)
        .sign(authority, hashes.SHA384())
    )
    names = [_general(one) for one in dict.fromkeys((host, *_LOCAL))]
    leaf = (
        certificate(host[:64], server)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**{**usage, "digital_signature": True}), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority, hashes.SHA384())
    )
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "server.key", _private(server))
    _write(folder / "server.pem", leaf.public_bytes(Encoding.PEM), 0o644)
    _write(folder / "ca.pem", root.public_bytes(Encoding.PEM), 0o644)
    return folder / "ca.pem"


_USES = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)


def make_node_key(folder: Path) -> Path:
    """Make a data holder's key unless it has one; return the file of the public half, for the coordinator.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     public_key_file(make_node_key(Path(folder))).name
    'node.pub'
    """
    private, public = folder / "node.key", folder / "node.pub"
    if not private.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _write(private, _private(ec.generate_private_key(ec.SECP384R1()), PrivateFormat.OpenSSH))
    key = load_ssh_private_key(private.read_bytes(), None)
    _write(public, key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n", 0o644)
    return public


def make_identity(folder: Path) -> bytes:
    """Make the key by which a data holder signs in sums by masks, unless it has one; return its public half.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     public = make_identity(Path(folder))
    ...     read_identity(Path(folder)).public_key().public_bytes_raw() == public
    True
    """
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / _IDENTITY).exists():
        _write(folder / _IDENTITY, Ed25519PrivateKey.generate().private_bytes_raw())
    public = read_identity(folder).public_key().public_bytes_raw()
    _write(folder / "identity.pub", public.hex().encode() + b"\n", 0o644)
    return public


def read_identity(folder: Path) -> Ed25519PrivateKey:
    """Read the key by which a data holder signs in sums by masks."""
    try:
        return Ed25519PrivateKey.from_private_bytes((folder / _IDENTITY).read_bytes())
    except (OSError, ValueError) as error:
        raise FileError(
            f"'{folder / _IDENTITY}' is missing or damaged", hint="make it with the command 'key'"
        ) from error


def public_key_file(path: Path) -> Path:
    """Check that a file holds the public half of a data holder's key."""
    try:
        key = load_ssh_public_key(path.read_bytes())
    except FileNotFoundError as error:
        raise FileError(f"'{path}' is missing", hint="ask the data holder for its node.pub") from error
    except (ValueError, OSError) as error:
        raise FileError(f"'{path}' is not the public key of a data holder") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise FileError(f"'{path}' is not a P-384 key", hint="data holders make theirs with the command 'key'")
    return path


def digest_of(public: Path) -> str:
    """Return the digest of the public half of a data holder's key."""
    key = load_ssh_public_key(public.read_bytes())
    return hashlib.sha256(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)).hexdigest()


def check_known(address: str, authority: Path, public: Path, name: str, *, timeout: float = 10.0) -> None:
    """Ask the server whether a key is registered and compare the clocks; refuse in one sentence what will not work."""
    host, port = split_address(address)
    context = ssl.create_default_context(cafile=str(authority))
    connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=context)
    try:
        connection.request("GET", KNOWN + digest_of(public))
        reply = connection.getresponse()
        reply.read()
    except http.client.HTTPException as error:
        raise ProtocolError(f"the server at {address} does not answer as a coordinator of Sfumato does") from error
    finally:
        connection.close()
    if reply.status == 404:
        raise ProtocolError(
            f"the server does not accept the key of party '{name}'", hint="give the coordinator this folder's node.pub"
        )
    if (said := reply.getheader("date")) is not None:
        off = (datetime.now(UTC) - parsedate_to_datetime(said)).total_seconds()
        if off > _MOST_AHEAD or off < -_MOST_BEHIND:
            ahead = "ahead of" if off > 0 else "behind"
            raise ProtocolError(
                f"the clock of this machine is {abs(off):,.0f} seconds {ahead} that of the server",
                hint="set it: signed requests from the future, or older than five minutes, are refused",
            )


def check_certificate(path: Path, *, now: datetime | None = None) -> None:
    """Refuse a certificate that has expired, or that does not hold yet."""
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError as error:
        raise FileError(f"the certificate '{path}' is missing", hint="make one with the command 'authority'") from error
    except ValueError as error:
        raise FileError(f"'{path}' is not a certificate") from error
    time = now or datetime.now(UTC)
    if time > found.not_valid_after_utc:
        raise FileError(
            f"the certificate '{path}' expired on {found.not_valid_after_utc:%d %B %Y}",
            hint="make a new one with the command 'authority', and give ca.pem to the data holders",
        )
    if time < found.not_valid_before_utc:
        raise FileError(
            f"the certificate '{path}' does not hold before {found.not_valid_before_utc:%d %B %Y %H:%M} UTC",
            hint=f"is this machine's clock right? It says {time:%d %B %Y %H:%M} UTC",
        )


def check_server(address: str, authority: Path, *, timeout: float = 10.0) -> None:
    """Connect to the server as a data holder would, and refuse it in one sentence if its certificate does not hold."""
    check_certificate(authority)
    host, port = split_address(address)
    context = ssl.create_default_context(cafile=str(authority))
    try:
        with (
            socket.create_connection((host, port), timeout) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return
    except ssl.SSLCertVerificationError as error:
        raise ProtocolError(_verdict(address, error)) from error
    except ssl.SSLError as error:
        raise ProtocolError(f"the server at {address} does not speak TLS") from error


def _verdict(address: str, error: ssl.SSLCertVerificationError) -> str:
    reason = _REASONS.get(error.verify_code, "was not signed by this authority: ask the coordinator for its ca.pem")
    return f"the certificate of the server at {address} {reason}"


_REASONS = {  # by OpenSSL's codes
    9: "does not hold yet: is this machine's clock right?",
    10: "has expired: ask the coordinator for a new one",
    62: "is for another host name",
    64: "is for another address",
}


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    return key.private_bytes(Encoding.PEM, form, NoEncryption())


def _write(path: Path, data: bytes, mode: int = 0o600) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
    temporary.replace(path)
