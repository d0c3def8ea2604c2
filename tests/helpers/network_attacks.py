"""What an attacker does to one agent of a network of processes for as long as it runs."""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sheafed.errors import MessageError
from sheafed.network.launcher import CERTIFICATES, LocalLauncher
from sheafed.transport import encode
from sheafed.transport.codec import decode
from sheafed.transport.zenoh.certificates import make_certificates
from sheafed.transport.zenoh.credentials import credentials_in
from sheafed.transport.zenoh.transport import ANNOUNCEMENTS, MESSAGES
from tests.helpers.intruders import await_ears, intruder, put
from tests.helpers.messages import message

STRANGER = "stranger"
"""Has a certificate of the authority and is no neighbour."""


@contextmanager
def under_attack(agents: LocalLauncher, victim: str, neighbour: str, place: Path) -> Iterator[None]:
    """Dial the victim without being entitled to, and flood it under a neighbour's certificate.

    The flood has begun when the block is entered, and ends after it.

    Args:
        agents: the network; the victim has been started.
        victim: who is attacked.
        neighbour: a neighbour of the victim, whose certificate and name are used.
        place: a directory for another authority.
    """
    genuine = agents.out / CERTIFICATES
    make_certificates(place, [neighbour])
    forged = credentials_in(place, neighbour)
    forged = replace(forged, authority=credentials_in(genuine, neighbour).authority)
    where, over = agents.endpoints[victim], threading.Event()
    with (
        intruder(where, forged),
        intruder(where, credentials_in(genuine, STRANGER)) as stranger,
        intruder(where, credentials_in(genuine, neighbour)) as session,
    ):
        await_ears(session, neighbour, victim, 60)

        def flood() -> None:
            for channel, data in _invalid(neighbour, victim):
                if over.is_set():
                    return
                put(session, neighbour, victim, data, channel)
                put(stranger, neighbour, victim, data, channel)
                time.sleep(0.005)

        thread = threading.Thread(target=flood)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def _invalid(sender: str, receiver: str) -> Iterator[tuple[str, bytes]]:
    """Yield channels and bytes without end, none of which is a message from one to the other."""
    chance = random.Random(0)
    good = encode(message(0, sender, receiver, kind="round")).data
    yield MESSAGES, encode(message(0, STRANGER, receiver, kind="round")).data
    yield MESSAGES, encode(message(0, sender, STRANGER, kind="round")).data
    yield "elsewhere", good
    while True:
        data = bytearray(good[: chance.randrange(1, len(good))] if chance.random() < 0.5 else good)
        data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
        try:
            decode(bytes(data))
        except MessageError:
            yield chance.choice([MESSAGES, ANNOUNCEMENTS]), bytes(data)
