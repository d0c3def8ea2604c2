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
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path

import networkx as nx

from chaos.strangers import Attack, attack
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
class Case:
    """An attack, and whom it keeps out."""

    label: str
    attack: Attack
    promised: bool = True
    dialled: bool = False
    """Whether the agent under attack connects to the neighbour, which listens too."""


def same(kind: str, rate: float, count: int = 10**9) -> Attack:
    """Return an attack from the address of the neighbour."""
    return Attack(kind, rate, count, SAME)


CASES = [
    Case("none", same("close", 1, 0)),
    Case("1,500 idle", same("idle", float("inf"), 1500)),
    Case("400 connect and close at once", same("close", float("inf"), 400)),
    Case("34 connect and close a second", same("close", 34)),
    Case("100 connect and close a second", same("close", 100)),
    Case("100 hellos and close a second", same("hello", 100)),
    Case("100 refused handshakes a second, other address", Attack("refused", 100, source=OTHER)),
    Case("100 hellos held, other address", Attack("hold", 100, 100, OTHER)),
    Case("100 refused handshakes a second", same("refused", 100), promised=False),
    Case("100 refused handshakes a second, agent dials", same("refused", 100), dialled=True),
]
QUICK = [CASES[0], CASES[1], CASES[4]]


def attack_listener(plan: Attack, port: int, listens: Event, begun: Event) -> None:
    """Attack an agent as soon as it listens."""
    listens.wait()
    attack(plan, (SAME, port), begun.set)


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


def seconds_to_link(certificates: Path, case: Case, guard: bool, patience: float) -> float | None:
    """Return how long a neighbour took to link with an agent under attack; None if it did not."""
    plan = case.attack
    port, dialled = free_port(), [f"tls/{SAME}:{free_port()}"] if case.dialled else []
    listens, end, attacked = CONTEXT.Event(), CONTEXT.Event(), CONTEXT.Event()
    with (
        process(listening_agent, certificates, port, dialled, guard, listens, end) as agent,
        process(attack_listener, plan, port, listens, attacked),
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
        with process(attack_listener, CASES[1].attack, port, listens, begun):
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
    cases = [
        case for case in (QUICK if options.quick else CASES) if (options.only or "") in case.label
    ]
    missed = []
    with tempfile.TemporaryDirectory() as directory:
        certificates = Path(directory) / "certificates"
        make_certificates(certificates, ["a", "b"])
        for guard in [True] if options.quick else [False, True]:
            print("with the guard" if guard else "without", flush=True)
            for case in cases:
                took = seconds_to_link(certificates, case, guard, options.patience)
                text = f"no link in {options.patience:g} s" if took is None else f"{took:.2f} s"
                print(f"  {case.label:48} {text}", flush=True)
                if guard and case.promised and (took is None or took > PROMISED_SECONDS):
                    missed.append(case.label)
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
