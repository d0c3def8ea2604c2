import gc
import weakref
from collections.abc import Collection

import pytest
import torch

from sheafed.errors import InputError
from sheafed.transport import Ledger, LocalTransport, Message, Transport, decode, encode
from tests.helpers.messages import message, same_message
from tests.helpers.transport_contract import TransportContract


class TestLocalTransport(TransportContract):
    def make(self, names: Collection[str]) -> Transport:
        return LocalTransport(names)

    def inject(self, transport: Transport, receiver: str, data: bytes) -> None:
        assert isinstance(transport, LocalTransport)
        transport.deliver(receiver, data)


def test_tap_gets_the_bytes_of_every_message() -> None:
    seen: list[bytes] = []
    transport = LocalTransport("ab", tap=seen.append, drop=lambda m: m.round == 1)
    sent = [message(round) for round in range(3)]
    transport.send(sent)
    assert seen == [encode(m).data for m in sent]
    assert sum(map(len, seen)) == transport.ledger.bytes_sent()
    assert all(same_message(decode(d), m) for d, m in zip(seen, sent, strict=True))


def test_dropped_messages_are_counted_and_never_arrive() -> None:
    transport = LocalTransport("ab", drop=lambda m: m.round == 1)
    transport.send(message(round) for round in range(3))
    arrived = [bool(transport.receive("b", round, "latents", "a")) for round in range(3)]
    assert arrived == [True, False, True]
    assert len(transport.ledger) == 3
    assert not transport.rejected


def test_continues_a_ledger() -> None:
    ledger = Ledger()
    ledger.record(0, "a", "b", "latents", 10, 20)
    transport = LocalTransport("ab", ledger=ledger)
    transport.send([message(1)])
    assert transport.ledger is ledger
    assert len(ledger) == 2


def test_an_empty_ledger_is_not_replaced() -> None:
    ledger = Ledger()
    assert LocalTransport("ab", ledger=ledger).ledger is ledger


def test_names_must_be_unique() -> None:
    with pytest.raises(InputError, match=r"\['a', 'a', 'b'\]; rename"):
        LocalTransport(["a", "b", "a"])


def test_rejected_sums_over_agents() -> None:
    transport = LocalTransport("abc")
    transport.deliver("a", b"")
    transport.deliver("b", b"")
    transport.deliver("b", b"something else")
    assert transport.rejected == {"size": 2, "magic": 1}


def test_unread_messages_do_not_accumulate() -> None:
    transport = LocalTransport("ab")
    for round in range(1000):
        transport.send([message(round), message(round, kind="unread")])
        assert transport.receive("b", round, "latents", "a")
    assert transport.rejected == {"late": 999}
    assert sum(len(unread) for unread in transport._mailboxes["b"]._unread.values()) == 1


def test_close_frees_unread_messages() -> None:
    transport = LocalTransport("ab")
    transport.send([message()])
    (unread,) = transport._mailboxes["b"]._unread["a"].values()
    reference = weakref.ref(unread)
    del unread
    transport.close()
    gc.collect()
    assert reference() is None


def test_a_broadcast_gives_every_receiver_its_own_memory() -> None:
    transport = LocalTransport("abc")
    latents = torch.ones(2, 2)
    transport.send(Message("latents", 0, "a", receiver, {"z": latents}) for receiver in "bc")
    pointers = {
        transport.receive(receiver, 0, "latents", "a")["a"].tensors["z"].data_ptr()
        for receiver in "bc"
    }
    assert len(pointers | {latents.data_ptr()}) == 3
