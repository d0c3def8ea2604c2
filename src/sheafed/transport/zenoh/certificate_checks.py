"""What is checked of an agent's own certificate before it is shown to neighbours."""

from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from sheafed.errors import InputError, MissingDependencyError
from sheafed.transport.zenoh.credentials import Credentials

try:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
except ImportError as problem:
    raise MissingDependencyError(
        "certificates need cryptography; install it with: pip install 'sheafed[network]'"
    ) from problem


def check_common_name(path: Path, name: str) -> None:
    """Raise unless a certificate is that of the agent `name`: neighbours would ignore the agent."""
    found = common_names(path)
    if found != [name]:
        raise InputError(
            f"the certificate {path} has the common name {', '.join(map(repr, found)) or None}, "
            f"expected {name!r}; pass the certificate of this agent, or its name"
        )


def common_names(path: Path) -> list[str]:
    subject = _certificates(path)[0].subject
    return [str(e.value) for e in subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)]


def check_replacement(new: Credentials, name: str) -> None:
    """Raise unless the files of an agent fit together and neighbours can accept them.

    While files are replaced one after the other they do not fit for a moment.
    """
    check_common_name(new.certificate, name)
    check_files(new)
    begins = _certificates(new.certificate)[0].not_valid_before_utc
    ends, now = expiry(new.certificate), datetime.now(UTC)
    if not begins <= now < ends:
        raise InputError(
            f"{new.certificate} is valid from {_shown(begins)} to {_shown(ends)}, and now it is "
            f"{_shown(now)}; renew it, or correct the clock"
        )
    new.revoked_names()


def check_files(of: Credentials) -> None:
    """Raise unless the key is that of the certificate, and the authority has issued it."""
    chain, trusted = _certificates(of.certificate), _certificates(of.authority)
    if _public_key_of(of.key) != _encoded(chain[0].public_key()):
        raise InputError(
            f"{of.key} is not the key of {of.certificate}; give the two that were made together"
        )
    if not any(_chains(chain[: n + 1], trusted) for n in range(len(chain))):
        raise InputError(
            f"{of.certificate} was not issued by an authority of {of.authority}: the agents that "
            "trust this authority would refuse it; give a certificate and an authority that "
            "belong together"
        )


def expiry(path: Path) -> datetime:
    """Return when the first certificate of a chain ends to be valid."""
    return min(certificate.not_valid_after_utc for certificate in _certificates(path))


def _chains(chain: list[x509.Certificate], trusted: list[x509.Certificate]) -> bool:
    """Whether each certificate was issued by the next, and the last by one that is trusted."""
    links = all(_issued(one, by) for one, by in pairwise(chain))
    return links and any(_issued(chain[-1], authority) for authority in trusted)


def _issued(certificate: x509.Certificate, by: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(by)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _certificates(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as problem:
        raise InputError(f"{path} is not a certificate in PEM format: {problem}") from problem


def _public_key_of(path: Path) -> bytes:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as problem:
        raise InputError(f"{path} is not a private key in PEM format: {problem}") from problem
    return _encoded(key.public_key())


def _encoded(key: object) -> bytes:
    encoded: bytes = key.public_bytes(  # type: ignore[attr-defined]
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    )
    return encoded


def _shown(moment: datetime) -> str:
    return moment.isoformat(sep=" ", timespec="seconds")
