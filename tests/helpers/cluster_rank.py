"""Groups of real processes, forked where torch is loaded and warm.

A job is `{"case", "federation", "out", "size", "options", "timeout", "fate", "hosts"}`: ranks train
a federation of `federations.py`. A fate `[rank, step, signal]` is what a rank sends itself in a
round. Hosts `[[network namespace, address, interface], ...]` are where ranks live, if not all on
this machine. The answer is what became of the ranks, `[[exit code, message], ...]`; of a frozen one
it is null.
"""

import ctypes
import os
import signal
import tempfile
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from torch.distributed import FileStore

from sheafed.agents.agent import Agent
from sheafed.training import Cluster, train
from sheafed.transport import GlooGroup
from tests.helpers.federations import FEDERATIONS, METHODS, SLOW, pilots, start

Job = dict[str, Any]


def meet_fate(agent: Agent, step: int, number: int) -> None:
    take = agent.next_batch

    def next_batch() -> Any:
        if agent.steps == step:
            os.kill(os.getpid(), number)
        return take()

    agent.next_batch = next_batch


def move(hosts: list[list[str]], rank: int) -> None:
    """Move this process to its host, and tell it of the group as torchrun would."""
    namespace, _, interface = hosts[rank]
    libc = ctypes.CDLL(None, use_errno=True)
    with open(f"/var/run/netns/{namespace}") as file:
        assert libc.setns(file.fileno(), 0) == 0, os.strerror(ctypes.get_errno())
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(len(hosts)), "MASTER_ADDR": hosts[0][1]}
    os.environ |= {"MASTER_PORT": "29400", "GLOO_SOCKET_IFNAME": interface}


def run_rank(job: Job, rank: int, store: Path) -> None:
    team, edges = FEDERATIONS[job["federation"]]
    if job["hosts"]:
        move(job["hosts"], rank)
        ranks = GlooGroup.join()
    else:
        ranks = GlooGroup(FileStore(str(store), job["size"]), rank, job["size"])
    with Cluster(job["timeout"], ranks) as cluster:
        names = cluster.place({agent.name: 1.0 for agent in team()} if rank == 0 else None)
        here = [agent for agent in team() if agent.name in names]
        if job["fate"] and job["fate"][0] == rank:
            meet_fate(here[0], *job["fate"][1:])
        options = {"epochs": 4, "checkpoint_every": 3, "seed": 7, "oracle": False}
        options |= {"rounds_per_epoch": "smallest"}
        options |= job["options"]
        method = (METHODS | SLOW)[job["case"]]()
        train(here, edges, method, pilots(), out=job["out"], group=cluster, **options)


def start_rank(job: Job, rank: int, place: Path) -> int:
    child = os.fork()
    if child:
        return child
    try:
        run_rank(job, rank, place / "store")
    except Exception as problem:  # noqa: BLE001, it is reported
        (place / str(rank)).write_text(f"{type(problem).__name__}: {problem}")
        os._exit(1)
    os._exit(0)


def run_job(job: Job, place: Path) -> list[list[Any] | None]:
    children = {start_rank(job, rank, place): rank for rank in range(job["size"])}
    frozen = {job["fate"][0]} if job["fate"] and job["fate"][2] == signal.SIGSTOP else set()
    endpoints: list[list[Any] | None] = [None] * job["size"]
    while set(children.values()) != frozen:
        child, status = os.wait()
        rank = children.pop(child)
        message = (place / str(rank)).read_text() if (place / str(rank)).exists() else ""
        endpoints[rank] = [os.waitstatus_to_exitcode(status), message]
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return endpoints


def serve(jobs: Connection) -> None:
    """Run jobs and answer each, until no more can come."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    start("distillation", epochs=1)  # torch loads much of itself when it is first used
    with suppress(EOFError):
        while True:
            job = jobs.recv()
            with tempfile.TemporaryDirectory() as place:
                jobs.send(run_job(job, Path(place)))
