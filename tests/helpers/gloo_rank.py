"""Ranks 1 and up of a Gloo group, driven over sockets.

Each rank is forked after torch is loaded and has one of the sockets. It reads lines
`[command, arguments]` in JSON and answers each with `{"value", "error", "logs"}`. Bytes are base64,
messages are encoded by the codec. Pickle is forbidden.
"""

import base64
import json
import logging
import os
import socket
from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Any, TextIO

import torch
from torch.distributed import FileStore

from sheafed.errors import SheafedError
from sheafed.transport import GlooGroup, GlooTransport, Message, decode, encode
from tests.helpers import pickling
from tests.helpers.messages import same_message, tensor_of


def to_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def to_bytes(text: str) -> bytes:
    return base64.b64decode(text)


def topology(kind: str, size: int) -> list[tuple[str, str]]:
    names = [f"n{k}" for k in range(size)]
    if kind == "complete":
        return list(combinations(names, 2))
    line = list(pairwise(names))
    return line if kind == "line" else [*line, (names[-1], names[0])]


def exchange(
    group: GlooGroup, edges: list[tuple[str, str]], placement: dict[str, int], rounds: int
) -> dict[str, int]:
    """Send and check the messages of this rank's agents; return their number and bytes."""
    transport = GlooTransport(group, placement, edges)
    local = [name for name, rank in placement.items() if rank == group.rank]
    for round in range(rounds):
        plan = list(planned_messages(edges, round))
        transport.send(m for m in plan if m.sender in local)
        transport.barrier(round, "plan")
        for name in local:
            expected = {m.sender: m for m in plan if m.receiver == name}
            received = transport.receive(name, round, "plan", list(placement))
            assert received.keys() == expected.keys(), (round, name, received.keys())
            assert all(same_message(received[s], m) for s, m in expected.items())
    assert not transport.rejected
    transport.close()
    return {"messages": len(transport.ledger), "bytes": transport.ledger.bytes_sent()}


def planned_messages(edges: list[tuple[str, str]], round: int) -> Iterator[Message]:
    """Yield the messages of a round: a third are absent, some are larger than any buffer."""
    for number, (sender, receiver) in enumerate(e for pair in edges for e in (pair, pair[::-1])):
        if (round + number) % 3:
            size = 100_000 if (round + number) % 7 == 0 else 10
            tensors = {"x": tensor_of(torch.float32, size, seed=number)}
            yield Message("plan", round, sender, receiver, tensors)


class Rank:
    """The commands."""

    def __init__(self, group: GlooGroup) -> None:
        self.group = group
        self.transport = GlooTransport(group, {}, [])

    def new(self, placement: dict[str, int]) -> None:
        self.group.placement = placement
        self.transport = GlooTransport(self.group, placement, list(combinations(placement, 2)))

    def send(self, data: str) -> None:
        self.transport.send([decode(to_bytes(data))])

    def deliver(self, receiver: str, data: str) -> None:
        self.transport.deliver(receiver, to_bytes(data))

    def barrier(self, round: int, kind: str) -> None:
        self.transport.barrier(round, kind)

    def receive(self, receiver: str, round: int, kind: str, senders: list[str]) -> dict[str, str]:
        received = self.transport.receive(receiver, round, kind, senders)
        return {sender: to_text(encode(m).data) for sender, m in received.items()}

    def counts(self) -> dict[str, Any]:
        return {"rows": list(self.transport.ledger.rows()), "rejected": self.transport.rejected}

    def close(self) -> None:
        self.transport.close()

    def pid(self) -> int:
        return os.getpid()

    def exchange(
        self, kind: str, size: int, placement: dict[str, int], rounds: int
    ) -> dict[str, int]:
        return exchange(self.group, topology(kind, size), placement, rounds)


class LogLines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelno, record.getMessage()))


def serve(rank: Rank, lines: TextIO) -> None:
    logs = LogLines()
    logging.getLogger("sheafed.transport").addHandler(logs)
    for line in lines:
        command, arguments = json.loads(line)
        answer: dict[str, Any] = {"error": None, "value": None}
        try:
            answer["value"] = getattr(rank, command)(*arguments)
        except SheafedError as problem:
            answer["error"] = [type(problem).__name__, str(problem)]
        answer["logs"] = logs.lines
        print(json.dumps(answer), file=lines, flush=True)
        logs.lines.clear()
    rank.group.close()


def serve_ranks(store: str, sockets: list[socket.socket]) -> None:
    """Fork ranks 1 and up, each with its socket, and wait for their end."""
    pickling.forbid()
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    size = 1 + len(sockets)
    for number, mine in enumerate(sockets, start=1):
        if os.fork() == 0:
            for other in sockets:
                if other is not mine:
                    other.close()
            serve(Rank(GlooGroup(FileStore(store, size), number, size)), mine.makefile("rw"))
            os._exit(0)
    for mine in sockets:
        mine.close()
    for _ in sockets:
        os.wait()
