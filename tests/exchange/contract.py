"""What every exchange must do: inherit `ExchangeContract`, say how one is made, get the suite."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import ClassVar

import pytest
import torch

import pickling
from exchange.samples import every_tensor, message, same_message, tensor_of
from sheafed.domain.messages import Message, Scalar
from sheafed.errors import ExchangeClosedError, InputError, MessageError, UnknownAgentError
from sheafed.exchange import Exchange, encode

NAMES = ("a", "b", "c")


class ExchangeContract(ABC):
    capacity: ClassVar[int] = 64
    """How many messages of a sender a receiver keeps unread."""

    @abstractmethod
    def make(self, names: Collection[str]) -> Exchange:
        """Return a new exchange between agents that are all here."""

    @abstractmethod
    def inject(self, exchange: Exchange, receiver: str, data: bytes) -> None:
        """Let bytes arrive at `receiver` as if a stranger had sent them."""

    def settle(self, exchange: Exchange) -> None:
        """Wait until what was sent has arrived."""
        exchange.settle(0, "contract")

    @pytest.fixture
    def exchange(self) -> Iterator[Exchange]:
        exchange = self.make(NAMES)
        yield exchange
        exchange.close()

    def send(self, exchange: Exchange, *messages: Message) -> None:
        exchange.send(messages)
        self.settle(exchange)

    def test_delivers_every_type_and_shape_bit_by_bit(self, exchange: Exchange) -> None:
        fields: dict[str, Scalar] = {
            "text": "π\n",
            "int": -(2**63),
            "float": 0.1,
            "yes": True,
            "none": None,
        }
        sent = Message("everything", 3, "a", "b", every_tensor(), fields)
        self.send(exchange, sent)
        received = exchange.receive("b", 3, "everything", ["a"])
        assert list(received) == ["a"]
        assert same_message(received["a"], sent)
        assert [type(v) for v in received["a"].fields.values()] == [
            type(fields[name]) for name in received["a"].fields
        ]
        assert not exchange.rejected

    def test_delivers_a_message_without_tensors(self, exchange: Exchange) -> None:
        self.send(exchange, Message("hello", 0, "a", "b"))
        assert exchange.receive("b", 0, "hello", ["a"])["a"].tensors == {}

    def test_delivers_a_non_contiguous_tensor_that_requires_grad(self, exchange: Exchange) -> None:
        latents = torch.arange(6.0).view(2, 3).requires_grad_().mT
        self.send(exchange, Message("latents", 0, "a", "b", {"z": latents}))
        received = exchange.receive("b", 0, "latents", ["a"])["a"].tensors["z"]
        assert torch.equal(received, latents)
        assert not received.requires_grad

    def test_sorts_senders_by_name_whatever_the_order_of_arrival(self, exchange: Exchange) -> None:
        self.send(exchange, message(sender="c"), message(sender="a"))
        assert list(exchange.receive("b", 0, "latents", {"c", "a"})) == ["a", "c"]

    def test_keeps_receivers_kinds_and_rounds_apart(self, exchange: Exchange) -> None:
        sent = [
            message(round, receiver=receiver, kind=kind, seed=seed)
            for seed, (round, receiver, kind) in enumerate(
                (round, receiver, kind) for round in (1, 0) for receiver in "bc" for kind in "xy"
            )
        ]
        self.send(exchange, *sent)
        for expected in sorted(sent, key=lambda m: m.round):
            received = exchange.receive(expected.receiver, expected.round, expected.kind, ["a"])
            assert same_message(received["a"], expected)

    def test_what_has_not_come_is_absent(self, exchange: Exchange) -> None:
        self.send(exchange, message(sender="a"))
        assert list(exchange.receive("b", 0, "latents", ["a", "c"])) == ["a"]
        assert exchange.receive("b", 1, "latents", ["a", "c"]) == {}
        assert not exchange.rejected

    def test_a_message_is_received_once(self, exchange: Exchange) -> None:
        self.send(exchange, message())
        assert exchange.receive("b", 0, "latents", ["a"])
        assert exchange.receive("b", 0, "latents", ["a"]) == {}

    def test_senders_that_are_not_asked_for_wait(self, exchange: Exchange) -> None:
        self.send(exchange, message(sender="a"), message(sender="c"))
        assert list(exchange.receive("b", 0, "latents", ["c"])) == ["c"]
        assert list(exchange.receive("b", 0, "latents", ["a"])) == ["a"]

    def test_of_duplicates_the_first_counts(self, exchange: Exchange) -> None:
        first, second = message(seed=1), message(seed=2)
        self.send(exchange, first)
        self.send(exchange, second)
        assert same_message(exchange.receive("b", 0, "latents", ["a"])["a"], first)
        self.send(exchange, first)
        assert exchange.receive("b", 0, "latents", ["a"]) == {}
        assert exchange.rejected == {"duplicate": 2}

    def test_messages_of_earlier_rounds_are_late(self, exchange: Exchange) -> None:
        self.send(exchange, message(round=0), message(round=2))
        assert list(exchange.receive("b", 2, "latents", ["a"])) == ["a"]
        assert exchange.rejected == {"late": 1}
        self.send(exchange, message(round=1))
        assert exchange.receive("b", 2, "latents", ["a"]) == {}
        assert exchange.rejected == {"late": 2}

    def test_one_receiver_may_be_rounds_ahead_of_another(self, exchange: Exchange) -> None:
        exchange.receive("b", 5, "latents", ["a"])
        self.send(exchange, message(round=1, receiver="c"))
        assert list(exchange.receive("c", 1, "latents", ["a"])) == ["a"]
        assert not exchange.rejected

    def test_rounds_do_not_go_back(self, exchange: Exchange) -> None:
        exchange.receive("b", 5, "latents", ["a"])
        with pytest.raises(InputError, match=r"b has received in round 5 .* round 4 now"):
            exchange.receive("b", 4, "latents", ["a"])

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (b"", "size"),
            (b"\x80\x05K\x01. a pickle", "magic"),
            (encode(message()).data[:-1], "size"),
            (encode(message(receiver="c")).data, "receiver"),
            (encode(message(sender="stranger")).data, "sender"),
        ],
    )
    def test_bad_messages_are_counted_logged_and_dropped(
        self, exchange: Exchange, caplog: pytest.LogCaptureFixture, data: bytes, reason: str
    ) -> None:
        good = message()
        self.inject(exchange, "b", data)
        self.send(exchange, good)
        received = exchange.receive("b", 0, "latents", ["a", "c"])
        assert same_message(received.pop("a"), good)
        assert received == {}
        assert exchange.rejected == {reason: 1}
        (record,) = [r for r in caplog.records if r.name == "sheafed.exchange"]
        assert record.levelname == "WARNING"
        assert f"b dropped a message ({reason})" in record.getMessage()

    def test_unknown_agents_are_errors(self, exchange: Exchange) -> None:
        for unknown in (message(receiver="z"), message(sender="z")):
            with pytest.raises(UnknownAgentError, match=r"'z' is not in .* \['a', 'b', 'c'\]"):
                exchange.send([unknown])
        for receiver, senders in [("z", ["a"]), ("a", ["b", "z"])]:
            with pytest.raises(UnknownAgentError, match="'z'"):
                exchange.receive(receiver, 0, "latents", senders)
        assert exchange.ledger.bytes_sent() == 0

    def test_a_message_that_cannot_be_encoded_is_the_sender_s_error(
        self, exchange: Exchange
    ) -> None:
        with pytest.raises(MessageError, match="complex64"):
            exchange.send([Message("x", 0, "a", "b", {"z": torch.zeros(1, dtype=torch.complex64)})])
        assert exchange.ledger.bytes_sent() == 0

    def test_ledger_counts_the_encoded_bytes(self, exchange: Exchange) -> None:
        everything = Message("everything", 1, "c", "a", every_tensor())
        sent = [message(), message(1), message(receiver="c", kind="other"), everything]
        self.send(exchange, *sent)
        sizes = [(encode(m).header_bytes, encode(m).payload_bytes) for m in sent]
        payload = sum(t.numel() * t.element_size() for m in sent for t in m.tensors.values())
        assert [tuple(row) for row in exchange.ledger.rows()] == [
            (m.round, m.sender, m.receiver, m.kind, *size)
            for m, size in zip(sent, sizes, strict=True)
        ]
        assert exchange.ledger.bytes_sent() == sum(len(encode(m).data) for m in sent)
        assert exchange.ledger.payload_bytes() == payload

    def test_neither_end_can_alter_the_tensors_of_the_other(self, exchange: Exchange) -> None:
        latents = torch.zeros(3, 2)
        sent = Message("latents", 0, "a", "b", {"z": latents})
        self.send(exchange, sent, replace(sent, receiver="c"))
        latents.fill_(1.0)
        one = exchange.receive("b", 0, "latents", ["a"])["a"].tensors["z"]
        assert torch.equal(one, torch.zeros(3, 2))
        one.fill_(2.0)
        other = exchange.receive("c", 0, "latents", ["a"])["a"].tensors["z"]
        assert torch.equal(other, torch.zeros(3, 2))
        assert torch.equal(latents, torch.ones(3, 2))

    def test_never_pickles(self, exchange: Exchange, monkeypatch: pytest.MonkeyPatch) -> None:
        pickling.forbid(monkeypatch.setattr)
        self.send(exchange, Message("everything", 0, "a", "b", every_tensor(), {"x": 1}))
        assert exchange.receive("b", 0, "everything", ["a"])

    def test_a_receiver_that_does_not_read_is_not_flooded(self, exchange: Exchange) -> None:
        total = self.capacity + 6
        for round in range(total):
            self.send(exchange, message(round))
        assert exchange.rejected == {"overflow": 6}
        assert exchange.receive("b", 5, "latents", ["a"]) == {}
        for round in range(6, total):
            assert same_message(exchange.receive("b", round, "latents", ["a"])["a"], message(round))
        assert len(exchange.ledger) == total

    def test_what_others_do_not_read_holds_nobody_up(self, exchange: Exchange) -> None:
        for k in range(self.capacity + 16):
            self.send(exchange, message(receiver="c", kind=f"{k}"))
        self.send(exchange, message(sender="c"), message(sender="a"))
        assert list(exchange.receive("b", 0, "latents", ["a", "c"])) == ["a", "c"]

    def test_delivers_a_megabyte(self, exchange: Exchange) -> None:
        sent = Message("weights", 0, "a", "b", {"w": tensor_of(torch.float32, 512, 512)})
        self.send(exchange, sent)
        assert same_message(exchange.receive("b", 0, "weights", ["a"])["a"], sent)

    def test_after_closing_only_the_counts_can_be_read(self, exchange: Exchange) -> None:
        self.inject(exchange, "b", b"nonsense")
        self.send(exchange, message())
        exchange.receive("b", 0, "latents", ["a"])
        exchange.close()
        exchange.close()
        with pytest.raises(ExchangeClosedError, match="closed; make a new one"):
            exchange.send([message()])
        with pytest.raises(ExchangeClosedError, match="closed; make a new one"):
            exchange.receive("b", 0, "latents", ["a"])
        assert len(exchange.ledger) == 1
        assert exchange.rejected == {"size": 1}
