"""The network transport: the contract, and what its links, certificates and bounds guarantee."""

import random
import resource
import socket
import ssl
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import zenoh

from sheafed.errors import InputError, NetworkError
from sheafed.transport import Ledger, Message, Transport, encode
from sheafed.transport.zenoh import Credentials, ZenohTransport, credentials_in
from sheafed.transport.zenoh.access_control import ALIVE, key
from sheafed.transport.zenoh.transport import ANNOUNCEMENTS, MESSAGES
from tests.helpers.certificates import UNKNOWN
from tests.helpers.intruders import await_subscriber, intruder, publish
from tests.helpers.messages import message
from tests.helpers.tcp_proxy import TcpProxy
from tests.helpers.transport_contract import TransportContract
from tests.helpers.zenoh_peers import CombinedPeers, await_that, connected, delivers, free_endpoint

LIMIT = 1 << 20
Peers = dict[str, ZenohTransport]
Intrude = Callable[[str, Credentials], zenoh.Session]


class TestZenohTransport(TransportContract):
    capacity = 16

    @pytest.fixture(autouse=True)
    def _certificates(self, certificates: Path) -> None:
        self.certificates = certificates

    def make(self, names: Collection[str]) -> Transport:
        ledger = Ledger()
        return CombinedPeers(connected(self.certificates, names, ledger=ledger), ledger)

    def inject(self, transport: Transport, receiver: str, data: bytes) -> None:
        assert isinstance(transport, CombinedPeers)
        transport.inject(receiver, data)


@pytest.fixture
def endpoints() -> dict[str, str]:
    return {name: free_endpoint() for name in "abc"}


@pytest.fixture
def line(certificates: Path, endpoints: dict[str, str]) -> Iterator[Peers]:
    """The transports of a - b - c."""
    peers = connected(certificates, "abc", [("a", "b"), ("b", "c")], endpoints, limit=LIMIT)
    yield peers
    for peer in peers.values():
        peer.close()


@pytest.fixture
def intrude() -> Iterator[Intrude]:
    """Open attackers' sessions, which are closed after the test."""
    opened = []

    def intrude(endpoint: str, credentials: Credentials) -> zenoh.Session:
        opened.append(intruder(endpoint, credentials))
        return opened[-1]

    yield intrude
    for session in opened:
        session.close()


def accepts(endpoint: str, authority: Path, shown: Credentials | None) -> bool:
    """Whether a link accepts Python's TLS client with these credentials, or without any."""
    context = ssl.create_default_context(cafile=str(authority))
    context.check_hostname = False
    if shown is not None:
        context.load_cert_chain(shown.certificate, shown.key)
    host, port = endpoint.removeprefix("tls/").split(":")
    with socket.create_connection((host, int(port)), 20) as plain:
        try:
            with context.wrap_socket(plain) as secure:
                secure.settimeout(0.5)
                return secure.recv(1) != b""  # a refusal comes at once
        except TimeoutError:
            return True
        except (ssl.SSLError, ConnectionError):
            return False


# Certificates and names


def test_another_authority_and_no_certificate_get_no_link(
    line: Peers,
    endpoints: dict[str, str],
    intrude: Intrude,
    certificates: Path,
    foreign_certificates: Path,
) -> None:
    foreign, trusted = (
        credentials_in(directory, "a") for directory in (foreign_certificates, certificates)
    )
    # It trusts b, to get as far as it can; b does not trust it.
    refused = intrude(endpoints["b"], replace(foreign, authority=trusted.authority))
    control = intrude(endpoints["b"], credentials_in(certificates, UNKNOWN))
    await_that(lambda: bool(control.info.links()))  # so there was time for the other too
    publish(refused, "a", "b", encode(message()).data, MESSAGES)
    assert delivers(line, "a", "b")
    assert not refused.info.links()
    assert line["b"].arrivals.total() == 1
    assert line["b"].unknown_peers == {UNKNOWN: 1}
    assert not accepts(endpoints["b"], trusted.authority, foreign)
    assert not accepts(endpoints["b"], trusted.authority, None)
    assert accepts(endpoints["b"], trusted.authority, trusted)


