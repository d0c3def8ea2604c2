"""Agents that join a network after training, and agents that leave it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from sheafed.agents.agent import Agent
from sheafed.checkpointing.run_directory import BEST, METRICS
from sheafed.errors import InputError, UnknownAgentError
from sheafed.methods.build_node import build_node
from sheafed.methods.dynamic_node import DynamicNode
from sheafed.methods.handshake import finish_handshake, hello_message, hello_messages
from sheafed.methods.node import ALIGNMENT, HELLO, ROUND, Node, latent_dtype
from sheafed.methods.returned import checked_log
from sheafed.pilots.pilot_set import PilotSet, as_pilot_set
from sheafed.training.arguments import as_count
from sheafed.training.callbacks import append_record
from sheafed.training.further_training import check_can_train
from sheafed.training.history import Totals
from sheafed.training.membership_checks import (
    as_dynamic,
    check_membership,
    check_newcomer,
    check_resumable,
    is_homogeneous,
    warn_if_disconnected,
)
from sheafed.training.metadata import agent_metadata
from sheafed.training.network_file import save_network, write_results
from sheafed.training.post_hoc_maps import fit_post_hoc_maps
from sheafed.training.run_checkpoint import save
from sheafed.training.scores import metric_signs
from sheafed.training.single_round import Log, average, run_round
from sheafed.training.summary import measure
from sheafed.transport import Barrier, LocalTransport, Message, TensorSpec, Transport

if TYPE_CHECKING:
    from sheafed.training.live_network import Network

Others = Literal["resting", "undisturbed", "training"]


def join(
    network: Network,
    agent: Agent,
    neighbours: Collection[str],
    *,
    pilots: Any,
    epochs: int,
    others: Others,
    oracle: bool,
) -> None:
    """Add an agent; see `Network.join`."""
    began = time.monotonic()
    nodes = check_membership(network)
    check_newcomer(network, agent, neighbours)
    for name in nodes:
        network.pilots.of(name)  # raises if the network was loaded without pilots
    epochs = as_count("epochs", epochs, least=0)
    if others not in get_args(Others):
        raise InputError(f"others must be one of {', '.join(get_args(Others))}, got {others!r}")
    if epochs and others != "resting":
        check_can_train(network)
    known = {**network.metadata, agent.name: agent_metadata(agent, rank=0)}
    metric_signs(known)  # raises if agents are measured otherwise
    homogeneous = is_homogeneous(network) and all(
        node.agent.dimension == agent.dimension for node in network.nodes.values()
    )
    graph = network.graph.copy()
    graph.add_edges_from((agent.name, j) for j in neighbours)
    check_resumable(network, graph, [agent, *network.agents.values()])

    history = network.history
    built = build_node(
        network.method,
        agent,
        neighbours,
        _pilots_for(network, agent.name, pilots),
        seed=history.seed,
        rounds_per_epoch=history.schedule.rounds_per_epoch,
        homogeneous=homogeneous,
    )
    newcomer = as_dynamic(built, network.method.label)
    newcomer.fit_whitening()  # before the others change: it fails if the pilots do not fit
    transport = LocalTransport([*nodes, agent.name], ledger=history.ledger)
    hosts = {j: nodes[j] for j in newcomer.neighbours}
    _handshake(newcomer, nodes, transport, homogeneous)
    with ExitStack() as undo:
        for node in hosts.values():
            undo.callback(node.remove_neighbour, agent.name)
        _fit_maps(newcomer, hosts, transport, history.rounds)
        undo.pop_all()

    nodes[agent.name] = newcomer
    network.nodes = dict(sorted(nodes.items()))
    network.metadata = dict(sorted(known.items()))
    network.graph = graph
    network.pilots = newcomer.context.pilots
    history.whitenings = {}  # they are not measured of this network
    _record(network, agent.name, {}, oracle)
    if epochs:
        try:
            with network.training_context():
                logs = _train_on(network, nodes, newcomer, transport, epochs, others)
        except BaseException:
            history.stopped = True  # where it is: it can train on, and the agent can leave
            raise
        _record(network, agent.name, logs, oracle)
    history.seconds += time.monotonic() - began
    _write(network)


def leave(network: Network, name: str) -> Agent:
    """Remove an agent; see `Network.leave`."""
    nodes = check_membership(network)
    if name not in nodes:
        raise UnknownAgentError(
            f"unknown agent {name!r}; the agents that can leave are {sorted(nodes)}"
        )
    if len(nodes) == 1:
        raise InputError(f"{name!r} is the last agent of the network; it cannot leave it")
    graph = network.graph.copy()
    graph.remove_node(name)
    rest = [agent for other, agent in network.agents.items() if other != name]
    check_resumable(network, graph, rest)

    node = nodes[name]
    for j in node.neighbours:
        nodes[j].remove_neighbour(name)
    network.nodes = {other: kept for other, kept in network.nodes.items() if other != name}
    network.metadata = {other: kept for other, kept in network.metadata.items() if other != name}
    network.graph = graph
    network.history.whitenings = {}
    if network.history.evaluation is not None:  # what was measured of the others still holds
        network.history.evaluation = network.history.evaluation.without(name)
    _write(network)
    warn_if_disconnected(graph, name)
    return node.agent


# The exchanges of a newcomer


def _handshake(
    newcomer: DynamicNode,
    nodes: Mapping[str, DynamicNode],
    transport: LocalTransport,
    homogeneous: bool,
) -> None:
    """Let the newcomer and its neighbours shake hands; if one refuses, nothing has changed."""
    with ExitStack() as undo:
        for node in nodes.values():
            undo.callback(setattr, node, "context", node.context)
            node.context = replace(node.context, homogeneous=homogeneous)
        transport.send(hello_messages(newcomer))
        transport.send(hello_message(nodes[j], newcomer.name) for j in newcomer.neighbours)
        transport.barrier(0, HELLO)
        inbox = transport.receive(newcomer.name, 0, HELLO, newcomer.neighbours)
        finish_handshake(newcomer, inbox)
        undo.pop_all()  # they agree
    for j in newcomer.neighbours:
        heard = transport.receive(j, 0, HELLO, [newcomer.name])
        nodes[j].add_neighbour(newcomer.name, heard[newcomer.name])


def _fit_maps(
    newcomer: DynamicNode, hosts: Mapping[str, DynamicNode], transport: Transport, round: int
) -> None:
    """Fit the maps of the newcomer's edges on all pilots: the head sends, then the tail.

    In this order every protocol needs one message each way: where ends have frames of their own,
    the tail finds the head's first and then sends in it.
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
    network: Network,
    nodes: Mapping[str, DynamicNode],
    newcomer: DynamicNode,
    transport: LocalTransport,
    epochs: int,
    others: Others,
) -> Totals:
    """Train the newcomer, or all agents; return the logs."""
    totals: Totals = {}
    history = network.history
    hosts = {j: nodes[j] for j in newcomer.neighbours}
    history.schedule = replace(history.schedule, epochs=history.epoch + epochs)
    for _ in range(epochs * history.schedule.rounds_per_epoch):
        if others == "training":
            log = average(run_round(network.nodes, _barrier(network, transport), history.rounds))
        elif others == "undisturbed":
            log = _round_beside(newcomer, network.nodes, hosts, transport, history.rounds)
        else:
            log = _round_of(newcomer, hosts, transport, history.rounds)
        history.rounds += 1
        for key, value in log.items():
            totals.setdefault(key, []).append(value)
    if others != "resting":
        # On another transport: this one has carried alignments, perhaps of the same round.
        fresh = LocalTransport(list(network.nodes), ledger=history.ledger)
        apart = newcomer.name if others == "undisturbed" else None
        barrier = _barrier(network, fresh)
        fit_post_hoc_maps(network.nodes, barrier, history.rounds - 1, newcomer=apart)
    else:
        newcomer.fit_whitening()
        _fit_maps(newcomer, hosts, transport, history.rounds)
    return totals


