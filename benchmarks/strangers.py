"""How long a neighbour takes to link, and whether an agent survives, while strangers connect to it.

    python benchmarks/strangers.py                # all attacks, with the guard and without
    python benchmarks/strangers.py --quick        # a few of them, with the guard, in half a minute

The strangers have no certificate. Agent, attacker and neighbour are processes of their own, linked
over loopback with mutual TLS; the agent may have 1,024 descriptors. Attacks come from the address
of the neighbour (the worst case, as behind one router), or from another one (Linux only). Fails if,
with the guard, a link that is promised takes longer than 5 s, or the agent under idle connections
ends or writes no checkpoint.
"""

import argparse
import multiprocessing
import os
import resource
import signal
import socket
import ssl
import tempfile
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path

import networkx as nx

from sheafed.network.launcher import CERTIFICATES, LOG, LocalLauncher
from sheafed.transport.zenoh import ZenohTransport, credentials_in
from sheafed.transport.zenoh.certificates import make_certificates

DESCRIPTORS = 1024
TRAINING = "training under 1,500 idle connections"
PROMISED_SECONDS = 5.0
LEAD_SECONDS = 3.0
"""Between the begin of an attack and the start of the neighbour."""
SAME, OTHER = "127.0.0.1", "127.0.0.2"
CONTEXT = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Attack:
    """What strangers do."""

    label: str
    kind: str
    """"idle", "close", "hello" (a ClientHello, then close), "hold" (one, then nothing) or "refused"
    (a TLS handshake without a certificate)."""
    rate: float
    """Connections per second; infinite for all at once."""
    count: int = 10**9
    """Connections in all, or at a time if they are held."""
    source: str = SAME
    promised: bool = True
    dialled: bool = False
    """Whether the agent under attack connects to the neighbour, which listens too."""


ATTACKS = [
    Attack("none", "close", 1, 0),
    Attack("1,500 idle", "idle", float("inf"), 1500),
    Attack("400 connect and close at once", "close", float("inf"), 400),
    Attack("34 connect and close a second", "close", 34),
    Attack("100 connect and close a second", "close", 100),
    Attack("100 hellos and close a second", "hello", 100),
    Attack("100 refused handshakes a second, other address", "refused", 100, source=OTHER),
    Attack("100 hellos held, other address", "hold", 100, 100, source=OTHER),
    Attack("100 refused handshakes a second", "refused", 100, promised=False),
    Attack("100 refused handshakes a second, agent dials", "refused", 100, dialled=True),
]
QUICK = [ATTACKS[0], ATTACKS[1], ATTACKS[4]]


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    connection = _trusting_anybody().wrap_bio(incoming, outgoing)
    with suppress(ssl.SSLWantReadError):
        connection.do_handshake()
    return outgoing.read()


def _trusting_anybody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def attack(plan: Attack, port: int, listens: Event, begun: Event) -> None:
    """Connect, once the agent listens, until this process is killed."""
    listens.wait()
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    )
    hello, context, held = client_hello(), _trusting_anybody(), deque[socket.socket]()
    started, done, threads = time.monotonic(), 0, ThreadPoolExecutor(64)
    while True:
        if done < plan.count or plan.kind in ("idle", "hold"):
            if len(held) >= plan.count:
                begun.set()
                _keep_open(held)
                time.sleep(0.01)
                continue
            with suppress(OSError):
                made = socket.create_connection(
                    (SAME, port), timeout=5, source_address=(plan.source, 0)
                )
                if plan.kind in ("hello", "hold"):
                    made.sendall(hello)
                if plan.kind in ("idle", "hold"):
                    held.append(made)
                elif plan.kind == "refused":
                    threads.submit(shake_hands, context, made)
                else:
                    made.close()
            done += 1
        if done >= plan.count or plan.rate != float("inf"):
            begun.set()
        time.sleep(max(0.0, started + done / plan.rate - time.monotonic()))


def shake_hands(context: ssl.SSLContext, connection: socket.socket) -> None:
    """Shake hands without a certificate, until the other end refuses that."""
    with suppress(OSError), context.wrap_socket(connection) as secure:
        secure.recv(1)


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


def listening_agent(
    certificates: Path, port: int, connect: list[str], guard: bool, begun: Event, end: Event
) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    transport = ZenohTransport(
        *("a", ["b"]),
        credentials=credentials_in(certificates, "a"),
        listen=[f"tls/{SAME}:{port}"],
        connect=connect,
        guard=guard,
    )
    begun.set()
    end.wait()
    transport.close()


