"""Certificates that are replaced, expire, are revoked or stolen while agents run: real files, links
and clocks."""

import logging
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sheafed.errors import InputError, NetworkError
from sheafed.transport.zenoh import Credentials, Relay, ZenohTransport, credentials_in, renewal
from sheafed.transport.zenoh.certificates import (
    make_certificates,
    renew_certificates,
    replace_authority,
    revoke_names,
)
from sheafed.transport.zenoh.credentials import AUTHORITY, REVOKED, certificate_and_key
from sheafed.transport.zenoh.renewal import CredentialsWatch
from tests.helpers.intruders import intruder
from tests.helpers.messages import message
from tests.helpers.zenoh_peers import await_that, connected, delivers, free_endpoint

Peers = dict[str, ZenohTransport]
SECONDS = 1 / 86400
"""In days."""


@pytest.fixture(autouse=True)
def _look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "POLL_SECONDS", 0.0)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    make_certificates(tmp_path / "files", "abc")
    return tmp_path / "files"


@pytest.fixture
def endpoints() -> dict[str, str]:
    return {name: free_endpoint() for name in "abc"}


@pytest.fixture
def peers(files: Path, endpoints: dict[str, str]) -> Iterator[Peers]:
    opened = connected(files, "abc", endpoints=endpoints, lease=2.0)
    yield opened
    for peer in opened.values():
        peer.close()


def renew(*peers: ZenohTransport) -> None:
    for peer in peers:
        assert peer.renewal_due()
        peer.renew()


def linked(peers: Peers, *pairs: str) -> bool:
    """Whether these agents, and no others, have opened links to each other."""
    return all(
        peer._presence._linked() == {j for pair in pairs if name in pair for j in pair if j != name}
        for name, peer in peers.items()
    )


def stolen(files: Path, name: str, place: Path) -> Credentials:
    """Copy what a thief needs: the key, its certificate, and the authority to trust."""
    place.mkdir()
    for path in (*certificate_and_key(files, name), files / f"{AUTHORITY}.pem"):
        shutil.copy(path, place)
    return credentials_in(place, name)


def test_a_renewed_certificate_is_taken_up_without_a_restart(
    peers: Peers, files: Path, caplog: pytest.LogCaptureFixture
) -> None:
    b, old = peers["b"], peers["b"].certificate_state
    assert not b.renewal_due()
    caplog.set_level(logging.INFO)
    before = b.appearances.copy()
    renew_certificates(files, "b", days=30)
    renew(b)
    assert b.present == {"a", "c"}  # while links are opened, neighbours count as present
    await_that(lambda: linked(peers, "ab", "bc", "ac"))
    assert b.appearances == before + before
    assert b.certificate_state.startswith("valid until")
    assert b.certificate_state != old
    assert "b opened its links anew; certificate valid until" in caplog.text
    assert all(delivers(peers, *pair, 1) for pair in ("ab", "ba", "bc", "cb"))
    assert not b.renewal_due()


