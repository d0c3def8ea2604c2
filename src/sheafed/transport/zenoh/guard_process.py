"""The program of the guard: a process that stands between the network and Zenoh's listener.

Zenoh pauses its accept loop for 0.1 s after every failed TLS handshake, and accepts connections
without a bound (https://github.com/eclipse-zenoh/zenoh/issues/2685): a few strangers without any
certificate keep all neighbours out, or use up the descriptors of the process. The guard takes the
connections instead, and forwards only those that begin a TLS handshake, few at a time:

- A connection *waits* until its client has sent the beginning of a TLS ClientHello. One that is
  closed, too slow or something else before that never reaches Zenoh.
- It is then *admitted*: connected to Zenoh, and its bytes are forwarded, unread and unchanged. An
  address may have a few admitted connections that are not proven yet or have failed lately; others
  of that address wait, and vanish if they are closed meanwhile.
- It is *proven* when Zenoh has answered 4 times: a client without a trusted certificate gets at
  most 3 answers (a request to repeat the hello, the server's part of the handshake, an alert).
- An address that has had a proven link is *known*. It is served by a listener of its own, which is
  not paused by the failures of unknown addresses.

This file is run by its path (`guard.py` starts it) and needs nothing but the standard library, so
that it starts in milliseconds. It ends when its standard input does, i.e. with its agent.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv6Network, ip_address
from threading import Thread
from typing import Any

Address = tuple[str, int]

HELLO_SECONDS = 3.0
"""In which a client has to send the beginning of a ClientHello."""
PROOF_SECONDS = 5.0
"""In which an admitted connection has to be proven."""
PROOF_ANSWERS = 4
MAX_UNPROVEN = 32
"""Admitted connections that are not proven, at each of Zenoh's two listeners."""
MAX_TRIES = 8
"""Unproven and lately failed connections per address; a failure is forgotten in 1 s."""
MAX_WAITING = 512
MAX_WAITING_PER_ADDRESS = 64
HELLO_PREFIX, MAX_HELLO = 6, 1 << 14
"""Bytes that tell a ClientHello, and bytes that are kept of one that waits."""
MAX_ADDRESSES = 1024
"""Addresses of which the guard keeps failures and whether they are known."""
CHUNK = 1 << 18
TICK = 0.25
HALF_OPEN_SECONDS = 5.0
"""For the other end of a link to end too: that of a machine that is gone never does."""
DRAIN_SECONDS = 1.0
"""For links to end when the agent has, so that what it sent last arrives."""
REPORT_SECONDS, REPORTED = 1.0, 16
"""How often, and of how many addresses, failed connections are reported."""


@dataclass(eq=False)
class Side:
    """One of the two sockets of a connection, with bytes that it could not take yet."""

    socket: socket.socket
    unsent: memoryview = field(default_factory=lambda: memoryview(b""))
    ended: bool = False
    """Whether the other end has sent everything."""


@dataclass(eq=False)
class Connection:
    """A client, and from its admission on Zenoh."""

    client: Side
    address: str
    deadline: float
    hello: bytes = b""
    server: Side | None = None
    known: bool = False
    connected: bool = False
    proven: bool = False
    answers: int = 0
    client_spoke: bool = True

    def other(self, side: Side) -> Side:
        assert self.server is not None
        return self.server if side is self.client else self.client


@dataclass
class Record:
    """What is kept of an address."""

    unproven: int = 0
    failures: float = 0.0
    updated: float = 0.0
    known: bool = False
    waiting: OrderedDict[int, Connection] = field(default_factory=OrderedDict)

    def tries(self, now: float) -> float:
        self.failures = max(0.0, self.failures - (now - self.updated))
        self.updated = now
        return self.unproven + self.failures


