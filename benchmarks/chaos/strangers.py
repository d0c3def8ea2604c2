"""What strangers do to a port that listens: they connect without a certificate.

python benchmarks/chaos/strangers.py 10.78.0.1 7447 close --rate 100
"""

import argparse
import os
import resource
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

KINDS = ("idle", "close", "garbage", "hello", "hold", "refused")
HELD = ("idle", "hold")
DESCRIPTORS = 4096


@dataclass(frozen=True)
class Attack:
    """What strangers do."""

    kind: str
    """"idle", "close", "garbage" (random bytes, then close), "hello" (a ClientHello, then close),
    "hold" (one, then nothing) or "refused" (a TLS handshake without a certificate)."""
    rate: float
    """Connections per second; infinite for all at once."""
    count: int = 10**9
    """Connections in all, or at a time if they are held."""
    source: str = ""
    """The address that they come from; any by default."""


def attack(
    plan: Attack, address: tuple[str, int], begun: Callable[[], object] = lambda: None
) -> None:
    """Connect until this process is killed; `begun` is called when the attack is complete."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, most), most))
    hello, context, held = client_hello(), _trusting_anybody(), deque[socket.socket]()
    started, done, threads = time.monotonic(), 0, ThreadPoolExecutor(64)
    while True:
        if done < plan.count or plan.kind in HELD:
            if len(held) >= plan.count:
                begun()
                _keep_open(held)
                time.sleep(0.01)
                continue
            with suppress(OSError):
                made = socket.create_connection(address, timeout=5, source_address=(plan.source, 0))
                if plan.kind in ("hello", "hold"):
                    made.sendall(hello)
                if plan.kind == "garbage":
                    made.sendall(os.urandom(256))
                if plan.kind in HELD:
                    held.append(made)
                elif plan.kind == "refused":
                    threads.submit(shake_hands, context, made)
                else:
                    made.close()
            done += 1
        if done >= plan.count or plan.rate != float("inf"):
            begun()
        time.sleep(max(0.0, started + done / plan.rate - time.monotonic()))


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = _trusting_anybody().wrap_bio(incoming, outgoing)
    with suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


def shake_hands(context: ssl.SSLContext, connection: socket.socket) -> None:
    """Shake hands without a certificate, until the other end refuses that."""
    with suppress(OSError), context.wrap_socket(connection) as secure:
        secure.recv(1)


def _trusting_anybody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _keep_open(held: deque[socket.socket]) -> None:
    """Drop the connections that the other end has closed, so that they are made again."""
    for _ in range(len(held)):
        connection = held.popleft()
        connection.setblocking(False)
        try:
            alive = bool(connection.recv(1 << 16))
        except BlockingIOError:
            alive = True
        except OSError:
            alive = False
        if alive:
            held.append(connection)
        else:
            connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--rate", type=float, default=float("inf"), help="connections a second")
    parser.add_argument("--count", type=int, default=10**9, help="in all, or held at a time")
    options = parser.parse_args()
    attack(Attack(options.kind, options.rate, options.count), (options.host, options.port))


if __name__ == "__main__":
    main()
