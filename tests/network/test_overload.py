"""The cost of overload: messages that are too large, and a neighbour that reads none."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event

import pytest
import torch

from sheafed.transport import Message, encode
from sheafed.transport.zenoh import ZenohTransport, credentials_in
from sheafed.transport.zenoh import settings as zenoh_settings
from sheafed.transport.zenoh.access_control import ALIVE, ANY, agent_access, key
from sheafed.transport.zenoh.settings import OVERHEAD, session_settings
from sheafed.transport.zenoh.transport import MESSAGES
from tests.helpers.intruders import await_subscriber, intruder, intruder_settings, publish
from tests.helpers.messages import message
from tests.helpers.zenoh_peers import await_that, free_endpoint

LIMIT, LARGE = 1 << 20, 1 << 28


@contextmanager
def running(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that imports Zenoh only; it ends with the block, even if it is frozen."""
    with subprocess.Popen([sys.executable, "-c", script, *arguments], text=True) as process:
        try:
            yield process
        finally:
            process.kill()


# Messages that are too large


@pytest.mark.parametrize(("batch", "times"), [(65535, 64), (512, 4)])
@pytest.mark.parametrize(("overhead", "whole"), [(OVERHEAD, 1), (1 << 28, 3)])
def test_fragments_beyond_the_limit_are_not_assembled(
    certificates: Path,
    monkeypatch: pytest.MonkeyPatch,
    overhead: int,
    whole: int,
    batch: int,
    times: int,
) -> None:
    """The larger overhead is practically no bound: then all three messages arrive."""
    monkeypatch.setattr(zenoh_settings, "OVERHEAD", overhead)
    endpoint, own = free_endpoint(), credentials_in(certificates, "b")
    with (
        closing(ZenohTransport("b", "a", credentials=own, listen=[endpoint], limit=LIMIT)) as b,
        intruder(endpoint, credentials_in(certificates, "a"), batch) as session,
    ):
        await_subscriber(session, "a", "b")
        publish(session, "a", "b", encode(message(kind="before")).data, MESSAGES)
        await_that(lambda: b.arrivals.total() == 1)
        for size in (LIMIT + 1, LIMIT + 2 * OVERHEAD, times * LIMIT):
            publish(session, "a", "b", bytes(size), MESSAGES)
        publish(session, "a", "b", encode(message(kind="after")).data, MESSAGES)
        await_that(lambda: bool(b.receive("b", 0, "after", "a")), 60)  # the link lives
        await_that(lambda: b.arrivals.total() >= 2 + whole)
        assert b.arrivals.total() == 2 + whole
        assert b.rejected == {"size": whole}


SENDER = """
import sys, time
import zenoh

session = zenoh.open(zenoh.Config.from_json5(sys.argv[1]))
name, size, after = sys.argv[2], int(sys.argv[3]), bytes.fromhex(sys.argv[4])
publisher = session.declare_publisher(name, congestion_control=zenoh.CongestionControl.BLOCK)
while not publisher.matching_status.matching:
    time.sleep(0.01)
publisher.put(bytes(size))
publisher.put(after)
time.sleep(300)
"""


def peak_memory() -> int:
    """Return the peak of this process's memory since it was last reset."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(peak) << 10


def reset_peak_memory() -> None:
    Path("/proc/self/clear_refs").write_text("5")


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs /proc")
@pytest.mark.parametrize("limit", [LIMIT, 2 * LARGE])
def test_a_large_message_costs_its_receiver_no_memory(certificates: Path, limit: int) -> None:
    """With a limit that allows it, the same message does cost memory."""
    endpoint, own = free_endpoint(), credentials_in(certificates, "b")
    settings = json.dumps(intruder_settings(endpoint, credentials_in(certificates, "a")))
    after = encode(message(kind="after")).data.hex()
    channel = key("default", "a", "b", MESSAGES)
    with closing(ZenohTransport("b", "a", credentials=own, listen=[endpoint], limit=limit)) as b:
        reset_peak_memory()
        before = peak_memory()
        with running(SENDER, settings, channel, str(LARGE), after):
            await_that(lambda: bool(b.receive("b", 0, "after", "a")), 60)
            assert (peak_memory() - before < LARGE // 4) == (limit == LIMIT)


# A neighbour that reads none

ANSWERING = """
import sys, time
import zenoh

session = zenoh.open(zenoh.Config.from_json5(sys.argv[1]))
inbox, answers, alive = sys.argv[2:]


def answer(sample):
    if len(sample.payload) < 1000:
        session.put(answers, b"arrived")


subscriber = session.declare_subscriber(inbox, answer)
token = session.liveliness().declare_token(alive)
time.sleep(300)
"""


def test_a_frozen_neighbour_costs_only_its_own_messages(
    certificates: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If sending waited for c, the link to a would be lost when the lease of c ends."""
    endpoint, lease = free_endpoint(), 1.5
    own = {name: credentials_in(certificates, name) for name in "abc"}
    of_c = session_settings(
        "peer",
        listen=[],
        connect=[endpoint],
        credentials=own["c"],
        access=agent_access("default", "c", "b"),
        limit=LIMIT,
        lease=lease,
    )
    keys = [
        key("default", *parts)
        for parts in [(ANY, "c", ANY), ("c", "b", MESSAGES), ("c", ALIVE, "1")]
    ]
    listen, connect = {"listen": [endpoint]}, {"connect": [endpoint]}
    with (
        closing(ZenohTransport("b", "ac", credentials=own["b"], lease=lease, **listen)) as b,
        closing(ZenohTransport("a", "b", credentials=own["a"], lease=lease, **connect)) as a,
        running(ANSWERING, json.dumps(of_c), *keys) as c,
    ):
        await_that(lambda: b.present == {"a", "c"} and a.present == {"b"})
        c.send_signal(signal.SIGSTOP)
        frozen_at, round, longest = time.monotonic(), 0, 0.0
        while time.monotonic() < frozen_at + 1.5 * lease:
            large = Message("large", round, "b", "c", {"w": torch.zeros(1 << 17)})
            started = time.monotonic()
            b.send([*[large] * 8, message(round, "b", "a")])
            longest = max(longest, time.monotonic() - started)
            await_that(lambda round=round: bool(a.receive("a", round, "latents", "b")))
            assert "a" in b.present
            round += 1
            time.sleep(0.02)
        assert longest < 1
        # More than sockets hold, so most was dropped: by Zenoh, or by the queue if that is slower.
        assert round * 8 * (1 << 19) > 32 << 20
        assert b.arrivals["c"] == 0
        c.send_signal(signal.SIGCONT)

        def answers_again() -> bool:
            b.send([message(round, "b", "c")])
            return b.arrivals["c"] > 0

        await_that(answers_again)
        assert "b: neighbour a is gone" not in caplog.messages


def test_messages_that_a_full_queue_drops_are_counted(
    certificates: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = Event(), Event()

    def slow(transport: ZenohTransport, receiver: str, key: str, data: bytes) -> None:
        begun.set()
        go_on.wait()

    monkeypatch.setattr(ZenohTransport, "_put", slow)
    own = credentials_in(certificates, "b")
    with closing(ZenohTransport("b", "a", credentials=own, capacity=2)) as b:
        try:
            b.send([message(0, "b", "a")])
            assert begun.wait(10)  # the queue is empty again
            b.send([message(round, "b", "a") for round in range(1, 6)])
            assert b.rejected["unsent"] == 3
        finally:
            go_on.set()