class GuardLoop:
    """Serves all connections from one thread.

    Args:
        listeners: bound sockets.
        unknown: where Zenoh listens for connections of unknown addresses.
        known: where it listens for those of known addresses.
        max_links: proven connections at a time.
        max_waiting: connections at a time that have not been admitted.
        report: called with the connections that came to nothing so far, by address.
    """

    def __init__(
        self,
        listeners: Iterable[socket.socket],
        unknown: Address,
        known: Address,
        max_links: int,
        max_waiting: int = MAX_WAITING,
        report: Callable[[Counter[str]], None] = lambda failed: None,
    ) -> None:
        self.failed: Counter[str] = Counter()
        self._targets = {False: unknown, True: known}
        self._max_links, self._max_waiting, self._report = max_links, max_waiting, report
        self._records: OrderedDict[str, Record] = OrderedDict()
        self._waiting: OrderedDict[int, Connection] = OrderedDict()
        self._ready: OrderedDict[int, Connection] = OrderedDict()  # of the waiting ones
        self._unproven: dict[bool, set[Connection]] = {False: set(), True: set()}
        self._proven: set[Connection] = set()
        self._listeners = list(listeners)
        self._selector = selectors.DefaultSelector()
        for listener in self._listeners:
            listener.setblocking(False)
            self._selector.register(listener, selectors.EVENT_READ, partial(self._accept, listener))
        self._ended_at: float | None = None
        self._waker, self._wake = socket.socketpair()
        self._selector.register(self._waker, selectors.EVENT_READ, self._end)

    def end(self) -> None:
        """Let `run` return; from any thread."""
        self._wake.send(b"!")

    def run(self) -> None:
        """Serve until `end`, then until the links have ended, or have had time to."""
        next_tick = next_report = 0.0
        reported = 0
        while not self._is_over():
            for key, events in self._selector.select(TICK):
                key.data(events)
            now = time.monotonic()
            if now >= next_tick:
                next_tick = now + TICK
                self._expire(now)
            self._admit(now)
            if now >= next_report and reported != self.failed.total():
                next_report, reported = now + REPORT_SECONDS, self.failed.total()
                self._report(self.failed)
        for connection in [*self._pending(), *self._proven]:
            self._close(connection)
        for each in (self._selector, self._waker, self._wake):
            each.close()

    def _end(self, _: int) -> None:
        self._selector.unregister(self._waker)
        for listener in self._listeners:
            self._selector.unregister(listener)
            listener.close()
        self._ended_at = time.monotonic()

    def _is_over(self) -> bool:
        if self._ended_at is None:
            return False
        return not self._proven or time.monotonic() > self._ended_at + DRAIN_SECONDS

    # Waiting

    def _accept(self, listener: socket.socket, _: int) -> None:
        for _ in range(MAX_WAITING_PER_ADDRESS):
            try:
                client, peer = listener.accept()
            except BlockingIOError:
                return
            except OSError:  # no descriptor left, or the client is gone
                self._drop_oldest(self._waiting)
                return
            client.setblocking(False)
            address = group(peer[0])
            record = self._record(address)
            if len(record.waiting) >= MAX_WAITING_PER_ADDRESS:
                self._drop_oldest(record.waiting)
            elif len(self._waiting) >= self._max_waiting:
                self._drop_oldest(self._waiting)
            deadline = time.monotonic() + HELLO_SECONDS
            connection = Connection(Side(client), address, deadline)
            self._waiting[id(connection)] = record.waiting[id(connection)] = connection
            self._watch(connection, connection.client, selectors.EVENT_READ)

    def _drop_oldest(self, waiting: OrderedDict[int, Connection]) -> None:
        if waiting:
            self._close(next(iter(waiting.values())))

    def _read_hello(self, connection: Connection) -> None:
        try:
            data = connection.client.socket.recv(MAX_HELLO)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        connection.hello += data
        if not data or not begins_handshake(connection.hello) or len(connection.hello) > MAX_HELLO:
            self._close(connection)
        elif len(connection.hello) >= HELLO_PREFIX:
            self._ready[id(connection)] = connection

    def _admit(self, now: float) -> None:
        """Connect waiting connections to Zenoh as far as there is room, the newest first.

        The client of the newest has the most time left.
        """
        for connection in reversed(list(self._ready.values())):
            record = self._record(connection.address)
            unproven = self._unproven[record.known]
            full = len(unproven) >= MAX_UNPROVEN or len(self._proven) >= self._max_links
            if not full and record.tries(now) + 1 <= MAX_TRIES:
                self._connect(connection, record, now)

    def _connect(self, connection: Connection, record: Record, now: float) -> None:
        try:
            server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        except OSError:  # no descriptor left
            self._close(connection)
            return
        server.setblocking(False)
        # Beside the buffers of the link itself, little is to be on its way to a frozen neighbour.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CHUNK)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, CHUNK)
        for each in (server, connection.client.socket):
            with suppress(OSError):  # the client is gone, which is seen later
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server.connect_ex(self._targets[record.known])  # an error is seen by the first write
        self._forget_waiting(connection)
        record.unproven += 1
        connection.known = record.known
        self._unproven[record.known].add(connection)
        connection.deadline = now + PROOF_SECONDS
        connection.server = Side(server, memoryview(connection.hello))
        self._selector.unregister(connection.client.socket)
        self._watch(connection, connection.server, selectors.EVENT_WRITE)

    # Forwarding

    def _handle(self, connection: Connection, side: Side, events: int) -> None:
        if side.socket.fileno() < 0:
            return  # closed by an earlier event of this turn
        if connection.server is None:
            self._read_hello(connection)
            return
        try:
            if events & selectors.EVENT_WRITE:
                self._write(connection, side)
            if events & selectors.EVENT_READ:
                self._read(connection, side)
        except BlockingIOError:
            pass
        except OSError:
            self._close(connection)
            return
        if connection.server.ended and (connection.client.ended or not connection.proven):
            self._close(connection)
            return
        self._rewatch(connection)

    def _read(self, connection: Connection, side: Side) -> None:
        other = connection.other(side)
        data = side.socket.recv(CHUNK)
        if not data:
            side.ended = True
            connection.deadline = min(connection.deadline, time.monotonic() + HALF_OPEN_SECONDS)
            other.socket.shutdown(socket.SHUT_WR)
            return
        self._count_answer(connection, from_client=side is connection.client)
        other.unsent = memoryview(data)
        self._write(connection, other)

    def _write(self, connection: Connection, side: Side) -> None:
        if side.unsent:
            side.unsent = side.unsent[side.socket.send(side.unsent) :]
        if side is connection.server:
            connection.connected = True

    def _count_answer(self, connection: Connection, from_client: bool) -> None:
        if connection.client_spoke and not from_client:
            connection.answers += 1
            if connection.answers == PROOF_ANSWERS:
                self._prove(connection)
        connection.client_spoke = from_client

    def _prove(self, connection: Connection) -> None:
        record = self._record(connection.address)
        record.known = connection.proven = True
        connection.deadline = float("inf")
        record.unproven -= 1
        self._unproven[connection.known].discard(connection)
        self._proven.add(connection)

    def _rewatch(self, connection: Connection) -> None:
        """Read from a side only when the other has taken everything, so that nothing piles up."""
        for side in (connection.client, connection.other(connection.client)):
            wanted = selectors.EVENT_WRITE if side.unsent else 0
            if connection.connected and not side.ended and not connection.other(side).unsent:
                wanted |= selectors.EVENT_READ
            self._watch(connection, side, wanted)

    def _watch(self, connection: Connection, side: Side, events: int) -> None:
        registered = self._selector.get_map().get(side.socket)
        handle = partial(self._handle, connection, side)
        if registered is None:
            if events:
                self._selector.register(side.socket, events, handle)
        elif not events:
            self._selector.unregister(side.socket)
        elif registered.events != events:
            self._selector.modify(side.socket, events, handle)

    # Ending

    def _expire(self, now: float) -> None:
        """Close what is too slow; forget addresses of which there is nothing to remember."""
        for connection in [*self._pending(), *self._proven]:
            if now > connection.deadline:
                self._close(connection)
        for address, record in list(self._records.items()):
            idle = not record.waiting and not record.tries(now)
            if idle and (not record.known or len(self._records) > MAX_ADDRESSES):
                del self._records[address]

    def _pending(self) -> list[Connection]:
        return [*self._waiting.values(), *self._unproven[False], *self._unproven[True]]

    def _close(self, connection: Connection) -> None:
        if connection.server is None:
            self._forget_waiting(connection)
        elif connection.proven:
            self._proven.discard(connection)
        else:
            record = self._record(connection.address)
            record.tries(time.monotonic())
            record.failures += 1
            record.unproven -= 1
            self._unproven[connection.known].discard(connection)
        if not connection.proven:
            self._count_failed(connection.address)
        for side in (connection.client, connection.server):
            if side is not None:
                self._watch(connection, side, 0)
                side.socket.close()

    def _count_failed(self, address: str) -> None:
        crowded = address not in self.failed and len(self.failed) >= MAX_ADDRESSES
        self.failed["others" if crowded else address] += 1

    def _forget_waiting(self, connection: Connection) -> None:
        del self._waiting[id(connection)]
        self._ready.pop(id(connection), None)
        del self._record(connection.address).waiting[id(connection)]

    def _record(self, address: str) -> Record:
        record = self._records.get(address)
        if record is None:
            record = self._records[address] = Record(updated=time.monotonic())
        return record


