"""Processes to measure in: each new, but with the libraries loaded, which takes five seconds."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_all_start_methods, get_context

import torch

PRELOADED = ["sheafed.bench", "sklearn.datasets", "torch._dynamo"]


def fresh_processes(count: int | None = None) -> ProcessPoolExecutor:
    """Return workers with one thread each, as many as there are cores by default.

    Every task has a process of its own.
    """
    context = get_context("forkserver" if "forkserver" in get_all_start_methods() else "spawn")
    context.set_forkserver_preload(PRELOADED)
    return ProcessPoolExecutor(
        count,
        context,
        initializer=torch.set_num_threads,
        initargs=(1,),
        max_tasks_per_child=1,
    )
