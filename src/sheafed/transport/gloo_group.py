"""A torch.distributed process group that swaps bytes, which are never pickled."""

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
from sheafed.transport.cluster_timeouts import START_TIMEOUT

PORT_KEY = "sheafed"


class GlooGroup:
    """This process and the others of its group, on CPUs, connected by Gloo.

    Args:
        store: where the processes find each other.
        rank: of this process.
        size: the number of processes.
    """

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self.timeout = START_TIMEOUT
        """Seconds to wait for another rank; may be changed."""
        self.placement: dict[str, int] = {}
        """The rank of each agent, once it is known: errors name a rank with its agents."""
        try:
            dist.init_process_group(
                "gloo",
                store=store,
                rank=rank,
                world_size=size,
                timeout=timedelta(seconds=START_TIMEOUT),
            )
        except RuntimeError as problem:
            raise ClusterError(
                f"rank {rank} of {size} cannot join its group ({_first_line(problem)}); start all "
                f"ranks within {START_TIMEOUT:g} s, and on hosts with several network interfaces "
                "set GLOO_SOCKET_IFNAME to the one that connects them"
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
            store = (_store_by_torchrun if shared else _store)(address, port, rank)
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
        """Send bytes to some ranks and return what each of them sends to this one.

        The other ranks must call it too, with this rank among theirs. All sends are started
        before any wait, so no topology can deadlock.
        """
        contents = {peer: _tensor(data) for peer, data in outgoing.items()}
        sizes = {peer: torch.tensor([len(content)]) for peer, content in contents.items()}
        sent = []
        for peer in outgoing:
            with self._waiting_for(peer):
                sent += [(peer, dist.isend(part, peer)) for part in (sizes[peer], contents[peer])]
        incoming = {peer: torch.zeros(1, dtype=torch.int64) for peer in outgoing}
        self._receive(incoming)
        received = {peer: torch.empty(int(n), dtype=torch.uint8) for peer, n in incoming.items()}
        self._receive(received)
        for peer, work in sent:
            with self._waiting_for(peer):
                self._wait(work)
        return {peer: content.numpy().tobytes() for peer, content in received.items()}

    def close(self) -> None:
        """Leave the group; may be repeated."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def describe(self, rank: int) -> str:
        """Return a rank with its agents, for messages to users."""
        agents = sorted(name for name, own in self.placement.items() if own == rank)
        return f"rank {rank} (agents {', '.join(agents)})" if agents else f"rank {rank} (no agents)"

    def _receive(self, into: Mapping[int, Tensor]) -> None:
        started = []
        for peer, tensor in into.items():
            with self._waiting_for(peer):
                started.append((peer, dist.irecv(tensor, peer)))
        for peer, work in started:
            with self._waiting_for(peer):
                self._wait(work)

    def _wait(self, work: dist.Work | None) -> None:
        if work is not None:  # None is for processes outside of the group
            work.wait(timedelta(seconds=self.timeout))

    @contextmanager
    def _waiting_for(self, peer: int) -> Iterator[None]:
        try:
            yield
        except RuntimeError as problem:
            here, there = self.describe(self.rank), self.describe(peer)
            if "timed out" in str(problem).lower():
                raise LostRankError(
                    f"{here} has waited {self.timeout:g} s for {there}: it is frozen, cut off or "
                    "much slower; look at that process, or give a longer --timeout"
                ) from problem
            raise LostRankError(
                f"{here} has lost {there}: it was killed, or ended with an error of its own; "
                "continue from the last checkpoint with --resume"
            ) from problem


def _store(address: str, port: int, rank: int, timeout: float = START_TIMEOUT) -> TCPStore:
    """Return a store that rank 0 hosts at this port; 0 is any."""
    store = TCPStore(
        address,
        port,
        is_master=rank == 0,
        timeout=timedelta(seconds=timeout),
        wait_for_workers=False,
        multi_tenant=True,
    )
    store.set_timeout(timedelta(seconds=START_TIMEOUT))
    return store


def _store_by_torchrun(address: str, port: int, rank: int) -> TCPStore:
    """Return a new store, whose port is found in the one that torchrun hosts at this port.

    Torchrun's store outlives its ranks: after a restart it still holds entries of the dead ones,
    which would mislead the new ones. So it holds only the port of the store of the living.
    """
    permanent = _store(address, port, rank=-1)
    if rank == 0:
        own = _store(address, 0, rank)
        permanent.set(PORT_KEY, str(own.port))
        return own
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        try:
            return _store(address, int(permanent.get(PORT_KEY)), rank, timeout=1)
        except dist.DistError:  # the port of a dead rank 0; the new one is about to replace it
            if time.monotonic() > deadline:
                raise


def _tensor(data: bytes) -> Tensor:
    # A copy, because torch warns about read-only memory.
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _first_line(problem: Exception) -> str:
    return str(problem).partition("\n")[0]
