"""One set of certificates for all tests of a session."""

from pathlib import Path

from sheafed.transport.zenoh.certificates import make_certificates

UNKNOWN = "unknown"
"""Has a certificate of the authority and is no neighbour of any agent."""
NAMES = ("a", "b", "c", "d", "ada", "bob", "relay", UNKNOWN)


def write_certificates(directory: Path) -> Path:
    make_certificates(directory, NAMES)
    return directory
