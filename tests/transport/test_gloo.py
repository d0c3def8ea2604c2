"""The contract between four processes: this one is rank 0, three others are started."""

import json
import logging
import os
import signal
import socket
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, TextIO

import pytest
from torch.distributed import FileStore

from sheafed import errors
from sheafed.errors import ClusterError, InputError, LostRankError
from sheafed.transport import GlooGroup, GlooTransport, Ledger, Message, Transport, decode, encode
from tests.helpers import warm_processes
from tests.helpers.gloo_rank import (
    Rank,
    exchange,
    planned_messages,
    serve_ranks,
    to_bytes,
    to_text,
    topology,
)
from tests.helpers.messages import message
from tests.helpers.transport_contract import TransportContract

SIZE = 4


class Remote:
    """A rank in another process."""

    def __init__(self, lines: TextIO) -> None:
        self.lines = lines

    def begin(self, command: str, *arguments: Any) -> None:
        print(json.dumps([command, arguments]), file=self.lines, flush=True)

    def end(self) -> Any:
        answer = json.loads(self.lines.readline())
        for level, line in answer["logs"]:
            logging.getLogger("sheafed.transport").log(level, line)
        if answer["error"]:
            name, text = answer["error"]
            raise getattr(errors, name)(text)
        return answer["value"]

    def ask(self, command: str, *arguments: Any) -> Any:
        self.begin(command, *arguments)
        return self.end()


class Ranks:
    """All four."""

    def __init__(self, here: Rank, others: list[Remote]) -> None:
        self.here, self.others = here, others

    def barrier(self, round: int, kind: str) -> None:
        for other in self.others:
            other.begin("barrier", round, kind)
        try:
            self.here.barrier(round, kind)
        finally:
            for other in self.others:
                other.end()

    def new(self, placement: dict[str, int]) -> None:
        self.here.new(placement)
        for other in self.others:
            other.ask("new", placement)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    store = str(tmp_path_factory.mktemp("group") / "store")
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        pairs = [socket.socketpair() for _ in range(1, SIZE)]
        process = warm_processes.start(serve_ranks, store, [there for _, there in pairs])
        stack.callback(process.join)
        others = []
        for here, there in pairs:
            there.close()
            stack.enter_context(here)
            others.append(Remote(stack.enter_context(here.makefile("rw"))))
        group = GlooGroup(FileStore(store, SIZE), 0, SIZE)
        stack.callback(group.close)
        yield Ranks(Rank(group), others)


class AllRanks:
    """The transports of all ranks as one."""

    def __init__(self, ranks: Ranks, placement: dict[str, int]) -> None:
        self.ranks, self.placement = ranks, placement
        ranks.new(placement)

    def send(self, messages: Iterable[Message]) -> None:
        for each in messages:
            rank = self.placement.get(each.sender, 0)
            if rank:
                self.ranks.others[rank - 1].ask("send", to_text(encode(each).data))
            else:
                self.ranks.here.transport.send([each])

    def barrier(self, round: int, kind: str) -> None:
        self.ranks.barrier(round, kind)

    def deliver(self, receiver: str, data: bytes) -> None:
        rank = self.placement[receiver]
        if rank:
            self.ranks.others[rank - 1].ask("deliver", receiver, to_text(data))
        else:
            self.ranks.here.transport.deliver(receiver, data)

    def receive(
        self, receiver: str, round: int, kind: str, senders: Collection[str]
    ) -> dict[str, Message]:
        rank = self.placement.get(receiver, 0)
        if not rank:
            return self.ranks.here.transport.receive(receiver, round, kind, senders)
        asked = self.ranks.others[rank - 1].ask("receive", receiver, round, kind, sorted(senders))
        return {sender: decode(to_bytes(data)) for sender, data in asked.items()}

    def _counts(self) -> list[dict[str, Any]]:
        return [self.ranks.here.counts(), *(other.ask("counts") for other in self.ranks.others)]

    @property
    def ledger(self) -> Ledger:
        whole = Ledger()
        for counts in self._counts():
            for row in counts["rows"]:
                whole.record(*row)
        return whole

    @property
    def rejected(self) -> Counter[str]:
        return sum((Counter(counts["rejected"]) for counts in self._counts()), Counter())

    def close(self) -> None:
        self.ranks.here.close()
        for other in self.ranks.others:
            other.ask("close")


class TestGlooTransport(TransportContract):
    """One agent on each of three ranks; the fourth has none."""

    placement = (0, 1, 2)

    @pytest.fixture(autouse=True)
    def _ranks(self, ranks: Ranks) -> None:
        self.ranks = ranks

    def make(self, names: Collection[str]) -> Transport:
        return AllRanks(self.ranks, dict(zip(names, self.placement, strict=True)))

    def inject(self, transport: Transport, receiver: str, data: bytes) -> None:
        assert isinstance(transport, AllRanks)
        transport.deliver(receiver, data)


class TestTwoAgentsOnOneRank(TestGlooTransport):
    placement = (3, 0, 3)


@pytest.mark.parametrize(("kind", "agents"), [("ring", 3), ("line", 4), ("complete", 9)])
def test_no_topology_deadlocks_with_missing_and_large_messages(
    ranks: Ranks, kind: str, agents: int
) -> None:
    """On four ranks: one without agents, one agent each, several on each."""
    edges, rounds = topology(kind, agents), 7
    placement = {f"n{k}": k % SIZE for k in range(agents)}
    for other in ranks.others:
        other.begin("exchange", kind, agents, placement, rounds)
    sent = [exchange(ranks.here.group, edges, placement, rounds), *(o.end() for o in ranks.others)]
    planned = [m for round in range(rounds) for m in planned_messages(edges, round)]
    assert sum(part["messages"] for part in sent) == len(planned)
    assert sum(part["bytes"] for part in sent) == sum(len(encode(m).data) for m in planned)


def test_agents_send_and_receive_on_their_own_rank(ranks: Ranks) -> None:
    ranks.new({"a": 0, "b": 1})
    with pytest.raises(InputError, match="'b' is on rank 1, this is rank 0"):
        ranks.here.transport.send([message(sender="b", receiver="a")])
    with pytest.raises(InputError, match="'b' is on rank 1, this is rank 0"):
        ranks.here.transport.receive("b", 0, "latents", ["a"])


def test_messages_cross_ranks_between_neighbours_only(ranks: Ranks) -> None:
    transport = GlooTransport(ranks.here.group, {"a": 0, "b": 1, "c": 2}, [("a", "c"), ("b", "c")])
    with pytest.raises(InputError, match="no neighbour on rank 1, the rank of 'b'"):
        transport.send([message()])


def test_ranks_in_different_rounds_are_named(ranks: Ranks) -> None:
    ranks.new({"a": 0, "b": 1})
    ranks.others[0].begin("barrier", 3, "round")
    with pytest.raises(ClusterError, match=r"rank 1 \(agents b\) is in round 3 \('round'\)"):
        ranks.here.barrier(4, "alignment")
    with pytest.raises(ClusterError, match="this rank in round 3"):
        ranks.others[0].end()


def test_a_lost_rank_is_named_with_its_agents(ranks: Ranks) -> None:
    """Must be the last test: it kills a rank of the group."""
    ranks.new({"a": 0, "b": 3})
    os.kill(ranks.others[2].ask("pid"), signal.SIGKILL)
    with pytest.raises(LostRankError, match=r"rank 0 \(agents a\) has lost rank 3 \(agents b\)"):
        ranks.here.barrier(0, "round")
