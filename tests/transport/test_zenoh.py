"""The network exchange: the contract, and what its links, certificates and bounds promise."""

import random
import resource
import socket
import ssl
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import zenoh

from sheafed.errors import InputError, NetworkError
from sheafed.transport import Ledger, Transport, encode
from sheafed.transport.message import Message
from sheafed.transport.zenoh.certificates import make_certificates
from sheafed.transport.zenoh.credentials import Credentials, credentials_in
from sheafed.transport.zenoh.settings import key
from sheafed.transport.zenoh.transport import ANNOUNCEMENTS, MESSAGES, ZenohTransport
from tests.helpers.intruders import await_ears, intruder, put
from tests.helpers.messages import message
from tests.helpers.transport_contract import TransportContract
from tests.helpers.zenoh_peers import Together, await_that, connected, free_endpoint, passed

LIMIT = 1 << 20
Peers = dict[str, ZenohTransport]
Intrude = Callable[[str, Credentials], zenoh.Session]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory, ["a", "b", "c", "d", "relay"])
    return directory


class TestNetworkExchange(TransportContract):
    capacity = 16

    @pytest.fixture(autouse=True)
    def _certificates(self, certificates: Path) -> None:
        self.certificates = certificates

    def make(self, names: Collection[str]) -> Transport:
        ledger = Ledger()
        return Together(connected(self.certificates, names, ledger=ledger), ledger)

    def inject(self, transport: Transport, receiver: str, data: bytes) -> None:
        assert isinstance(transport, Together)
        transport.inject(receiver, data)


@pytest.fixture
def endpoints() -> dict[str, str]:
    return {name: free_endpoint() for name in "abc"}


@pytest.fixture
def line(certificates: Path, endpoints: dict[str, str]) -> Iterator[Peers]:
    """Return the exchanges of a - b - c."""
    peers = connected(certificates, "abc", [("a", "b"), ("b", "c")], endpoints, limit=LIMIT)
    yield peers
    for peer in peers.values():
        peer.close()


@pytest.fixture
def intrude() -> Iterator[Intrude]:
    """Dial as an attacker does, until the test ends."""
    opened = []

    def intrude(endpoint: str, credentials: Credentials) -> zenoh.Session:
        opened.append(intruder(endpoint, credentials))
        return opened[-1]

    yield intrude
    for session in opened:
        session.close()


def knock(endpoint: str, authority: Path, shown: Credentials | None) -> bool:
    """Whether a TLS client of another make, with or without a certificate, is let in."""
    context = ssl.create_default_context(cafile=str(authority))
    context.check_hostname = False
    if shown is not None:
        context.load_cert_chain(shown.certificate, shown.key)
    host, port = endpoint.removeprefix("tls/").split(":")
    with socket.create_connection((host, int(port)), 20) as plain:
        try:
            with context.wrap_socket(plain) as secure:
                secure.settimeout(1)
                return secure.recv(1) != b""  # who is not let in is told at once
        except TimeoutError:
            return True
        except (ssl.SSLError, ConnectionError):
            return False


# Certificates and names


def test_the_wrong_authority_and_no_certificate_get_no_link(
    line: Peers, endpoints: dict[str, str], intrude: Intrude, tmp_path: Path, certificates: Path
) -> None:
    make_certificates(tmp_path, ["a"])
    own, genuine = credentials_in(tmp_path, "a"), credentials_in(certificates, "a")
    # It trusts b, to get as far as it can; b does not trust it.
    wrong = intrude(endpoints["b"], replace(own, authority=genuine.authority))
    control = intrude(endpoints["b"], credentials_in(certificates, "d"))
    await_that(lambda: bool(control.info.links()))  # so there was time for the other too
    put(wrong, "a", "b", encode(message()).data, MESSAGES)
    assert passed(line, "a", "b")
    assert not wrong.info.links()
    assert line["b"].arrivals.total() == 1
    assert line["b"].unknown_peers == {"d": 1}
    assert not knock(endpoints["b"], genuine.authority, own)
    assert not knock(endpoints["b"], genuine.authority, None)
    assert knock(endpoints["b"], genuine.authority, genuine)


def test_a_stranger_with_a_certificate_is_counted_and_neither_heard_nor_told(
    line: Peers, endpoints: dict[str, str], intrude: Intrude, certificates: Path
) -> None:
    session, overheard = intrude(endpoints["b"], credentials_in(certificates, "d")), []
    subscriber = session.declare_subscriber("**", lambda sample: overheard.append(sample))
    await_that(lambda: line["b"].unknown_peers == {"d": 1})
    for sender in "acd":
        put(session, sender, "b", encode(message(0, sender)).data, MESSAGES)
        put(session, sender, "b", encode(message(0, sender)).data, ANNOUNCEMENTS)
    token = session.liveliness().declare_token(key("default", "c", "alive"))
    await_that(lambda: len(overheard) == 6)  # what it said itself
    assert all(passed(line, *pair, 1) for pair in ("ab", "ba", "bc", "cb"))
    assert line["b"].arrivals.total() == 2
    assert len(overheard) == 6
    del subscriber, token