def test_the_wire_shows_nothing_of_a_message(certificates: Path) -> None:
    endpoint = free_endpoint()
    own = {name: credentials_in(certificates, name) for name in "ab"}
    sent = message(0, "a", "b")
    with (
        closing(ZenohTransport("b", "a", credentials=own["b"], listen=[endpoint])) as b,
        closing(TcpProxy(endpoint)) as wire,
        closing(ZenohTransport("a", "b", credentials=own["a"], connect=[wire.endpoint])) as a,
    ):
        await_that(lambda: a.present == {"b"} and b.present == {"a"})
        assert delivers({"a": a, "b": b}, "a", "b")
        passed = b"".join(wire.passed)
    encoded = encode(sent).data
    assert len(passed) > len(encoded)
    for plain in (b"latents", sent.tensors["latents"].numpy().tobytes()):
        assert plain in encoded
        assert plain not in passed


def test_an_unknown_peer_with_a_certificate_can_neither_publish_nor_read(
    line: Peers, endpoints: dict[str, str], intrude: Intrude, certificates: Path
) -> None:
    session, seen = intrude(endpoints["b"], credentials_in(certificates, UNKNOWN)), []
    subscriber = session.declare_subscriber("**", lambda sample: seen.append(sample))
    await_that(lambda: line["b"].unknown_peers == {UNKNOWN: 1})
    for sender in ("a", "c", UNKNOWN):
        publish(session, sender, "b", encode(message(0, sender)).data, MESSAGES)
        publish(session, sender, "b", encode(message(0, sender)).data, ANNOUNCEMENTS)
    token = session.liveliness().declare_token(key("default", "c", ALIVE, "1"))
    await_that(lambda: len(seen) == 6)  # its own messages
    assert all(delivers(line, *pair, 1) for pair in ("ab", "ba", "bc", "cb"))
    assert line["b"].arrivals.total() == 2
    assert len(seen) == 6
    del subscriber, token


def test_a_neighbour_cannot_send_under_another_name(
    endpoints: dict[str, str], intrude: Intrude, certificates: Path
) -> None:
    b = ZenohTransport(
        *("b", "ac"), credentials=credentials_in(certificates, "b"), listen=[endpoints["b"]]
    )
    try:
        session = intrude(endpoints["b"], credentials_in(certificates, "c"))
        await_subscriber(session, "c", "b")
        # The first is refused because of its key, the second because of its content.
        publish(session, "a", "b", encode(message(sender="a")).data, MESSAGES)
        publish(session, "c", "b", encode(message(sender="a")).data, MESSAGES)
        publish(session, "c", "b", encode(message(sender="c")).data, MESSAGES)
        await_that(lambda: b.arrivals.total() == 2)
        assert list(b.receive("b", 0, "latents", "ac")) == ["c"]
        assert b.rejected == {"sender": 1}
    finally:
        b.close()


def test_missing_files_and_used_ports_are_named(
    line: Peers, endpoints: dict[str, str], certificates: Path
) -> None:
    with pytest.raises(InputError, match=r"no file .*missing\.pem for the certificate"):
        credentials_in(certificates, "missing")
    with pytest.raises(NetworkError, match=endpoints["b"]):
        ZenohTransport(
            *("d", "a"), credentials=credentials_in(certificates, "d"), listen=[endpoints["b"]]
        )


# Bounds


