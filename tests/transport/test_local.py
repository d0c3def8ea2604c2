import gc
import logging
import threading
import weakref
from collections.abc import Collection

import pytest
import torch

from sheafed.errors import InputError
from sheafed.transport import Ledger, LocalTransport, Mailbox, Transport, decode, encode
from sheafed.transport.message import Message
from tests.helpers.messages import message, same_message
from tests.helpers.transport_contract import TransportContract


class TestLocalExchange(TransportContract):
    def make(self, names: Collection[str]) -> Transport:
        return LocalTransport(names)

    def inject(self, transport: Transport, receiver: str, data: bytes) -> None:
        assert isinstance(transport, LocalTransport)
        transport.deliver(receiver, data)


def test_tap_sees_the_bytes_of_every_message_on_the_wire() -> None:
    seen: list[bytes] = []
    transport = LocalTransport("ab", tap=seen.append, drop=lambda m: m.round == 1)
    sent = [message(round) for round in range(3)]
    transport.send(sent)
    assert seen == [encode(m).data for m in sent]
    assert sum(map(len, seen)) == transport.ledger.bytes_sent()
    assert all(same_message(decode(d), m) for d, m in zip(seen, sent, strict=True))


def test_dropped_messages_are_paid_for_and_never_arrive() -> None:
    transport = LocalTransport("ab", drop=lambda m: m.round == 1)
    transport.send(message(round) for round in range(3))
    arrived = [bool(transport.receive("b", round, "latents", "a")) for round in range(3)]
    assert arrived == [True, False, True]
    assert len(transport.ledger) == 3
    assert not transport.rejected


def test_goes_on_with_a_ledger() -> None:
    ledger = Ledger()
    ledger.record(0, "a", "b", "latents", 10, 20)
    transport = LocalTransport("ab", ledger=ledger)
    transport.send([message(1)])
    assert transport.ledger is ledger
    assert len(ledger) == 2


def test_an_empty_ledger_is_not_replaced() -> None:
    ledger = Ledger()
    assert LocalTransport("ab", ledger=ledger).ledger is ledger


def test_names_must_differ() -> None:
    with pytest.raises(InputError, match=r"\['a', 'a', 'b'\]; rename"):
        LocalTransport(["a", "b", "a"])


def test_rejected_sums_over_agents() -> None:
    transport = LocalTransport("abc")
    transport.deliver("a", b"")
    transport.deliver("b", b"")
    transport.deliver("b", b"something else")
    assert transport.rejected == {"size": 2, "magic": 1}


def test_memory_stays_flat_over_many_rounds_nobody_reads() -> None:
    transport = LocalTransport("ab")
    for round in range(1000):
        transport.send([message(round), message(round, kind="unread")])
        assert transport.receive("b", round, "latents", "a")
    assert transport.rejected == {"late": 999}
    assert sum(len(unread) for unread in transport._boxes["b"]._unread.values()) == 1


def test_closing_frees_what_is_unread() -> None:
    transport = LocalTransport("ab")
    transport.send([message()])
    (unread,) = transport._boxes["b"]._unread["a"].values()
    reference = weakref.ref(unread)
    del unread
    transport.close()
    gc.collect()
    assert reference() is None


def test_a_full_mailbox_makes_room_by_dropping_the_oldest_of_that_sender() -> None:
    box = Mailbox("b", "abc", capacity=2)
    for sender, round in [("c", 0), ("a", 3), ("a", 1), ("a", 2), ("a", 0)]:
        box.put(encode(message(round, sender=sender)).data)
    assert box.rejected == {"overflow": 2}
    assert list(box.take(0, "latents", "ac")) == ["c"]
    assert [list(box.take(round, "latents", "ac")) for round in (1, 2, 3)] == [[], ["a"], ["a"]]


def test_a_mailbox_has_a_size_limit() -> None:
    box = Mailbox("b", "ab", limit=100)
    box.put(bytes(101))
    assert box.rejected == {"size": 1}


def test_only_the_first_drop_for_a_reason_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    box = Mailbox("b", "ab")
    with caplog.at_level(logging.DEBUG, logger="sheafed.transport"):
        for data in (b"", b"", b"no message at all"):
            box.put(data)
    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG", "WARNING"]


def test_a_log_line_of_a_hostile_message_is_short(caplog: pytest.LogCaptureFixture) -> None:
    box = Mailbox("b", "ab")
    for hostile in (
        Message("k", 0, "a", "x\n" * 20_000),
        Message("k", 0, "x\n" * 20_000, "b"),
    ):
        box.put(encode(hostile).data)
    assert len(caplog.records) == 2
    for record in caplog.records:
        assert len(record.getMessage()) < 300
        assert "\n" not in record.getMessage()


def test_threads_may_put_while_another_takes() -> None:
    box = Mailbox("b", [*"abcdefgh"], capacity=200)
    start = threading.Barrier(5)

    def work(sender: str) -> None:
        start.wait()
        for round in range(100):
            box.put(encode(message(round, sender=sender)).data)

    threads = [threading.Thread(target=work, args=(sender,)) for sender in "acde"]
    for thread in threads:
        thread.start()
    start.wait()
    early = sum(len(box.take(0, "latents", "acde")) for _ in range(50))
    for thread in threads:
        thread.join()
    late = sum(len(box.take(round, "latents", "acde")) for round in range(100))
    assert early + late == 400
    assert not box.rejected


def test_a_broadcast_gives_every_receiver_its_own_memory() -> None:
    transport = LocalTransport("abc")
    latents = torch.ones(2, 2)
    transport.send(Message("latents", 0, "a", receiver, {"z": latents}) for receiver in "bc")
    pointers = {
        transport.receive(receiver, 0, "latents", "a")["a"].tensors["z"].data_ptr()
        for receiver in "bc"
    }
    assert len(pointers | {latents.data_ptr()}) == 3
