"""What every transport must do: inherit `TransportContract`, implement `make`, get the suite."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import ClassVar

import pytest
import torch

from sheafed.errors import InputError, MessageError, TransportClosedError, UnknownAgentError
from sheafed.transport import Message, Transport, encode
from sheafed.transport.message import Scalar
from tests.helpers import pickling
from tests.helpers.messages import every_tensor, message, same_message, tensor_of

NAMES = ("a", "b", "c")


class TransportContract(ABC):
    capacity: ClassVar[int] = 64
    """The unread messages per sender that a receiver keeps."""

    @abstractmethod
    def make(self, names: Collection[str]) -> Transport:
        """Return a new transport between agents, all of which can be used from here."""

    @abstractmethod
    def inject(self, transport: Transport, receiver: str, data: bytes) -> None:
        """Let any bytes arrive at `receiver`."""

    def barrier(self, transport: Transport) -> None:
        """Wait until what was sent has arrived."""
        transport.barrier(0, "contract")

    @pytest.fixture
    def transport(self) -> Iterator[Transport]:
        transport = self.make(NAMES)
        yield transport
        transport.close()

    def send(self, transport: Transport, *messages: Message) -> None:
        transport.send(messages)
        self.barrier(transport)

    def test_delivers_every_dtype_and_shape_bit_for_bit(self, transport: Transport) -> None:
        fields: dict[str, Scalar] = {
            "text": "π\n",
            "int": -(2**63),
            "float": 0.1,
            "yes": True,
            "none": None,
        }
        sent = Message("everything", 3, "a", "b", every_tensor(), fields)
        self.send(transport, sent)
        received = transport.receive("b", 3, "everything", ["a"])
        assert list(received) == ["a"]
        assert same_message(received["a"], sent)
        assert [type(v) for v in received["a"].fields.values()] == [
            type(fields[name]) for name in received["a"].fields
        ]
        assert not transport.rejected

    def test_delivers_a_message_without_tensors(self, transport: Transport) -> None:
        self.send(transport, Message("hello", 0, "a", "b"))
        assert transport.receive("b", 0, "hello", ["a"])["a"].tensors == {}

    def test_delivers_a_non_contiguous_tensor_that_requires_grad(
        self, transport: Transport
    ) -> None:
        latents = torch.arange(6.0).view(2, 3).requires_grad_().mT
        self.send(transport, Message("latents", 0, "a", "b", {"z": latents}))
        received = transport.receive("b", 0, "latents", ["a"])["a"].tensors["z"]
        assert torch.equal(received, latents)
        assert not received.requires_grad

    def test_sorts_by_sender_whatever_the_order_of_arrival(self, transport: Transport) -> None:
        self.send(transport, message(sender="c"), message(sender="a"))
        assert list(transport.receive("b", 0, "latents", {"c", "a"})) == ["a", "c"]

    def test_keeps_receivers_kinds_and_rounds_apart(self, transport: Transport) -> None:
        sent = [
            message(round, receiver=receiver, kind=kind, seed=seed)
            for seed, (round, receiver, kind) in enumerate(
                (round, receiver, kind) for round in (1, 0) for receiver in "bc" for kind in "xy"
            )
        ]
        self.send(transport, *sent)
        for expected in sorted(sent, key=lambda m: m.round):
            received = transport.receive(expected.receiver, expected.round, expected.kind, ["a"])
            assert same_message(received["a"], expected)

    def test_missing_messages_are_absent(self, transport: Transport) -> None:
        self.send(transport, message(sender="a"))
        assert list(transport.receive("b", 0, "latents", ["a", "c"])) == ["a"]
        assert transport.receive("b", 1, "latents", ["a", "c"]) == {}
        assert not transport.rejected

    def test_a_message_is_received_once(self, transport: Transport) -> None:
        self.send(transport, message())
        assert transport.receive("b", 0, "latents", ["a"])
        assert transport.receive("b", 0, "latents", ["a"]) == {}

    def test_messages_of_other_senders_stay_unread(self, transport: Transport) -> None:
        self.send(transport, message(sender="a"), message(sender="c"))
        assert list(transport.receive("b", 0, "latents", ["c"])) == ["c"]
        assert list(transport.receive("b", 0, "latents", ["a"])) == ["a"]

    def test_the_first_of_duplicates_counts(self, transport: Transport) -> None:
        first, second = message(seed=1), message(seed=2)
        self.send(transport, first)
        self.send(transport, second)
        assert same_message(transport.receive("b", 0, "latents", ["a"])["a"], first)
        self.send(transport, first)
        assert transport.receive("b", 0, "latents", ["a"]) == {}
        assert transport.rejected == {"duplicate": 2}

    def test_messages_of_earlier_rounds_are_late(self, transport: Transport) -> None:
        self.send(transport, message(round=0), message(round=2))
        assert list(transport.receive("b", 2, "latents", ["a"])) == ["a"]
        assert transport.rejected == {"late": 1}
        self.send(transport, message(round=1))
        assert transport.receive("b", 2, "latents", ["a"]) == {}
        assert transport.rejected == {"late": 2}

    def test_receivers_may_be_in_different_rounds(self, transport: Transport) -> None:
        transport.receive("b", 5, "latents", ["a"])
        self.send(transport, message(round=1, receiver="c"))
        assert list(transport.receive("c", 1, "latents", ["a"])) == ["a"]
        assert not transport.rejected

    def test_rounds_cannot_decrease(self, transport: Transport) -> None:
        transport.receive("b", 5, "latents", ["a"])
        with pytest.raises(
            InputError, match=r"b has received messages of round 5, .* for round 4;"
        ):
            transport.receive("b", 4, "latents", ["a"])

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"", "size"),
            (b"\x80\x05K\x01. a pickle", "magic"),
            (encode(message()).data[:-1], "size"),
            (encode(message(receiver="c")).data, "receiver"),
            (encode(message(sender="unknown")).data, "sender"),
        ],
    )
    def test_bad_messages_are_counted_logged_and_dropped(
        self, transport: Transport, caplog: pytest.LogCaptureFixture, data: bytes, reason: str
    ) -> None:
        good = message()
        self.inject(transport, "b", data)
        self.send(transport, good)
        received = transport.receive("b", 0, "latents", ["a", "c"])
        assert same_message(received.pop("a"), good)
        assert received == {}
        assert transport.rejected == {reason: 1}
        (record,) = [r for r in caplog.records if r.name == "sheafed.transport"]
        assert record.levelname == "WARNING"
        assert f"b dropped a message ({reason})" in record.getMessage()

    def test_unknown_agents_are_errors(self, transport: Transport) -> None:
        for unknown in (message(receiver="z"), message(sender="z")):
            with pytest.raises(UnknownAgentError, match=r"unknown agent 'z'; .* \['a', 'b', 'c'\]"):
                transport.send([unknown])
        for receiver, senders in [("z", ["a"]), ("a", ["b", "z"])]:
            with pytest.raises(UnknownAgentError, match="'z'"):
                transport.receive(receiver, 0, "latents", senders)
        assert transport.ledger.bytes_sent() == 0

    def test_a_message_that_cannot_be_encoded_is_the_sender_s_error(
        self, transport: Transport
    ) -> None:
        with pytest.raises(MessageError, match="complex64"):
            transport.send(
                [Message("x", 0, "a", "b", {"z": torch.zeros(1, dtype=torch.complex64)})]
            )
        assert transport.ledger.bytes_sent() == 0

    def test_ledger_counts_the_encoded_bytes(self, transport: Transport) -> None:
        everything = Message("everything", 1, "c", "a", every_tensor())
        sent = [message(), message(1), message(receiver="c", kind="other"), everything]
        self.send(transport, *sent)
        sizes = [(encode(m).header_bytes, encode(m).payload_bytes) for m in sent]
        payload = sum(t.numel() * t.element_size() for m in sent for t in m.tensors.values())
        assert [tuple(row) for row in transport.ledger.rows()] == [
            (m.round, m.sender, m.receiver, m.kind, *size)
            for m, size in zip(sent, sizes, strict=True)
        ]
        assert transport.ledger.bytes_sent() == sum(len(encode(m).data) for m in sent)
        assert transport.ledger.payload_bytes() == payload

    def test_sender_and_receivers_share_no_memory(self, transport: Transport) -> None:
        latents = torch.zeros(3, 2)
        sent = Message("latents", 0, "a", "b", {"z": latents})
        self.send(transport, sent, replace(sent, receiver="c"))
        latents.fill_(1.0)
        one = transport.receive("b", 0, "latents", ["a"])["a"].tensors["z"]
        assert torch.equal(one, torch.zeros(3, 2))
        one.fill_(2.0)
        other = transport.receive("c", 0, "latents", ["a"])["a"].tensors["z"]
        assert torch.equal(other, torch.zeros(3, 2))
        assert torch.equal(latents, torch.ones(3, 2))

    def test_never_pickles(self, transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
        pickling.forbid(monkeypatch.setattr)
        self.send(transport, Message("everything", 0, "a", "b", every_tensor(), {"x": 1}))
        assert transport.receive("b", 0, "everything", ["a"])

    def test_unread_messages_are_bounded(self, transport: Transport) -> None:
        total = self.capacity + 6
        for round in range(total):
            self.send(transport, message(round))
        assert transport.rejected == {"overflow": 6}
        assert transport.receive("b", 5, "latents", ["a"]) == {}
        for round in range(6, total):
            assert same_message(
                transport.receive("b", round, "latents", ["a"])["a"], message(round)
            )
        assert len(transport.ledger) == total

    def test_unread_messages_of_one_receiver_do_not_delay_others(
        self, transport: Transport
    ) -> None:
        for k in range(self.capacity + 16):
            self.send(transport, message(receiver="c", kind=f"{k}"))
        self.send(transport, message(sender="c"), message(sender="a"))
        assert list(transport.receive("b", 0, "latents", ["a", "c"])) == ["a", "c"]

    def test_delivers_a_megabyte(self, transport: Transport) -> None:
        sent = Message("weights", 0, "a", "b", {"w": tensor_of(torch.float32, 512, 512)})
        self.send(transport, sent)
        assert same_message(transport.receive("b", 0, "weights", ["a"])["a"], sent)

    def test_after_close_only_the_counts_can_be_read(self, transport: Transport) -> None:
        self.inject(transport, "b", b"nonsense")
        self.send(transport, message())
        transport.receive("b", 0, "latents", ["a"])
        transport.close()
        transport.close()
        with pytest.raises(TransportClosedError, match="closed; make a new one"):
            transport.send([message()])
        with pytest.raises(TransportClosedError, match="closed; make a new one"):
            transport.receive("b", 0, "latents", ["a"])
        assert len(transport.ledger) == 1
        assert transport.rejected == {"size": 1}