def test_ten_thousand_fuzzed_messages_are_counted_and_dropped(
    line: Peers, endpoints: dict[str, str], intrude: Intrude, certificates: Path
) -> None:
    session = intrude(endpoints["b"], credentials_in(certificates, "a"))
    await_subscriber(session, "a", "b")
    rng, valid = random.Random(0), encode(message(sender="a")).data
    for _ in range(10_000):
        data = bytearray(valid[: rng.randrange(1, len(valid))] if rng.random() < 0.5 else valid)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
        channel = rng.choice([MESSAGES, ANNOUNCEMENTS, "elsewhere"])
        publish(session, "a", "b", bytes(data), channel)
    await_that(lambda: line["b"].arrivals.total() == 10_000)
    assert delivers(line, "c", "b", 1)
    rejected = line["b"].rejected
    # Flipped bits of the payload, or of the name of a tensor, make another valid message.
    assert 8_000 < sum(rejected.values()) < 10_000
    assert {"size", "magic", "version", "header", "channel"} <= rejected.keys()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_and_descriptors_stay_constant_over_a_thousand_rounds(line: Peers) -> None:
    content = {"w": torch.zeros(1500)}

    def exchange(rounds: range) -> tuple[int, int]:
        for round in rounds:
            for sender, receiver in ("ab", "bc"):
                line[sender].send([Message("latents", round, sender, receiver, content)])
                line[sender].announce([Message("hello", round, sender, receiver, content)])
            for sender, receiver in ("ab", "bc"):
                here, events = line[receiver], line[receiver].events
                while not here.receive(receiver, round, "latents", sender):
                    events = here.wait(20, since=events)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize(), len(list(Path("/proc/self/fd").iterdir()))

    memory, descriptors = exchange(range(300))
    later = exchange(range(300, 1300))
    assert later[1] <= descriptors
    # 4,000 messages of 6 kB, 24 MB in all; the ledger keeps 48 bytes of each.
    assert later[0] - memory < 6 << 20


def test_an_absent_receiver_costs_only_its_own_messages(certificates: Path) -> None:
    """Sending does not block, and memory is bounded."""
    a = ZenohTransport(
        *("a", "b"), credentials=credentials_in(certificates, "a"), listen=[free_endpoint()]
    )
    try:
        a.send(message(round) for round in range(1000))
        assert a.flush()
        assert len(a.ledger) == 1000
    finally:
        a.close()


def test_an_agent_sends_and_receives_under_its_own_name_only(line: Peers) -> None:
    with pytest.raises(InputError, match="under its own name"):
        line["b"].send([message(sender="a", receiver="b")])
    with pytest.raises(InputError, match="transport of 'b', not of 'a'"):
        line["b"].receive("a", 0, "latents", "b")


# Presence and announcements


def test_presence_follows_disconnection_and_reconnection(
    line: Peers, endpoints: dict[str, str], certificates: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line["c"].close()
    await_that(lambda: line["b"].present == {"a"})
    await_that(lambda: "b: neighbour c is gone" in caplog.messages)
    assert delivers(line, "a", "b")
    line["c"] = ZenohTransport(
        *("c", "b"), credentials=credentials_in(certificates, "c"), connect=[endpoints["b"]]
    )
    await_that(lambda: line["b"].present == {"a", "c"})
    assert delivers(line, "b", "c", 7)


def test_the_latest_announcement_counts_whatever_its_round(line: Peers) -> None:
    for round in (5, 3):
        line["a"].announce([Message("hello", round, "a", "b", fields={"x": round})])
    await_that(lambda: line["b"].arrivals["a"] == 2)
    line["b"].receive("b", 9, "latents", "a")
    (announced,) = line["b"].announcements().values()
    assert (announced.round, dict(announced.fields)) == (3, {"x": 3})
    assert line["b"].announcements() == {}


def test_messages_sent_just_before_closing_arrive(line: Peers) -> None:
    large = Message("weights", 0, "a", "b", {"w": torch.zeros(200_000)})
    line["a"].send([large])
    line["a"].close()
    await_that(lambda: line["b"].arrivals.total() == 1)
    assert list(line["b"].receive("b", 0, "weights", "a")) == ["a"]