def test_a_neighbour_cannot_speak_under_another_s_name(
    endpoints: dict[str, str], intrude: Intrude, certificates: Path
) -> None:
    b = ZenohTransport(
        *("b", "ac"), credentials=credentials_in(certificates, "b"), listen=[endpoints["b"]]
    )
    try:
        session = intrude(endpoints["b"], credentials_in(certificates, "c"))
        await_ears(session, "c", "b")
        put(session, "a", "b", encode(message(sender="a")).data, MESSAGES)  # refused by its key
        put(session, "c", "b", encode(message(sender="a")).data, MESSAGES)  # by its content
        put(session, "c", "b", encode(message(sender="c")).data, MESSAGES)
        await_that(lambda: b.arrivals.total() == 2)
        assert list(b.receive("b", 0, "latents", "ac")) == ["c"]
        assert b.rejected == {"sender": 1}
    finally:
        b.close()


def test_missing_files_and_taken_ports_are_named(
    line: Peers, endpoints: dict[str, str], certificates: Path
) -> None:
    with pytest.raises(InputError, match=r"nobody\.pem, is not there"):
        credentials_in(certificates, "nobody")
    with pytest.raises(NetworkError, match=endpoints["b"]):
        ZenohTransport(
            *("d", "a"), credentials=credentials_in(certificates, "d"), listen=[endpoints["b"]]
        )


# Bounds


def test_ten_thousand_fuzzed_messages_are_counted_and_dropped(
    line: Peers, endpoints: dict[str, str], intrude: Intrude, certificates: Path
) -> None:
    session = intrude(endpoints["b"], credentials_in(certificates, "a"))
    await_ears(session, "a", "b")
    chance, good = random.Random(0), encode(message(sender="a")).data
    for _ in range(10_000):
        data = bytearray(good[: chance.randrange(1, len(good))] if chance.random() < 0.5 else good)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
        put(session, "a", "b", bytes(data), chance.choice([MESSAGES, ANNOUNCEMENTS, "elsewhere"]))
    await_that(lambda: line["b"].arrivals.total() == 10_000)
    assert passed(line, "c", "b", 1)
    rejected = line["b"].rejected
    # Flipped bits of the payload, or of the name of a tensor, make another good message.
    assert 8_000 < sum(rejected.values()) < 10_000
    assert {"size", "magic", "version", "header", "channel"} <= rejected.keys()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_and_descriptors_stay_flat_over_five_thousand_rounds(line: Peers) -> None:
    def talk(rounds: range) -> tuple[int, int]:
        for round in rounds:
            for sender, receiver in ("ab", "bc"):
                line[sender].send([message(round, sender, receiver)])
                line[sender].announce([Message("hello", round, sender, receiver)])
            for sender, receiver in ("ab", "bc"):
                here, news = line[receiver], line[receiver].events
                while not here.receive(receiver, round, "latents", sender):
                    news = here.wait(20, since=news)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize(), len(list(Path("/proc/self/fd").iterdir()))

    memory, descriptors = talk(range(1000))
    later = talk(range(1000, 6000))
    assert later[1] <= descriptors
    # 20,000 messages of 600 bytes; the ledger keeps 48 bytes of each.
    assert later[0] - memory < 6 << 20


def test_a_receiver_that_takes_nothing_costs_its_own_messages_only(certificates: Path) -> None:
    # Nobody has ever been at the other end: sending is as fast, and memory bounded.
    lonely = ZenohTransport(
        *("a", "b"), credentials=credentials_in(certificates, "a"), listen=[free_endpoint()]
    )
    try:
        lonely.send(message(round) for round in range(1000))
        assert lonely.flush()
        assert len(lonely.ledger) == 1000
    finally:
        lonely.close()


def test_only_the_own_name_and_the_own_mail(line: Peers) -> None:
    with pytest.raises(InputError, match="under its own name"):
        line["b"].send([message(sender="a", receiver="b")])
    with pytest.raises(InputError, match="exchange of 'b', not of 'a'"):
        line["b"].receive("a", 0, "latents", "b")


# Presence and greetings


def test_presence_follows_departure_and_return(
    line: Peers, endpoints: dict[str, str], certificates: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line["c"].close()
    await_that(lambda: line["b"].present == {"a"})
    await_that(lambda: "b: c is gone" in caplog.messages)
    assert passed(line, "a", "b")
    line["c"] = ZenohTransport(
        *("c", "b"), credentials=credentials_in(certificates, "c"), connect=[endpoints["b"]]
    )
    await_that(lambda: line["b"].present == {"a", "c"})
    assert passed(line, "b", "c", 7)


def test_of_greetings_the_newest_counts_whatever_its_round(line: Peers) -> None:
    for round in (5, 3):
        line["a"].announce([Message("hello", round, "a", "b", fields={"x": round})])
    await_that(lambda: line["b"].arrivals["a"] == 2)
    line["b"].receive("b", 9, "latents", "a")
    (hello_message,) = line["b"].announcements().values()
    assert (hello_message.round, dict(hello_message.fields)) == (3, {"x": 3})
    assert line["b"].announcements() == {}


def test_what_was_sent_just_before_closing_arrives(line: Peers) -> None:
    big = Message("weights", 0, "a", "b", {"w": torch.zeros(200_000)})
    line["a"].send([big])
    line["a"].close()
    await_that(lambda: line["b"].arrivals.total() == 1)
    assert list(line["b"].receive("b", 0, "weights", "a")) == ["a"]