def begins_handshake(data: bytes) -> bool:
    """Return whether bytes can be the beginning of a TLS record with a ClientHello.

    >>> begins_handshake(bytes([22, 3, 1, 0, 200, 1])), begins_handshake(b"GET / HTTP/1.1")
    (True, False)
    """
    expected = {0: 22, 1: 3, 5: 1}  # a handshake, of TLS, that begins with a ClientHello
    return all(data[at] == value for at, value in expected.items() if at < len(data))


def group(address: str) -> str:
    """Return the address that connections are counted under: of IPv6, the network of 64 bits.

    >>> group("192.0.2.7"), group("2001:db8::1:2"), group("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8::/64', '192.0.2.7')
    """
    parsed = ip_address(address.partition("%")[0])
    if parsed.version == 4:
        return str(parsed)
    mapped = parsed.ipv4_mapped
    return str(mapped or IPv6Network((parsed, 64), strict=False))


def listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen on all addresses of a host."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets = []
    for family, _, _, _, address in dict.fromkeys(found):
        both = family == socket.AF_INET6 and host == "::" and socket.has_dualstack_ipv6()
        sockets.append(
            socket.create_server(address[:2], family=family, backlog=1024, dualstack_ipv6=both)
        )
    return sockets


def raised_limit() -> int:
    """Raise the soft limit of descriptors to the hard one; return it, or a guess on Windows."""
    try:
        import resource
    except ImportError:
        return 512
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = hard if hard != resource.RLIM_INFINITY else max(soft, 65536)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def serve(settings: dict[str, Any]) -> None:
    """Bind, say so on standard output, and serve until standard input ends."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # it is the agent that has to end
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    try:
        listeners = [each for host, port in settings["listen"] for each in listen(host, port)]
    except OSError as problem:
        _say(error=str(problem))
        return
    descriptors = raised_limit() - 2 * (settings["max_links"] + 2 * MAX_UNPROVEN) - 32
    loop = GuardLoop(
        listeners,
        unknown=tuple(settings["unknown"]),
        known=tuple(settings["known"]),
        max_links=settings["max_links"],
        max_waiting=max(16, min(MAX_WAITING, descriptors)),
        report=lambda failed: _say(failed=dict(failed.most_common(REPORTED))),
    )
    _say(ready=True)
    Thread(target=_end_with_input, args=(loop,), daemon=True).start()
    loop.run()


def _end_with_input(loop: GuardLoop) -> None:
    sys.stdin.read()
    loop.end()


def _say(**news: object) -> None:
    print(json.dumps(news), flush=True)


if __name__ == "__main__":
    with suppress(BrokenPipeError):  # the agent was killed
        serve(json.loads(sys.stdin.readline()))
    os._exit(0)  # a thread may still read
