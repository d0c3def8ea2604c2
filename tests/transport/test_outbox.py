"""Sending without waiting."""

from threading import Event

from sheafed.transport.zenoh.outbox import Outbox
from tests.helpers.zenoh_peers import await_that


def test_a_blocked_receiver_loses_its_oldest_messages_and_delays_no_other() -> None:
    taken: dict[str, list[bytes]] = {"slow": [], "quick": []}
    release, dropped = Event(), []

    def deliver(receiver: str, key: str, data: bytes) -> None:
        if receiver == "slow":
            assert release.wait(20)
        taken[receiver].append(data)

    box = Outbox(taken, deliver, capacity=3, on_drop=dropped.append)
    for k in range(10):
        box.post("slow", "key", bytes([k]))
    for k in range(2):
        box.post("quick", "key", bytes([k]))
    await_that(lambda: taken["quick"] == [b"\0", b"\1"])
    assert not box.flush(0)
    release.set()
    assert box.flush(20)
    assert taken["slow"][-3:] == [b"\7", b"\x08", b"\x09"]
    assert len(taken["slow"]) + len(dropped) == 10
    assert set(dropped) == {"slow"}
    box.close()


def test_close_drops_unsent_messages() -> None:
    release, taken = Event(), []

    def deliver(receiver: str, key: str, data: bytes) -> None:
        assert release.wait(20)
        taken.append(data)

    box = Outbox(["b"], deliver, capacity=9, on_drop=taken.append)
    for k in range(5):
        box.post("b", "key", bytes([k]))
    box._closed = True  # as if it happened while the first is on its way
    release.set()
    box.close()
    assert len(taken) <= 1
