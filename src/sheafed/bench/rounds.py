"""The overhead of a round over the necessary passes through encoders and heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from sheafed.agents.agent import Agent
from sheafed.agents.samples import ByteSamples
from sheafed.bench.measurement import Measurement, interleaved, ratios
from sheafed.bench.networks import BATCH, BenchNetwork, zoo
from sheafed.methods import Method, NonCooperative, SheafFRL


def overhead(repeats: int) -> list[Measurement]:
    """Compare rounds with bare loops over the same models, memory layout and batches."""
    found = []
    reduced = SheafFRL(exchange_every=8, quantisation="int8")
    cases: tuple[tuple[str, Method, int, float], ...] = (
        ("Sheaf-FRL, every 8th round in int8,", reduced, reduced.exchange_every, 1.10),
        ("Sheaf-FRL, every round in full,", SheafFRL(), 1, 1.10),
        ("non-cooperative training", NonCooperative(), 1, 1.05),
    )
    for name, method, period, bound in cases:
        network = zoo(method)
        bare = bare_loop(network, pilots=isinstance(method, SheafFRL))
        tasks: dict[str, Callable[[], None]] = {
            "exchange": partial(network.step, period),
            "bare": bare,
        }
        if period > 1:
            tasks["without exchange"] = network.step
        seconds = interleaved(tasks, repeats)
        turns = ratios(seconds, "exchange", "bare")
        if period > 1:
            others = ratios(seconds, "without exchange", "bare")
            turns = [(a + (period - 1) * b) / period for a, b in zip(turns, others, strict=True)]
        what = f"a round of {name} on 15 agents over the bare loop"
        found.append(Measurement.of_turns(1, what, bound, turns, raw=seconds))
    return found


def layout(repeats: int) -> list[Measurement]:
    """Compare the bare loop with one that has PyTorch's default memory layout and data loading."""
    seconds = interleaved(
        {"plain": plain_loop(zoo(NonCooperative())), "bare": bare_loop(zoo(NonCooperative()))},
        repeats,
    )
    what = "the NCHW loop with a DataLoader over the bare loop"
    turns = ratios(seconds, "plain", "bare")
    return [Measurement.of_turns(2, what, 1.3, turns, at_most=False, raw=seconds)]


def bare_loop(network: BenchNetwork, *, pilots: bool = False) -> Callable[[], None]:
    """Return one round of forward, backward and optimiser step, and nothing else.

    With `pilots`, every agent also encodes 64 pilots in evaluation mode and differentiates the sum
    of squares of their latents, as the gluing penalty requires.
    """
    agents = [node.agent for node in network.nodes.values()]
    shared = next(iter(network.nodes.values())).context.pilots.inputs
    if not isinstance(shared, Tensor):
        raise TypeError("the networks measured here share their pilots")
    for agent in agents:
        agent.encoder.train()

    def step() -> None:
        for agent in agents:
            agent.optimizer.zero_grad(set_to_none=True)
            if pilots:
                agent.encoder.eval()
                agent.encoder(shared[:BATCH]).square().sum().mul(1e-6).backward()
                agent.encoder.train()
            _optimizer_step(agent, *agent.next_batch())

    return step


def plain_loop(network: BenchNetwork) -> Callable[[], None]:
    """Return the same with contiguous weights and a DataLoader of single samples."""
    agents = [node.agent for node in network.nodes.values()]
    loaders = []
    for agent in agents:
        agent.encoder.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        agent.encoder.train()
        loaders.append(_endless(agent))

    def step() -> None:
        for agent, loader in zip(agents, loaders, strict=True):
            agent.optimizer.zero_grad(set_to_none=True)
            _optimizer_step(agent, *next(loader))

    return step


def _optimizer_step(agent: Agent, inputs: Tensor, targets: Tensor | None) -> None:
    if agent.head is None or targets is None:
        raise TypeError("the networks measured here classify")
    cross_entropy(agent.head(agent.encoder(inputs)), targets).backward()  # type: ignore[no-untyped-call]
    agent.optimizer.step()


def _endless(agent: Agent) -> Iterator[tuple[Tensor, Tensor]]:
    samples = agent.data.train
    if not isinstance(samples, ByteSamples) or samples.targets is None:
        raise TypeError("the networks measured here learn from labelled images")
    data = TensorDataset(samples.inputs / 255, samples.targets)
    while True:
        yield from DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True)