def test_an_expired_certificate_ends_its_links_until_it_is_renewed(
    files: Path, endpoints: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    renew_certificates(files, "b", days=3 * SECONDS)
    peers = connected(files, "ab", endpoints=endpoints, lease=2.0)
    try:
        await_that(lambda: linked(peers, ""))  # Zenoh ends links at the second of expiry
        assert peers["b"].certificate_state.startswith("expired 20")
        for name, shown in (("a", "b"), ("b", "a")):
            with intruder(endpoints[name], credentials_in(files, shown)) as session:
                assert not session.info.links()
        assert not peers["b"].renewal_due()
        assert "the certificate of b: expired 20" in caplog.text
        assert "no restart is needed" in caplog.text
        renew_certificates(files, "b")
        renew(peers["b"])
        await_that(lambda: linked(peers, "ab"))
        assert all(delivers(peers, *pair, 1) for pair in ("ab", "ba"))
    finally:
        for peer in peers.values():
            peer.close()


def test_an_agent_that_left_is_refused(peers: Peers, files: Path) -> None:
    a, b, c = (peers[name] for name in "abc")
    revoke_names(files, "c")
    renew(a, b)
    await_that(lambda: linked(peers, "ab"))
    await_that(lambda: c.name in a.unknown_peers and c.name in b.unknown_peers)
    arrivals = a.arrivals["c"], b.arrivals["c"], c.arrivals.total()
    c.send([message(1, "c", "a"), message(1, "c", "b")])
    b.send([message(1, "b", "c")])
    c.flush()
    assert all(delivers(peers, *pair, 2) for pair in ("ab", "ba"))
    assert (a.arrivals["c"], b.arrivals["c"], c.arrivals.total()) == arrivals
    assert b.revoked == a.revoked == {"c"}
    (files / REVOKED).write_text("# nobody\n")
    renew(a, b, c)  # c watches the list too
    await_that(lambda: linked(peers, "ab", "bc", "ac"))


def test_a_stolen_key_is_worthless_under_a_new_authority(
    peers: Peers, files: Path, endpoints: dict[str, str], tmp_path: Path
) -> None:
    thief = stolen(files, "b", tmp_path / "thief")
    with intruder(endpoints["a"], thief) as session:
        await_that(lambda: bool(session.info.links()))  # nobody can tell it from b yet
    replace_authority(files, "abc")
    renew(*peers.values())
    await_that(lambda: linked(peers, "ab", "bc", "ac"))
    control = stolen(files, "b", tmp_path / "control")
    for place, shown in (("old trust", thief), ("new trust", control)):
        own = Credentials(thief.certificate, thief.key, shown.authority)
        with (
            intruder(endpoints["a"], own) as session,
            intruder(endpoints["a"], control) as accepted,
        ):
            await_that(lambda opened=accepted: bool(opened.info.links()))
            assert not session.info.links(), place
    assert all(delivers(peers, *pair, 1) for pair in ("ab", "ba", "bc", "cb"))


def test_a_relay_takes_up_new_files_too(files: Path, endpoints: dict[str, str]) -> None:
    make_certificates(files, ["relay"])
    relay = Relay("abc", credentials=credentials_in(files, "relay"), listen=[endpoints["a"]])
    relayed: dict[str, Any] = {"connect": [endpoints["a"]], "relays": ["relay"]}
    with ExitStack() as opened:
        opened.callback(relay.close)
        peers = {
            name: opened.enter_context(
                closing(
                    ZenohTransport(
                        name,
                        [other for other in "abc" if other != name],
                        # Without the list: only the relay refuses what is revoked.
                        credentials=replace(credentials_in(files, name), revoked=None),
                        **relayed,
                    )
                )
            )
            for name in "abc"
        }
        await_that(lambda: linked(peers, "ab", "bc", "ac"))
        renew_certificates(files, ["relay"])
        revoke_names(files, "c")
        relay.renew_if_due()
        await_that(lambda: linked(peers, "ab"))
        peers["c"].send([message(1, "c", "a")])
        assert all(delivers(peers, *pair, 1) for pair in ("ab", "ba"))
        assert peers["a"].arrivals["c"] == 0
        session = relay._session
        relay.renew_if_due()
        assert relay._session is session


def test_files_that_do_not_fit_are_not_taken_up(files: Path, tmp_path: Path) -> None:
    watch = CredentialsWatch(credentials_in(files, "a"), "a")
    certificate, key = certificate_and_key(files, "a")
    keep = {path: path.read_bytes() for path in files.iterdir()}
    other = tmp_path / "other"
    make_certificates(other, "ab")
    expired = tmp_path / "expired"
    shutil.copytree(files, expired)
    renew_certificates(expired, "a", days=-1 * SECONDS)

    paths = {"certificate": certificate, "key": key}
    paths |= {"authority": files / "authority.pem", "revoked": files / REVOKED}

    def after(**replaced: bytes) -> str:
        """Replace files, look, and put the old ones back."""
        for name, content in replaced.items():
            paths[name].write_bytes(content)
        assert not watch.replaced()
        found = watch.problem
        for path, content in keep.items():
            path.write_bytes(content)
        assert found is not None
        return found

    foreign = {"certificate": (other / "a.pem").read_bytes(), "key": (other / "a.key").read_bytes()}
    assert "is not the key of" in after(key=foreign["key"])
    assert "is not the key of" in after(certificate=foreign["certificate"])
    assert "was not issued by an authority" in after(**foreign)
    trusted = (other / "authority.pem").read_bytes()
    assert "was not issued by an authority" in after(authority=trusted)
    assert "common name 'b'" in after(certificate=(files / "b.pem").read_bytes())
    assert "not a certificate in PEM" in after(certificate=b"")
    assert "not a private key in PEM" in after(key=b"half of it")
    late = {"certificate": (expired / "a.pem").read_bytes()}
    late["key"] = (expired / "a.key").read_bytes()
    assert "renew it, or correct the clock" in after(**late)
    assert "the name of an agent must" in after(revoked=b"*\n")
    assert not watch.replaced()  # written again as they were
    assert "new files are not used" not in watch.describe()
    (files / "a.key").unlink()
    assert not watch.replaced()
    assert "new files are not used" in watch.describe()
    key.write_bytes(foreign["key"])
    certificate.write_bytes(foreign["certificate"])
    (files / "authority.pem").write_bytes(keep[files / "authority.pem"] + trusted)
    assert watch.replaced()  # two authorities are trusted while one takes over from the other
    watch.taken_up()
    assert not watch.replaced()


def test_a_port_that_is_taken_meanwhile_is_tried_again(
    files: Path, endpoints: dict[str, str]
) -> None:
    peers = connected(files, "ab", endpoints=endpoints, guard=False)
    b = peers["b"]
    try:
        renew_certificates(files, "b")
        close, taken = b._session.close, socket.socket()

        def close_and_lose_the_port() -> None:
            close()
            taken.bind(("127.0.0.1", int(endpoints["b"].rpartition(":")[2])))
            taken.listen()

        (files / REVOKED).write_text("*")  # between the look and the renewal
        with pytest.raises(InputError, match="the name of an agent"):
            b.renew()
        assert linked(peers, "ab")
        (files / REVOKED).write_text("")
        b._session = type("Closing", (), {"close": staticmethod(close_and_lose_the_port)})()
        with taken, pytest.raises(NetworkError, match="cannot join the network"):
            b.renew()
        b.send([message(1, "b", "a")])  # it is lost, and nothing fails
        renew(b)
        await_that(lambda: linked(peers, "ab"))
        assert delivers(peers, "b", "a", 2)
    finally:
        for peer in peers.values():
            peer.close()


def test_only_what_exists_is_renewed(files: Path) -> None:
    for change in (renew_certificates, replace_authority):
        with pytest.raises(InputError, match=r"there is no .*d\.pem to replace"):
            change(files, ["a", "d"])
    with pytest.raises(InputError, match="cannot read"):
        Credentials(*certificate_and_key(files, "a"), files / "authority.pem", files / "none")
