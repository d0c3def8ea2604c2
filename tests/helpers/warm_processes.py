"""Processes that are forked where the libraries are loaded, which takes seconds otherwise.

One server of forks serves all tests of a pytest process.
"""

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

import torch

PRELOADED = ["sheafed.cli", "sheafed.config.running", "sheafed.network.peer_agent", "zenoh"]
PRELOADED += ["torch._dynamo"]  # loaded by the first step of an optimiser
PRELOADED += ["tests.helpers.federations", "tests.helpers.warm_processes"]

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(PRELOADED)

Result = TypeVar("Result")


def start(target: Callable[..., object], *arguments: Any) -> BaseProcess:
    """Start a process that calls a function of a module, in the environment of this one."""
    process = CONTEXT.Process(target=_run, args=(dict(os.environ), target, arguments))
    process.start()
    return process


def call(target: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function in a process of its own; return what it returns."""
    here, there = CONTEXT.Pipe()
    with here:
        process = start(_answer, there, target, arguments)
        there.close()
        result: Result = here.recv()  # EOFError if it failed, with a traceback in its output
        process.join()
    return result


def _run(
    environment: dict[str, str], target: Callable[..., object], arguments: tuple[Any, ...]
) -> None:
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)
    target(*arguments)


def _answer(there: Connection, target: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    there.send(target(*arguments))
