"""Strangers without a certificate in front of an agent: real processes, sockets and TLS."""

import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from threading import Thread

import pytest

from sheafed.errors import InputError
from sheafed.transport.zenoh import ZenohTransport, credentials_in
from sheafed.transport.zenoh.guard import Guard, parse_endpoint
from sheafed.transport.zenoh.guard_process import (
    MAX_TRIES,
    MAX_WAITING_PER_ADDRESS,
    PROOF_ANSWERS,
    GuardLoop,
)
from tests.helpers import warm_processes
from tests.helpers.zenoh_peers import await_that, delivers, free_endpoint

LINK_SECONDS = 5.0
linux_only = pytest.mark.skipif(
    sys.platform != "linux", reason="a second address of loopback is a matter of Linux"
)


class Listening:
    """An agent that listens, and what connects to it."""

    def __init__(self, certificates: Path, stack: ExitStack) -> None:
        self.certificates, self.stack, self.endpoint = certificates, stack, free_endpoint()
        self.agent = self.open("a", "b", listen=[self.endpoint])
        self.address = parse_endpoint(self.endpoint)

    def open(self, name: str, neighbour: str, **options: list[str]) -> ZenohTransport:
        own = credentials_in(self.certificates, name)
        return self.stack.enter_context(
            closing(ZenohTransport(name, neighbour, credentials=own, **options))
        )

    def stranger(self, source: str = "127.0.0.1") -> socket.socket:
        made = socket.create_connection(self.address, 10, source_address=(source, 0))
        return self.stack.enter_context(made)

    def link(self) -> float:
        """Let the neighbour link, exchange messages, and return how long the link took."""
        began = time.monotonic()
        neighbour = self.open("b", "a", connect=[self.endpoint])
        await_that(lambda: neighbour.present == {"a"} and self.agent.present == {"b"}, 60)
        took = time.monotonic() - began
        peers = {"a": self.agent, "b": neighbour}
        assert delivers(peers, "a", "b")
        assert delivers(peers, "b", "a")
        return took


@pytest.fixture
def listening(certificates: Path) -> Iterator[Listening]:
    with ExitStack() as stack:
        yield Listening(certificates, stack)


def without_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        without_certificate().wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


def is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return not connection.recv(1)
    except BlockingIOError:
        return False
    except OSError:
        return True


# With Zenoh behind it


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n\r\n", client_hello()])
def test_a_neighbour_links_after_hundreds_of_failed_handshakes(
    listening: Listening, said: bytes
) -> None:
    """Each would have cost 0.1 s, one after the other."""
    for _ in range(200):
        with listening.stranger() as connection:
            connection.sendall(said)
    assert listening.link() < LINK_SECONDS
    await_that(lambda: listening.agent.failed_connections["127.0.0.1"] >= 200)


def test_idle_connections_are_bounded_and_keep_nobody_out(listening: Listening) -> None:
    idle = [listening.stranger() for _ in range(4 * MAX_WAITING_PER_ADDRESS)]
    await_that(
        lambda: sum(map(is_closed, idle)) == 3 * MAX_WAITING_PER_ADDRESS, seconds=LINK_SECONDS
    )
    assert listening.link() < LINK_SECONDS


@linux_only
def test_an_address_without_a_certificate_does_not_use_up_the_handshakes(
    listening: Listening,
) -> None:
    held = [listening.stranger("127.0.0.2") for _ in range(3 * MAX_TRIES)]
    for connection in held:
        connection.sendall(client_hello())
    await_that(lambda: any(map(is_readable, held)))  # Zenoh has answered some
    assert listening.link() < LINK_SECONDS
    assert sum(map(is_readable, held)) <= MAX_TRIES


