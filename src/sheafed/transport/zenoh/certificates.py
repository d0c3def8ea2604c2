"""A test authority and certificates for agents, to try mutual TLS without an authority of your own.

The common name of an agent's certificate is its name: neighbours identify it by that.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from sheafed.atomic_io import write_atomically
from sheafed.errors import InputError, MissingDependencyError
from sheafed.names import check_names
from sheafed.transport.zenoh.credentials import AUTHORITY, REVOKED, certificate_and_key

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509.oid import ExtendedKeyUsageOID
except ImportError as problem:
    raise MissingDependencyError(
        "certificates need cryptography; install it with: pip install 'sheafed[network]'"
    ) from problem

LOOPBACK = ("localhost", "127.0.0.1", "::1")
DAYS, AUTHORITY_DAYS = 365.0, 3650.0


def make_certificates(
    directory: Path, names: Collection[str], hosts: Sequence[str] = (), days: float = DAYS
) -> None:
    """Write `NAME.pem` and `NAME.key` (mode 0600) per agent, signed by the directory's authority.

    The authority is created if there is none, so that agents can be added later, and so is an
    empty list of revoked names. Certificates are valid for loopback and for `hosts`, the names or
    addresses under which agents are reached.
    """
    check_names(names)
    directory.mkdir(parents=True, exist_ok=True)
    authority = _authority(directory)
    if not (directory / REVOKED).exists():
        write_atomically(directory / REVOKED, b"")
    for name in names:
        certificate, key = certificate_and_key(directory, name)
        if certificate.exists() and key.exists():
            raise InputError(
                f"{certificate} exists already; pass --renew to replace it and its key by new ones"
            )
        _check_absent(certificate, key)
        _write_pair(certificate, key, *_issue(name, [*LOOPBACK, *hosts], days, *authority))


def renew_certificates(
    directory: Path, names: Collection[str], hosts: Sequence[str] = (), days: float = DAYS
) -> None:
    """Replace the certificates and keys of agents by new ones of the same authority.

    Without `hosts` they are valid for those of the old ones. Agents that run take them up.
    """
    _check_present(directory, names)
    _reissue(directory, names, hosts, days, _authority(directory))


def replace_authority(
    directory: Path, names: Collection[str], hosts: Sequence[str] = (), days: float = DAYS
) -> None:
    """Replace the authority, and the certificates and keys of agents by those of the new one.

    Every other certificate of the old authority is refused as soon as agents have the new files:
    the remedy for a leaked key, of an agent or of the authority.
    """
    _check_present(directory, names)
    old = _authority_files(directory)
    new = _new_authority()
    _write_pair(*old, *new)
    _reissue(directory, names, hosts, days, new)


def revoke_names(directory: Path, names: Collection[str]) -> None:
    """Add names to the list of revoked ones; agents that run and watch it refuse them."""
    check_names(names)
    for name in names:
        certificate, _ = certificate_and_key(directory, name)
        if not certificate.exists():  # a misspelt name would leave the agent that is meant
            raise InputError(
                f"there is no {certificate}; check the name, or add it to {directory / REVOKED} by "
                "hand if another authority has issued its certificate"
            )
    path = directory / REVOKED
    before = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    lines = [*before, *(name for name in names if name not in before)]
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode())


def _reissue(
    directory: Path,
    names: Collection[str],
    hosts: Sequence[str],
    days: float,
    authority: tuple[x509.Certificate, EllipticCurvePrivateKey],
) -> None:
    for name in names:
        certificate, key = certificate_and_key(directory, name)
        valid_for = [*LOOPBACK, *hosts] if hosts else _hosts_of(certificate)
        _write_pair(certificate, key, *_issue(name, valid_for, days, *authority))


def _authority_files(directory: Path) -> tuple[Path, Path]:
    return directory / f"{AUTHORITY}.pem", directory / f"{AUTHORITY}.key"


def _authority(directory: Path) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    path, key_path = _authority_files(directory)
    if path.exists():
        return x509.load_pem_x509_certificate(path.read_bytes()), _authority_key(path)
    _check_absent(key_path)
    certificate, key = _new_authority()
    _write_pair(path, key_path, certificate, key)
    return certificate, key


def _new_authority() -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sheafed test authority")])
    certificate = (
        _builder(name, name, key, AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return certificate, key


def _authority_key(certificate: Path) -> EllipticCurvePrivateKey:
    path = certificate.with_suffix(".key")
    if not path.exists():
        raise InputError(
            f"no file {path}, the key of {certificate}; restore it, or choose another directory "
            "for a new authority, which these agents do not trust"
        )
    loaded = serialization.load_pem_private_key(path.read_bytes(), password=None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path} is not a key made by sheafed; restore the right one")
    return loaded


def _check_present(directory: Path, names: Collection[str]) -> None:
    check_names(names)
    for path in (path for name in names for path in certificate_and_key(directory, name)):
        if not path.exists():
            raise InputError(f"there is no {path} to replace; leave out the option to create one")


def _check_absent(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise InputError(f"{path} exists already; delete it to create a new one")


def _issue(
    name: str,
    hosts: Sequence[str],
    days: float,
    authority: x509.Certificate,
    authority_key: EllipticCurvePrivateKey,
) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        _builder(subject, authority.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_host(host) for host in hosts]),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    return certificate, key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, days: float
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))  # clocks differ
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _hosts_of(path: Path) -> list[str]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]


def _write_pair(
    certificate_path: Path,
    key_path: Path,
    certificate: x509.Certificate,
    key: EllipticCurvePrivateKey,
) -> None:
    """Write or replace both files; an agent that runs takes them up when they fit together."""
    write_atomically(key_path, _private_bytes(key), private=True)
    write_atomically(certificate_path, _public_bytes(certificate))


def _public_bytes(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_bytes(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
