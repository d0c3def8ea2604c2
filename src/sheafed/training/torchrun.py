"""`sheafed run --processes N`: torchrun on this machine, with what it needs."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist

from sheafed.atomic_io import write_atomically
from sheafed.errors import ClusterError

CLUSTER = "cluster.json"


def in_cluster() -> bool:
    """Return whether torchrun has started this process."""
    return dist.is_torchelastic_launched()


def launch(
    processes: int, restarts: int, threads: int, arguments: Sequence[str], out: Path
) -> None:
    """Run `sheafed` with these arguments in some processes, all on this machine."""
    from torch.distributed import run as torchrun
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    loopback = {name for _, name in socket.if_nameindex()} & {"lo", "lo0"}
    if loopback:  # only processes of this machine connect
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback.pop())
    options = ["--standalone", f"--nproc-per-node={processes}", f"--max-restarts={restarts}"]
    try:
        # -P: without it Python puts the working directory, and what lies there, on the path.
        command = [sys.executable, "-P", "-u", "-m", "sheafed", *arguments]
        torchrun.main([*options, "--no-python", *command])
    except ChildFailedError as problem:
        rank, failure = problem.get_first_failure()
        placement = _read(out).get("placement", {})
        agents = sorted(name for name, where in placement.items() if where == rank)
        failed = f"rank {rank} (agents {', '.join(agents)})" if agents else f"rank {rank}"
        how = (
            f"was killed by {signal.Signals(-failure.exitcode).name}"
            if failure.exitcode < 0
            else f"ended with code {failure.exitcode}, see its message above"
        )
        raise ClusterError(
            f"{failed} {how}; continue with --resume, or restart by itself with --max-restarts"
        ) from problem
    except SignalException as problem:  # as by Ctrl-C; torchrun has ended the processes
        print(f"ended by {problem.sigval.name}; continue with --resume", file=sys.stderr)
        raise SystemExit(128 + problem.sigval) from problem


def was_begun_here(out: Path) -> bool:
    """Return whether torchrun has restarted this process, and its first attempt began the run."""
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    return attempt > 0 and _read(out).get("launch") == _launch()


def remember_cluster(out: Path, placement: Mapping[str, int]) -> None:
    """Write the rank of every agent, and the identity of this start of torchrun."""
    content = {"launch": _launch(), "placement": dict(placement)}
    write_atomically(out / CLUSTER, json.dumps(content, indent=2).encode())


def _read(out: Path) -> dict[str, Any]:
    path = out / CLUSTER
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return content


def _launch() -> str:
    """Return an identifier of this launch of torchrun, the parent of this process."""
    return f"{os.environ.get('TORCHELASTIC_RUN_ID')} {socket.gethostname()} {os.getppid()}"
