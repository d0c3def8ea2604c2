"""Attacks on one agent of a network of processes, for as long as it runs."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sheafed.errors import MessageError
from sheafed.network.launcher import LocalLauncher
from sheafed.transport import decode, encode
from sheafed.transport.zenoh import credentials_in
from sheafed.transport.zenoh.transport import ANNOUNCEMENTS, MESSAGES
from tests.helpers.certificates import UNKNOWN
from tests.helpers.intruders import await_subscriber, intruder, publish
from tests.helpers.messages import message


@contextmanager
def under_attack(
    launcher: LocalLauncher, victim: str, neighbour: str, certificates: Path, foreign: Path
) -> Iterator[None]:
    """Connect to the victim without permission, and flood it under a neighbour's certificate.

    The flood has begun when the block is entered, and ends after it.

    Args:
        launcher: the network; the victim has been started.
        victim: the agent that is attacked.
        neighbour: a neighbour of the victim, whose certificate and name are used.
        certificates: of the authority that the victim trusts.
        foreign: certificates of another authority.
    """
    trusted = credentials_in(certificates, neighbour)
    forged = replace(credentials_in(foreign, neighbour), authority=trusted.authority)
    endpoint, ended = launcher.endpoints[victim], threading.Event()
    with (
        intruder(endpoint, forged),
        intruder(endpoint, credentials_in(certificates, UNKNOWN)) as unknown,
        intruder(endpoint, trusted) as session,
    ):
        await_subscriber(session, neighbour, victim, 60)

        def flood() -> None:
            for channel, data in _invalid(neighbour, victim):
                if ended.is_set():
                    return
                publish(session, neighbour, victim, data, channel)
                publish(unknown, neighbour, victim, data, channel)
                time.sleep(0.005)

        thread = threading.Thread(target=flood)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _invalid(sender: str, receiver: str) -> Iterator[tuple[str, bytes]]:
    """Yield channels and bytes without end, none of which is a valid message."""
    rng = random.Random(0)
    valid = encode(message(0, sender, receiver, kind="round")).data
    yield MESSAGES, encode(message(0, UNKNOWN, receiver, kind="round")).data
    yield MESSAGES, encode(message(0, sender, UNKNOWN, kind="round")).data
    yield "elsewhere", valid
    while True:
        data = bytearray(valid[: rng.randrange(1, len(valid))] if rng.random() < 0.5 else valid)
        data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
        try:
            decode(bytes(data))
        except MessageError:
            yield rng.choice([MESSAGES, ANNOUNCEMENTS]), bytes(data)