def _round_beside(
    newcomer: DynamicNode,
    nodes: Mapping[str, Node],
    hosts: Mapping[str, DynamicNode],
    transport: Transport,
    round: int,
) -> Log:
    """Let all take a step, the others as if the newcomer were not there; return what it logs."""
    name, log = newcomer.name, {}
    for node in nodes.values():
        transport.send(node.send(round))
    transport.barrier(round, ROUND)
    for j, node in nodes.items():
        inbox = transport.receive(j, round, ROUND, node.neighbours)
        if j == name:
            log = checked_log(node, round, node.receive(round, inbox))
        else:
            heard = {sender: message for sender, message in inbox.items() if sender != name}
            if name in inbox:
                hosts[j].refit(round, {name: inbox[name]})
            node.receive(round, heard)
    return log


def _round_of(
    newcomer: DynamicNode, hosts: Mapping[str, DynamicNode], transport: Transport, round: int
) -> Log:
    """Let the newcomer take a step; its neighbours answer, refit these edges, and rest."""
    name = newcomer.name
    transport.send(newcomer.send(round))
    for node in hosts.values():
        transport.send(node.serve(round, name))
    transport.barrier(round, ROUND)
    inbox = transport.receive(name, round, ROUND, newcomer.neighbours)
    log = checked_log(newcomer, round, newcomer.receive(round, inbox))
    for j, node in hosts.items():
        node.refit(round, transport.receive(j, round, ROUND, [name]))
    return log


# What is written


def _record(network: Network, joined: str, totals: Totals, oracle: bool) -> None:
    barrier = _barrier(network, network.new_transport())
    record = {**measure(network, barrier, totals, oracle), "joined": joined}
    network.history.records.append(record)
    if network.out is not None:
        append_record(network.out / METRICS, record)
        if network.history.best is record:
            save_network(network, network.out / BEST)


def _write(network: Network) -> None:
    if network.out is not None:
        save(network, {})
        write_results(network, network.out)


def _barrier(network: Network, transport: Transport) -> Barrier:
    return Barrier(transport, network.new_transport)


# The newcomer's pilots


def _pilots_for(network: Network, name: str, given: Any) -> PilotSet:
    """Return the pilots of the newcomer; the handshake refuses others than the network's."""
    if given is None:
        return network.pilots
    own = as_pilot_set(given, agents=[name])
    if network.pilots.shared:
        return own
    return network.pilots.with_inputs(name, own.of(name), own.ids)
