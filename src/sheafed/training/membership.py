"""Agents that come to a network which has been trained, and agents that leave it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Literal, get_args

import torch

from sheafed.agents.agent import Agent
from sheafed.checkpointing.run_directory import BEST, METRICS
from sheafed.errors import InputError, UnknownAgentError
from sheafed.methods.build_node import build_node
from sheafed.methods.node import ALIGNMENT, HELLO, ROUND, Node, latent_dtype
from sheafed.pilots.pilot_set import PilotSet, as_pilot_set
from sheafed.training.callbacks import append_record
from sheafed.training.membership_checks import (
    check_membership,
    check_newcomer,
    check_resumable,
    is_homogeneous,
    warn_if_apart,
)
from sheafed.training.metadata import profile
from sheafed.training.post_hoc import fit_post_hoc_maps
from sheafed.training.process_group import SingleProcess
from sheafed.training.resume import save, save_weights
from sheafed.training.run import Run
from sheafed.training.train import Log, measure, one_round, write_results
from sheafed.transport import LocalTransport, Transport
from sheafed.transport.message import Message, TensorSpec

Others = Literal["resting", "undisturbed", "training"]


def join(
    run: Run,
    agent: Agent,
    neighbours: Collection[str],
    *,
    pilots: Any = None,
    epochs: int = 0,
    others: Others = "resting",
    oracle: bool = True,
) -> None:
    """Let an agent join; see `Run.join`."""
    began = time.monotonic()
    check_membership(run)
    check_newcomer(run, agent, neighbours)
    if not isinstance(epochs, int) or epochs < 0:
        raise InputError(f"epochs must be a whole number of at least 0, got {epochs!r}")
    if others not in get_args(Others):
        raise InputError(f"others must be one of {', '.join(get_args(Others))}, got {others!r}")
    homogeneous = is_homogeneous(run) and all(
        node.agent.dimension == agent.dimension for node in run.nodes.values()
    )
    graph = run.graph.copy()
    graph.add_edges_from((agent.name, j) for j in neighbours)
    check_resumable(run, graph, [agent, *run.agents.values()])

    newcomer = build_node(
        run.recipe,
        agent,
        neighbours,
        _pilots_for(run, agent.name, pilots),
        seed=run.seed,
        rounds_per_epoch=run.rounds_per_epoch,
        homogeneous=homogeneous,
    )
    newcomer.fit_whitening()  # before anybody is told: it fails if the pilots are none for this one
    transport = LocalTransport([*run.nodes, agent.name], ledger=run.ledger)
    hosts = {j: run.nodes[j] for j in newcomer.neighbours}
    _shake_hands(newcomer, run.nodes, transport, homogeneous)
    _fit_maps(newcomer, hosts, transport, run.rounds)

    run.nodes = dict(sorted({**run.nodes, agent.name: newcomer}.items()))
    run.profiles = dict(sorted({**run.profiles, agent.name: profile(agent, home=0)}.items()))
    run.graph = graph
    run.pilots = newcomer.context.pilots
    run.whitenings = {}  # nobody has measured them of this network
    _record(run, agent.name, {}, oracle)
    if epochs:
        logs = _train_on(run, newcomer, hosts, transport, epochs, others)
        _record(run, agent.name, logs, oracle)
    run.seconds += time.monotonic() - began
    _write(run)


def leave(run: Run, name: str) -> Agent:
    """Let an agent leave; see `Run.leave`."""
    check_membership(run)
    if name not in run.nodes:
        raise UnknownAgentError(f"there is no agent {name!r} to leave, only {sorted(run.nodes)}")
    if len(run.nodes) == 1:
        raise InputError(f"{name!r} is the last agent of the network; it cannot leave it")
    graph = run.graph.copy()
    graph.remove_node(name)
    rest = [agent for other, agent in run.agents.items() if other != name]
    check_resumable(run, graph, rest)

    node = run.nodes[name]
    for j in node.neighbours:
        run.nodes[j].remove_neighbour(name)
    run.nodes = {other: kept for other, kept in run.nodes.items() if other != name}
    run.profiles = {other: kept for other, kept in run.profiles.items() if other != name}
    run.graph = graph
    run.whitenings = {}
    if run.evaluation is not None:  # what was measured of the others still holds
        run.evaluation = run.evaluation.without(name)
    _write(run)
    warn_if_apart(graph, name)
    return node.agent


# What is exchanged


def _shake_hands(
    newcomer: Node, nodes: Mapping[str, Node], transport: Transport, homogeneous: bool
) -> None:
    """Introduce the newcomer and its neighbours; if they do not agree, nothing has changed."""
    with ExitStack() as undo:
        for node in nodes.values():
            undo.callback(setattr, node, "context", node.context)
            node.context = replace(node.context, homogeneous=homogeneous)
        transport.send(newcomer.hello())
        transport.send(nodes[j].hello_to(newcomer.name) for j in newcomer.neighbours)
        transport.barrier(0, HELLO)
        newcomer.finish_handshake(transport.receive(newcomer.name, 0, HELLO, newcomer.neighbours))
        undo.pop_all()  # they agree
    for j in newcomer.neighbours:
        heard = transport.receive(j, 0, HELLO, [newcomer.name])
        nodes[j].add_neighbour(newcomer.name, heard[newcomer.name])


def _fit_maps(newcomer: Node, hosts: Mapping[str, Node], transport: Transport, round: int) -> None:
    """Fit the maps of the newcomer's edges on all pilots: the head speaks, then the tail.

    In this order every protocol needs one message each way: where ends have frames of their own,
    the tail finds the head's first and then speaks in it.
    """
    nodes = {newcomer.name: newcomer, **hosts}
    white = {name: node.white_pilots() for name, node in nodes.items()}
    edges = [newcomer.edge(j) for j in hosts]
    for way in (edges, [(tail, head) for head, tail in edges]):
        for sender, receiver in way:
            latents = nodes[sender].link_to(receiver, round, ALIGNMENT).carry(white[sender])
            transport.send([Message(ALIGNMENT, round, sender, receiver, {"latents": latents})])
        transport.barrier(round, ALIGNMENT)
        for sender, receiver in way:
            node = nodes[receiver]
            shape = (len(white[receiver]), node.endpoints[sender].width)
            expected = {sender: {"latents": TensorSpec(latent_dtype(node.agent), shape)}}
            inbox = transport.receive(receiver, round, ALIGNMENT, [sender])
            for message in node.valid_messages(round, ALIGNMENT, inbox, expected).values():
                node.fit_endpoint(sender, white[receiver], message.tensors["latents"])


def _train_on(
    run: Run,
    newcomer: Node,
    hosts: Mapping[str, Node],
    transport: Transport,
    epochs: int,
    others: Others,
) -> dict[str, list[float]]:
    """Train the newcomer, or everybody; return what was logged."""
    totals: dict[str, list[float]] = {}
    run.epochs = run.epoch + epochs
    for _ in range(epochs * run.rounds_per_epoch):
        if others == "training":
            log = one_round(run.nodes, transport, run.rounds)
        elif others == "undisturbed":
            log = _round_beside(newcomer, run.nodes, transport, run.rounds)
        else:
            log = _round_of(newcomer, hosts, transport, run.rounds)
        run.rounds += 1
        for key, value in log.items():
            totals.setdefault(key, []).append(value)
    if others != "resting":
        # On another exchange: this one has had alignments, perhaps of the same round.
        fit_post_hoc_maps(
            run.nodes, LocalTransport(list(run.nodes), ledger=run.ledger), run.rounds - 1
        )
    else:
        newcomer.fit_whitening()
        _fit_maps(newcomer, hosts, transport, run.rounds)
    return totals


def _round_beside(
    newcomer: Node, nodes: Mapping[str, Node], transport: Transport, round: int
) -> Log:
    """Let all take a step, the others as if the newcomer were not there; return what it logs."""
    name, log = newcomer.name, {}
    for node in nodes.values():
        transport.send(node.send(round))
    transport.barrier(round, ROUND)
    for j, node in nodes.items():
        inbox = transport.receive(j, round, ROUND, node.neighbours)
        if j == name:
            log = node.receive(round, inbox)
        else:
            heard = {sender: message for sender, message in inbox.items() if sender != name}
            if name in inbox:
                node.refit(round, {name: inbox[name]})
            node.receive(round, heard)
    return log


def _round_of(newcomer: Node, hosts: Mapping[str, Node], transport: Transport, round: int) -> Log:
    """Let the newcomer take a step; its neighbours answer, refit these edges, and rest."""
    name = newcomer.name
    transport.send(newcomer.send(round))
    for node in hosts.values():
        transport.send(node.serve(round, name))
    transport.barrier(round, ROUND)
    log = newcomer.receive(round, transport.receive(name, round, ROUND, newcomer.neighbours))
    for j, node in hosts.items():
        node.refit(round, transport.receive(j, round, ROUND, [name]))
    return log


# What is written


def _record(run: Run, joined: str, totals: Mapping[str, list[float]], oracle: bool) -> None:
    record = {**measure(run, totals, oracle, SingleProcess()), "joined": joined}
    run.metrics.append(record)
    if run.out is not None:
        append_record(run.out / METRICS, record)
        if run.best is record:
            save_weights(run, run.out / BEST, SingleProcess())


def _write(run: Run) -> None:
    if run.out is not None:
        save(run, run.out, {}, run.recipe, SingleProcess())
        write_results(run, run.out, SingleProcess())


# How the newcomer comes


def _pilots_for(run: Run, name: str, given: Any) -> PilotSet:
    """Return the pilots as the newcomer has them; the handshake finds out if they are others."""
    if given is None:
        return run.pilots
    if isinstance(run.pilots.inputs, Mapping):
        own = given if isinstance(given, PilotSet) else PilotSet(torch.as_tensor(given))
        return run.pilots.with_view(name, own.of(name), own.ids)
    return as_pilot_set(given)