@contextmanager
def process(target, *arguments):
    started = CONTEXT.Process(target=target, args=arguments)
    started.start()
    try:
        yield started
    finally:
        started.kill()
        started.join()


def seconds_to_link(certificates: Path, plan: Attack, guard: bool, patience: float) -> float | None:
    """Return how long a neighbour took to link with an agent under attack; None if it did not."""
    port, dialled = free_port(), [f"tls/{SAME}:{free_port()}"] if plan.dialled else []
    listens, end, attacked = CONTEXT.Event(), CONTEXT.Event(), CONTEXT.Event()
    with (
        process(listening_agent, certificates, port, dialled, guard, listens, end) as agent,
        process(attack, plan, port, listens, attacked),
    ):
        assert attacked.wait(120), "the attack does not begin"
        time.sleep(0 if plan.rate == float("inf") and plan.kind == "close" else LEAD_SECONDS)
        began = time.monotonic()
        neighbour = ZenohTransport(
            *("b", ["a"]),
            credentials=credentials_in(certificates, "b"),
            listen=dialled,
            connect=[f"tls/{SAME}:{port}"],
        )
        while not neighbour.present and time.monotonic() < began + patience:
            time.sleep(0.01)
        took = time.monotonic() - began if neighbour.present else None
        neighbour.close()
        end.set()
        agent.join(20)
        return took


def free_port() -> int:
    with socket.create_server((SAME, 0)) as probe:
        return probe.getsockname()[1]


CONFIG = """
[data]
name = "digits"
[[model.agents]]
name = "a"
widths = [8]
[[model.agents]]
name = "b"
widths = [8]
[training]
epochs = 100000
evaluate_every = 1000
checkpoint_every = 5
"""


def survives(out: Path, guard: bool, seconds: float) -> str:
    """Attack an agent in training by idle connections; return how it fared."""
    out.mkdir()
    config = out / "config.toml"
    config.write_text(CONFIG, encoding="utf-8")
    make_certificates(out / CERTIFICATES, ["a", "b"])
    listens, begun = CONTEXT.Event(), CONTEXT.Event()
    checkpoint = out / "a" / "checkpoint.safetensors"
    options = ["--guard" if guard else "--no-guard"]
    with LocalLauncher(str(config), nx.Graph([("a", "b")]), out, options, grace=20) as network:
        network.start()
        agent, end = network.processes["a"], time.monotonic() + 120
        resource.prlimit(agent.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
        while not checkpoint.exists() and time.monotonic() < end:
            time.sleep(0.1)
        port = int(network.endpoints["a"].rpartition(":")[2])
        listens.set()
        with process(attack, ATTACKS[1], port, listens, begun):
            assert begun.wait(60), "the attack does not begin"
            most, end = 0, time.monotonic() + seconds
            while agent.poll() is None and time.monotonic() < end:
                most = max(most, len(os.listdir(f"/proc/{agent.pid}/fd")))
                time.sleep(0.1)
            fresh = time.time() - checkpoint.stat().st_mtime < seconds / 2
            if agent.poll() is not None:
                last = (out / "a" / LOG).read_text().strip().splitlines()[-1]
                return f"ended: {last[:200]}"
            return f"{'alive' if fresh else 'alive, no checkpoint'}, at most {most} descriptors"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few attacks, only with the guard")
    parser.add_argument("--patience", type=float, default=60, help="seconds to wait for a link")
    parser.add_argument("--only", help="attacks whose label contains this")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    plans = [
        plan for plan in (QUICK if options.quick else ATTACKS) if (options.only or "") in plan.label
    ]
    missed = []
    with tempfile.TemporaryDirectory() as directory:
        certificates = Path(directory) / "certificates"
        make_certificates(certificates, ["a", "b"])
        for guard in [True] if options.quick else [False, True]:
            print("with the guard" if guard else "without", flush=True)
            for plan in plans:
                took = seconds_to_link(certificates, plan, guard, options.patience)
                text = f"no link in {options.patience:g} s" if took is None else f"{took:.2f} s"
                print(f"  {plan.label:48} {text}", flush=True)
                if guard and plan.promised and (took is None or took > PROMISED_SECONDS):
                    missed.append(plan.label)
            if (options.only or "") in TRAINING:
                fared = survives(
                    Path(directory) / f"guard {guard}", guard, 10 if options.quick else 30
                )
                print(f"  {TRAINING:48} {fared}", flush=True)
                if guard and (not fared.startswith("alive") or "no checkpoint" in fared):
                    missed.append("training")
    if missed:
        raise SystemExit(f"missed with the guard: {', '.join(missed)}")


if __name__ == "__main__":
    main()
