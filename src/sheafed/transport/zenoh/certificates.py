"""A test authority and certificates for agents, to try mutual TLS without an authority of your own.

The common name of an agent's certificate is its name: neighbours identify it by that.
"""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from sheafed.atomic_io import write_atomically, write_privately
from sheafed.errors import InputError, MissingDependencyError
from sheafed.names import check_names
from sheafed.transport.zenoh.credentials import AUTHORITY, certificate_and_key

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


def make_certificates(
    directory: Path, names: Collection[str], hosts: Sequence[str] = (), days: int = 365
) -> None:
    """Write `NAME.pem` and `NAME.key` (mode 0600) per agent, signed by the directory's authority.

    The authority is created if there is none, so that agents can be added later. Certificates are
    valid for loopback and for `hosts`, the names or addresses under which agents are reached.
    """
    check_names(names)
    directory.mkdir(parents=True, exist_ok=True)
    ca_certificate, ca_key = _authority(directory, days)
    for name in names:
        files = certificate_and_key(directory, name)
        _check_absent(*files)
        certificate, key = _issue(name, hosts, days, ca_certificate, ca_key)
        write_privately(files[1], _private_bytes(key))
        write_atomically(files[0], _public_bytes(certificate))


def check_common_name(path: Path, name: str) -> None:
    """Raise unless a certificate is that of the agent `name`: neighbours would ignore the agent."""
    try:
        subject = x509.load_pem_x509_certificate(path.read_bytes()).subject
    except ValueError as problem:
        raise InputError(f"{path} is not a certificate in PEM format: {problem}") from problem
    found = [entry.value for entry in subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]
    if found != [name]:
        raise InputError(
            f"the certificate {path} has the common name {', '.join(map(repr, found)) or None}, "
            f"expected {name!r}; pass the certificate of this agent, or its name"
        )


def _authority(directory: Path, days: int) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    path = directory / f"{AUTHORITY}.pem"
    if path.exists():
        return x509.load_pem_x509_certificate(path.read_bytes()), _authority_key(path)
    _check_absent(path.with_suffix(".key"))
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "sheafed test authority")])
    certificate = (
        _builder(name, name, key, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    write_privately(path.with_suffix(".key"), _private_bytes(key))
    write_atomically(path, _public_bytes(certificate))
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


def _check_absent(*paths: Path) -> None:
    for path in paths:
        if path.exists():
            raise InputError(f"{path} exists already; delete it to create a new one")


def _issue(
    name: str,
    hosts: Sequence[str],
    days: int,
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
            x509.SubjectAlternativeName([_host(host) for host in (*LOOPBACK, *hosts)]),
            critical=False,
        )
        .sign(authority_key, hashes.SHA256())
    )
    return certificate, key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, days: int
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


def _public_bytes(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_bytes(key: EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