def is_readable(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return bool(connection.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False


def test_a_client_without_a_certificate_gets_too_few_answers_for_a_proof(
    listening: Listening,
) -> None:
    incoming, outgoing, answers = ssl.MemoryBIO(), ssl.MemoryBIO(), 0
    tls = without_certificate().wrap_bio(incoming, outgoing)
    connection = listening.stranger()
    with suppress(ssl.SSLError, ConnectionError):
        while True:
            with suppress(ssl.SSLWantReadError):
                tls.do_handshake()
                tls.read(1)
            connection.sendall(outgoing.read() or b"\0")
            data = connection.recv(1 << 16)
            if not data:
                break
            answers += 1
            incoming.write(data)
    assert 1 <= answers < PROOF_ANSWERS
    await_that(lambda: listening.agent.failed_connections.total() == 1)


def test_a_guard_that_was_killed_is_started_again(
    listening: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    assert listening.link() < LINK_SECONDS
    os.kill(listening.agent._guard._process.pid, signal.SIGKILL)
    await_that(lambda: not listening.agent.present)
    await_that(lambda: listening.agent.present == {"b"})
    assert "a: the guard of its listeners had ended and is back" in caplog.messages


# Alone


def test_a_guard_ends_with_a_process_that_is_killed(tmp_path: Path) -> None:
    endpoint, listens = free_endpoint(), tmp_path / "listens"
    agent = warm_processes.start(_listen, endpoint, listens)
    await_that(listens.exists, 60)
    with socket.create_connection(parse_endpoint(endpoint), 10) as connection:
        agent.kill()
        assert connection.recv(1) == b""
    agent.join()


def _listen(endpoint: str, listens: Path) -> None:
    Guard("a", [endpoint], 4).start()
    listens.touch()
    time.sleep(300)


@pytest.mark.parametrize("endpoint", ["tcp/0.0.0.0:1", "tls/host", "tls/:1", "tls/host:70000"])
def test_endpoints_are_checked(endpoint: str) -> None:
    with pytest.raises(InputError, match="an endpoint to listen on is tls/HOST:PORT"):
        parse_endpoint(endpoint)


class Alone:
    """A guard in a thread, in front of two servers that the test plays."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        outer, self.unknown, self.known = (
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(3)
        )
        self.address = outer.getsockname()
        self.loop = GuardLoop(
            [outer], self.unknown.getsockname(), self.known.getsockname(), max_links=8
        )
        thread = Thread(target=self.loop.run)
        thread.start()
        stack.callback(thread.join)
        stack.callback(self.loop.end)

    def client(self) -> socket.socket:
        made = self._stack.enter_context(socket.create_connection(self.address, 10))
        made.sendall(client_hello())
        return made

    def served(self, listener: socket.socket) -> socket.socket | None:
        """Return the next connection to a server; None if there is none soon."""
        listener.settimeout(0.3)
        try:
            made = self._stack.enter_context(listener.accept()[0])
        except TimeoutError:
            return None
        made.settimeout(10)
        return made


@pytest.fixture
def alone() -> Iterator[Alone]:
    with ExitStack() as stack:
        yield Alone(stack)


def test_bytes_arrive_unchanged_and_an_address_with_a_proven_link_is_known(alone: Alone) -> None:
    client, server = alone.client(), alone.served(alone.unknown)
    assert server is not None
    large = os.urandom(3_000_000)
    for _ in range(PROOF_ANSWERS):
        server.recv(1 << 16)
        sender = Thread(target=server.sendall, args=(large,))
        sender.start()
        arrived = b""
        while len(arrived) < len(large):
            arrived += client.recv(1 << 16)
        sender.join()
        assert arrived == large
        client.sendall(b"more")
    client.sendall(b"the last bytes")
    client.close()
    left = b""
    while data := server.recv(1 << 16):
        left += data
    assert left.endswith(b"the last bytes")
    alone.client()
    assert alone.served(alone.known) is not None
    assert alone.served(alone.unknown) is None


def test_a_link_whose_server_has_ended_does_not_wait_for_a_client_that_is_gone(
    alone: Alone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sheafed.transport.zenoh.guard_process.HALF_OPEN_SECONDS", 0.2)
    client, server = alone.client(), alone.served(alone.unknown)
    assert server is not None
    for _ in range(PROOF_ANSWERS):
        server.recv(1 << 16)
        server.sendall(b"answer")
        assert client.recv(100) == b"answer"
        client.sendall(b"more")
    server.shutdown(socket.SHUT_WR)  # as Zenoh ends a link on which nothing came for a lease

    def is_reset() -> bool:
        try:
            client.sendall(b"?")
        except OSError:
            return True
        return False

    await_that(is_reset, LINK_SECONDS)


def test_an_address_that_fails_has_to_wait_and_its_closed_connections_vanish(alone: Alone) -> None:
    for _ in range(MAX_TRIES):
        client, server = alone.client(), alone.served(alone.unknown)
        assert server is not None
        server.close()  # as after a failed handshake
        client.close()
    await_that(lambda: alone.loop.failed.total() == MAX_TRIES)
    began = time.monotonic()
    for _ in range(3):
        alone.client().close()
    patient = alone.client()
    while (server := alone.served(alone.unknown)) is None:
        assert time.monotonic() < began + LINK_SECONDS
    assert time.monotonic() > began + 0.3
    server.sendall(b"to the one that is still there")
    assert patient.recv(100) == b"to the one that is still there"
