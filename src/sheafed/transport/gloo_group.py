"""The processes of a torch.distributed group as places that swap bytes, never pickled."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from sheafed.errors import ClusterError, LostRankError

START_UP = 900.0
"""Seconds to wait for others at first: they may still be started, or load their data."""

BOARD = "sheafed"


class GlooGroup:
    """This process among those of its group; on CPUs, by gloo.

    Args:
        store: where the processes find each other.
        rank: of this process.
        size: how many there are.
    """

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.timeout = START_UP
        """Seconds to wait for another rank. May be changed."""
        self.placement: dict[str, int] = {}
        """The rank of each agent, once that is known: a lost rank is named with its agents."""
        try:
            dist.init_process_group(
                "gloo",
                store=store,
                rank=rank,
                world_size=size,
                timeout=timedelta(seconds=START_UP),
            )
        except RuntimeError as problem:
            raise ClusterError(
                f"rank {rank} of {size} cannot join its group ({_first_line(problem)}); start all "
                f"within {START_UP:g} s, and on hosts with several network interfaces name the one "
                "between them in GLOO_SOCKET_IFNAME"
            ) from problem

    @classmethod
    def join(cls) -> GlooGroup:
        """Join the group for which torchrun has started this process."""
        try:
            rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
            address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        except (KeyError, ValueError) as problem:
            raise ClusterError(
                f"this process is in no group ({problem}); start it by "
                "`torchrun --nproc-per-node N -m sheafed run ...` or `sheafed run --processes N`"
            ) from problem
        shared = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
        try:
            store = (_meet if shared else _store)(address, port, rank)
        except RuntimeError as problem:
            raise ClusterError(
                f"rank {rank} of {size} cannot reach the store at {address}:{port} "
                f"({_first_line(problem)}); check that address and the firewall"
            ) from problem
        return cls(store, rank, size)

    @property
    def others(self) -> list[int]:
        """All ranks but this one."""
        return [rank for rank in range(self.size) if rank != self.rank]

    def swap(self, outgoing: Mapping[int, bytes]) -> dict[int, bytes]:
        """Send bytes to some ranks and return what those send, who must name this one as theirs.

        Everything is on its way before anything is awaited, so no topology can deadlock.
        """
        contents = {peer: _tensor(data) for peer, data in outgoing.items()}
        sizes = {peer: torch.tensor([len(content)]) for peer, content in contents.items()}
        sent = []
        for peer in outgoing:
            with self._awaiting(peer):
                sent += [(peer, dist.isend(part, peer)) for part in (sizes[peer], contents[peer])]
        announced = {peer: torch.zeros(1, dtype=torch.int64) for peer in outgoing}
        self._receive(announced)
        received = {peer: torch.empty(int(n), dtype=torch.uint8) for peer, n in announced.items()}
        self._receive(received)
        for peer, work in sent:
            with self._awaiting(peer):
                self._wait(work)
        return {peer: content.numpy().tobytes() for peer, content in received.items()}

    def close(self) -> None:
        """Leave the group; again is fine."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def describe(self, rank: int) -> str:
        """Return a rank and the agents that live there, for people."""
        agents = sorted(name for name, home in self.placement.items() if home == rank)
        return f"rank {rank} (agents {', '.join(agents)})" if agents else f"rank {rank} (no agents)"

    def _receive(self, into: Mapping[int, Tensor]) -> None:
        coming = []
        for peer, tensor in into.items():
            with self._awaiting(peer):
                coming.append((peer, dist.irecv(tensor, peer)))
        for peer, work in coming:
            with self._awaiting(peer):
                self._wait(work)

    def _wait(self, work: dist.Work | None) -> None:
        if work is not None:  # None is for processes outside of the group
            work.wait(timedelta(seconds=self.timeout))

    @contextmanager
    def _awaiting(self, peer: int) -> Iterator[None]:
        try:
            yield
        except RuntimeError as problem:
            who, me = self.describe(peer), self.describe(self.rank)
            if "timed out" in str(problem).lower():
                raise LostRankError(
                    f"{me} has waited {self.timeout:g} s for {who}: it is frozen, cut off or much "
                    "slower; look at that process, or give a longer --timeout"
                ) from problem
            raise LostRankError(
                f"{me} has lost {who}: it was killed, or ended with a message of its own; go on "
                "from the last checkpoint with --resume"
            ) from problem


def _store(address: str, port: int, rank: int, patience: float = START_UP) -> TCPStore:
    """Return a store that rank 0 keeps at this port; 0 is any."""
    store = TCPStore(
        address,
        port,
        is_master=rank == 0,
        timeout=timedelta(seconds=patience),
        wait_for_workers=False,
        multi_tenant=True,
    )
    store.set_timeout(timedelta(seconds=START_UP))
    return store


def _meet(address: str, port: int, rank: int) -> TCPStore:
    """Return a new store, found by way of the one that torchrun keeps at this port.

    Torchrun's outlives its ranks. After a restart it still holds what the dead ones have written,
    which would mislead the living, so it only says where to find the store of those.
    """
    board = _store(address, port, rank=-1)
    if rank == 0:
        own = _store(address, 0, rank)
        board.set(BOARD, str(own.port))
        return own
    deadline = time.monotonic() + START_UP
    while True:
        try:
            return _store(address, int(board.get(BOARD)), rank, patience=1)
        except dist.DistError:  # it was that of a dead rank 0, and the new one is about to write
            if time.monotonic() > deadline:
                raise


def _tensor(data: bytes) -> Tensor:
    return torch.frombuffer(
        bytearray(data), dtype=torch.uint8
    )  # torch warns about read-only memory


def _first_line(problem: Exception) -> str:
    return str(problem).partition("\n")[0]
