"""Certificates, checked by Python's own TLS and not by the library that made them."""

import socket
import ssl
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest

from sheafed.errors import InputError
from sheafed.transport.zenoh import Credentials, ZenohTransport, credentials_in
from sheafed.transport.zenoh.certificate_checks import check_common_name
from sheafed.transport.zenoh.certificates import make_certificates
from sheafed.transport.zenoh.link_problems import link_problems
from tests.helpers.zenoh_peers import free_endpoint


def context(purpose: int, own: Credentials) -> ssl.SSLContext:
    made = ssl.SSLContext(purpose)
    made.load_verify_locations(own.authority)
    made.load_cert_chain(own.certificate, own.key)
    made.verify_mode = ssl.CERT_REQUIRED
    return made


def handshake(server: Credentials, client: Credentials, host: str) -> str:
    """Return the name that the server reads in the client's certificate; in memory."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = context(ssl.PROTOCOL_TLS_SERVER, server).wrap_bio(up, down, server_side=True)
    far = context(ssl.PROTOCOL_TLS_CLIENT, client).wrap_bio(down, up, server_hostname=host)
    waiting = [far, near]
    while waiting:
        end = waiting.pop(0)
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(end)
    certificate = near.getpeercert()
    assert certificate is not None
    return dict(entry for rdn in certificate["subject"] for entry in rdn)["commonName"]


def test_agents_are_authenticated_by_name(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["ada", "Bo b"], hosts=["edge.example", "10.1.2.3"])
    ada, bob = credentials_in(tmp_path, "ada"), credentials_in(tmp_path, "Bo b")
    for host in ("localhost", "127.0.0.1", "::1", "edge.example", "10.1.2.3"):
        assert handshake(ada, bob, host) == "Bo b"
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(ada, bob, "elsewhere.example")


def test_another_authority_is_not_trusted(certificates: Path, foreign_certificates: Path) -> None:
    a, b = credentials_in(certificates, "a"), credentials_in(foreign_certificates, "b")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(a, b, "localhost")


def test_agents_can_be_added_and_are_never_replaced(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["ada"])
    make_certificates(tmp_path, ["bo"])
    assert handshake(*(credentials_in(tmp_path, n) for n in ("ada", "bo")), "localhost") == "bo"
    with pytest.raises(InputError, match="exists already"):
        make_certificates(tmp_path, ["bo"])


@pytest.mark.parametrize(
    ("lost", "left"),
    [
        ("authority.key", "authority.key, the key of"),
        ("authority.pem", "authority.key exists"),
    ],
)
def test_an_authority_without_its_key_or_certificate_is_refused(
    tmp_path: Path, lost: str, left: str
) -> None:
    make_certificates(tmp_path, ["ada"])
    (tmp_path / lost).unlink()
    with pytest.raises(InputError, match=left):
        make_certificates(tmp_path, ["bo"])
    assert not list(tmp_path.glob("bo*"))


def test_a_key_whose_certificate_is_missing_is_not_replaced(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["ada"])
    (tmp_path / "ada.pem").unlink()
    with pytest.raises(InputError, match=r"ada\.key exists already; delete it"):
        make_certificates(tmp_path, ["ada"])


def test_the_common_name_must_be_the_name_of_the_agent(certificates: Path) -> None:
    own = credentials_in(certificates, "ada")
    with pytest.raises(InputError, match=r"ada\.pem has the common name 'ada', expected 'bob'"):
        ZenohTransport("bob", ["c"], credentials=own).close()
    check_common_name(own.certificate, "ada")
    with pytest.raises(InputError, match=r"ada\.key is not a certificate in PEM format"):
        check_common_name(own.key, "ada")


def test_keys_are_private(tmp_path: Path) -> None:
    make_certificates(tmp_path, ["ada"])
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in tmp_path.iterdir()}
    assert modes["ada.key"] == modes["authority.key"] == 0o600
    assert len(modes) == 5


def test_an_invalid_name_gets_no_certificate(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the name of an agent must not contain"):
        make_certificates(tmp_path, ["ada", "*"])
    assert not list(tmp_path.iterdir())


@contextmanager
def tls_server(own: Credentials) -> Iterator[str]:
    """Serve handshakes, as Zenoh does: the certificate of the client is required."""
    made = context(ssl.PROTOCOL_TLS_SERVER, own)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with suppress(OSError), made.wrap_socket(client, server_side=True) as link:
                        link.recv(1)

        Thread(target=serve, daemon=True).start()
        yield f"tls/127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def test_an_agent_that_waits_can_say_why_its_links_fail(
    certificates: Path, foreign_certificates: Path, tmp_path: Path
) -> None:
    a, b = (credentials_in(certificates, name) for name in ("a", "b"))
    stranger = credentials_in(foreign_certificates, "a")
    misled = Credentials(stranger.certificate, stranger.key, a.authority)
    closed = free_endpoint()
    with tls_server(b) as endpoint:
        assert link_problems([endpoint], a) == []
        (said,) = link_problems([endpoint], stranger)
        assert said.startswith(f"{endpoint}: its certificate is refused here")
        refused, absent = link_problems([endpoint, closed], misled)
    assert refused.startswith(f"{endpoint}: TLS fails, it may refuse this certificate")
    assert absent.startswith(f"{closed}: ")
    (malformed,) = link_problems(["tls/host..name:7447"], a)
    assert malformed.startswith("tls/host..name:7447: ")
