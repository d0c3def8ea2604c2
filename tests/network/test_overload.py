"""What too much costs: messages that are too large, and a neighbour that takes none."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch

from sheafed.transport import encode
from sheafed.transport.message import Message
from sheafed.transport.zenoh import settings as zenoh_settings
from sheafed.transport.zenoh.certificates import make_certificates
from sheafed.transport.zenoh.credentials import credentials_in
from sheafed.transport.zenoh.settings import ALIVE, OVERHEAD, agent_access, key, settings
from sheafed.transport.zenoh.transport import MESSAGES, ZenohTransport
from tests.helpers.intruders import await_ears, intruder, put
from tests.helpers.messages import message
from tests.helpers.zenoh_peers import await_that, free_endpoint

LIMIT, LARGE = 1 << 20, 1 << 28


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory, ["a", "b", "c"])
    return directory


# Messages that are too large


@pytest.mark.parametrize(("batch", "times"), [(65535, 64), (512, 4)])
@pytest.mark.parametrize(("overhead", "whole"), [(OVERHEAD, 1), (1 << 28, 3)])
def test_fragments_beyond_the_limit_are_not_put_together(
    certificates: Path,
    monkeypatch: pytest.MonkeyPatch,
    overhead: int,
    whole: int,
    batch: int,
    times: int,
) -> None:
    """The larger overhead is as good as no bound, and shows that otherwise all three arrive."""
    monkeypatch.setattr(zenoh_settings, "OVERHEAD", overhead)
    where, own = free_endpoint(), credentials_in(certificates, "b")
    with (
        closing(ZenohTransport("b", "a", credentials=own, listen=[where], limit=LIMIT)) as b,
        intruder(where, credentials_in(certificates, "a"), batch) as session,
    ):
        await_ears(session, "a", "b")
        put(session, "a", "b", encode(message(kind="before")).data, MESSAGES)
        await_that(lambda: b.arrivals.total() == 1)
        for size in (LIMIT + 1, LIMIT + 2 * OVERHEAD, times * LIMIT):
            put(session, "a", "b", bytes(size), MESSAGES)
        put(session, "a", "b", encode(message(kind="after")).data, MESSAGES)
        await_that(lambda: bool(b.receive("b", 0, "after", "a")), 60)  # the link lives
        await_that(lambda: b.arrivals.total() >= 2 + whole)
        assert b.arrivals.total() == 2 + whole
        assert b.rejected == {"size": whole}


@contextmanager
def running(script: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that ends with the block, also if it is frozen."""
    command = [sys.executable, "-c", script, *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


RECEIVER = """
import sys
from pathlib import Path
from sheafed.transport.zenoh.credentials import credentials_in
from sheafed.transport.zenoh.transport import ZenohTransport

own = credentials_in(Path(sys.argv[1]), "b")
b = ZenohTransport("b", ["a"], credentials=own, listen=[sys.argv[2]], limit=int(sys.argv[3]))
for kind in ("before", "after"):
    while not b.receive("b", 0, kind, ["a"]):
        b.wait(0.1, since=b.events)
    print(kind, flush=True)
"""


def peak_memory(pid: int) -> int:
    """Return the peak of what a process has had in memory; that of its parent does not count."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return int(peak) << 10


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_a_large_message_costs_its_receiver_no_memory(certificates: Path) -> None:
    where = free_endpoint()
    with (
        running(RECEIVER, str(certificates), where, str(LIMIT)) as b,
        intruder(where, credentials_in(certificates, "a")) as session,
    ):
        assert b.stdout is not None
        await_ears(session, "a", "b", 60)
        say = partial(put, session, "a", "b", channel=MESSAGES)
        say(data=encode(message(kind="before")).data)
        assert b.stdout.readline() == "before\n"
        before = peak_memory(b.pid)
        say(data=bytes(LARGE))
        say(data=encode(message(kind="after")).data)
        assert b.stdout.readline() == "after\n"
        assert peak_memory(b.pid) - before < LARGE // 4


# A neighbour that takes none

ANSWERING = """
import sys, time
import zenoh

session = zenoh.open(zenoh.Config.from_json5(sys.argv[1]))
mail, answers, alive = sys.argv[2:]


def answer(sample):
    if len(sample.payload) < 1000:
        session.put(answers, b"heard")


subscriber = session.declare_subscriber(mail, answer)
token = session.liveliness().declare_token(alive)
time.sleep(300)
"""


def test_a_frozen_neighbour_costs_its_own_messages_only(
    certificates: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """If sending waited for c, the link to a would be lost when the lease of c ends."""
    where, lease = free_endpoint(), 2.0
    own = {name: credentials_in(certificates, name) for name in "abc"}
    of_c = settings(
        "peer",
        listen=[],
        connect=[where],
        credentials=own["c"],
        access=agent_access("default", "c", "b"),
        limit=LIMIT,
        lease=lease,
    )
    keys = [("*", "c", "*"), ("c", "b", MESSAGES), ("c", ALIVE)]
    with (
        closing(ZenohTransport("b", "ac", credentials=own["b"], listen=[where], lease=lease)) as b,
        closing(ZenohTransport("a", "b", credentials=own["a"], connect=[where], lease=lease)) as a,
        running(ANSWERING, json.dumps(of_c), *(key("default", *parts) for parts in keys)) as c,
    ):
        await_that(lambda: b.present == {"a", "c"} and a.present == {"b"})
        c.send_signal(signal.SIGSTOP)
        frozen_at, round, longest = time.monotonic(), 0, 0.0
        while time.monotonic() < frozen_at + 1.5 * lease:
            big = Message("big", round, "b", "c", {"w": torch.zeros(1 << 17)})
            begun = time.monotonic()
            b.send([big, big, message(round, "b", "a")])
            longest = max(longest, time.monotonic() - begun)
            await_that(lambda round=round: bool(a.receive("a", round, "latents", "b")))
            assert "a" in b.present
            round += 1
            time.sleep(0.02)
        assert longest < 1
        assert b.rejected["unsent"] > 0
        assert b.arrivals["c"] == 0
        c.send_signal(signal.SIGCONT)

        def heard_again() -> bool:
            b.send([message(round, "b", "c")])
            return b.arrivals["c"] > 0

        await_that(heard_again)
        assert "b: a is gone" not in caplog.messages
