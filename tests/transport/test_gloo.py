"""The contract between real processes: this one is rank 0, three others are started."""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

import pytest
from torch.distributed import FileStore

from sheafed import errors
from sheafed.errors import ClusterError, InputError, LostRankError
from sheafed.transport import GlooGroup, Ledger, Transport, decode, encode
from sheafed.transport.message import Message
from tests.helpers.gloo_rank import Rank, said, talk, to_bytes, to_text, topology
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


class ProcessGroup:
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
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessGroup]:
    store = str(tmp_path_factory.mktemp("group") / "store")
    root = str(Path(__file__).parents[2])
    environment = {
        **os.environ,
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")])),
    }
    with ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        pairs = [socket.socketpair() for _ in range(1, SIZE)]
        theirs = [there.fileno() for _, there in pairs]
        command = [sys.executable, "-m", "tests.helpers.gloo_rank", store, *map(str, theirs)]
        stack.enter_context(subprocess.Popen(command, pass_fds=theirs, env=environment))
        others = []
        for here, there in pairs:
            there.close()
            stack.enter_context(here)
            others.append(Remote(stack.enter_context(here.makefile("rw"))))
        ranks = GlooGroup(FileStore(store, SIZE), 0, SIZE)
        stack.callback(ranks.close)
        yield ProcessGroup(Rank(ranks), others)


class Everywhere:
    """An exchange as one would see it who could be on all ranks at once."""

    def __init__(self, group: ProcessGroup, placement: dict[str, int]) -> None:
        self.group, self.placement = group, placement
        group.new(placement)

    def send(self, messages: Iterable[Message]) -> None:
        for each in messages:
            home = self.placement.get(each.sender, 0)
            if home:
                self.group.others[home - 1].ask("send", to_text(encode(each).data))
            else:
                self.group.here.transport.send([each])

    def barrier(self, round: int, kind: str) -> None:
        self.group.barrier(round, kind)

    def deliver(self, receiver: str, data: bytes) -> None:
        home = self.placement[receiver]
        if home:
            self.group.others[home - 1].ask("deliver", receiver, to_text(data))
        else:
            self.group.here.transport.deliver(receiver, data)

    def receive(
        self, receiver: str, round: int, kind: str, senders: Collection[str]
    ) -> dict[str, Message]:
        home = self.placement.get(receiver, 0)
        if not home:
            return self.group.here.transport.receive(receiver, round, kind, senders)
        asked = self.group.others[home - 1].ask("receive", receiver, round, kind, sorted(senders))
        return {sender: decode(to_bytes(data)) for sender, data in asked.items()}

    def _counts(self) -> list[dict[str, Any]]:
        return [self.group.here.counts(), *(other.ask("counts") for other in self.group.others)]

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
        self.group.here.close()
        for other in self.group.others:
            other.ask("close")


class TestDistributedExchange(TransportContract):
    """One agent on each of three ranks; the fourth has none."""

    placement = (0, 1, 2)

    @pytest.fixture(autouse=True)
    def _group(self, group: ProcessGroup) -> None:
        self.group = group

    def make(self, names: Collection[str]) -> Transport:
        return Everywhere(self.group, dict(zip(names, self.placement, strict=True)))

    def inject(self, transport: Transport, receiver: str, data: bytes) -> None:
        assert isinstance(transport, Everywhere)
        transport.deliver(receiver, data)


class TestNeighboursOnOneRank(TestDistributedExchange):
    placement = (0, 1, 1)


class TestReceiversHere(TestDistributedExchange):
    placement = (3, 0, 3)


@pytest.mark.parametrize("kind", ["ring", "line", "complete"])
@pytest.mark.parametrize("agents", [3, 4, 9])
def test_no_topology_deadlocks_and_silence_is_no_obstacle(
    group: ProcessGroup, kind: str, agents: int
) -> None:
    edges, rounds = topology(kind, agents), 7
    placement = {f"n{k}": k % SIZE for k in range(agents)}
    for other in group.others:
        other.begin("talk", kind, agents, placement, rounds)
    sent = [talk(group.here.ranks, edges, placement, rounds), *(o.end() for o in group.others)]
    everything = [m for round in range(rounds) for m in said(edges, round)]
    assert sum(part["messages"] for part in sent) == len(everything)
    assert sum(part["bytes"] for part in sent) == sum(len(encode(m).data) for m in everything)


def test_agents_send_and_receive_at_home(group: ProcessGroup) -> None:
    group.new({"a": 0, "b": 1})
    with pytest.raises(InputError, match="'b' lives on rank 1, this is rank 0"):
        group.here.transport.send([message(sender="b", receiver="a")])
    with pytest.raises(InputError, match="'b' lives on rank 1, this is rank 0"):
        group.here.transport.receive("b", 0, "latents", ["a"])


def test_only_neighbours_are_sent_to_on_other_ranks(group: ProcessGroup) -> None:
    transport = type(group.here.transport)(
        group.here.ranks, {"a": 0, "b": 1, "c": 2}, [("a", "c"), ("b", "c")]
    )
    with pytest.raises(InputError, match="no neighbour on rank 1, where 'b' lives"):
        transport.send([message()])


def test_ranks_in_different_phases_are_told(group: ProcessGroup) -> None:
    group.new({"a": 0, "b": 1})
    group.others[0].begin("barrier", 3, "round")
    with pytest.raises(ClusterError, match=r"rank 1 \(agents b\) is in round 3 \('round'\)"):
        group.here.barrier(4, "alignment")
    with pytest.raises(ClusterError, match="this rank in round 3"):
        group.others[0].end()


def test_a_lost_rank_is_named_with_its_agents(group: ProcessGroup) -> None:
    """The last test: the group is not whole afterwards."""
    group.new({"a": 0, "b": 3})
    os.kill(group.others[2].ask("pid"), signal.SIGKILL)
    with pytest.raises(LostRankError, match=r"rank 0 \(agents a\) has lost rank 3 \(agents b\)"):
        group.here.barrier(0, "round")
