"""`train`: prepare a network of agents, run the rounds, write the results."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx

from sheafed import graphs
from sheafed.agents.agent import Agent
from sheafed.checkpointing.run_directory import CHECKPOINT
from sheafed.errors import InputError
from sheafed.methods.build_node import build_node
from sheafed.methods.node import Method
from sheafed.pilots.pilot_set import as_pilot_set
from sheafed.training.arguments import (
    agents_by_name,
    as_count,
    as_seed,
    check_callbacks,
    check_method,
    check_transport,
    note_lone_agents,
    note_trained_agents,
)
from sheafed.training.callbacks import Callback
from sheafed.training.epochs import (
    EpochRule,
    check_rounds_per_epoch,
    count_rounds,
    warn_if_unequal,
)
from sheafed.training.history import RunHistory, Schedule, Totals
from sheafed.training.live_network import Network
from sheafed.training.metadata import AgentMetadata, gather_metadata
from sheafed.training.process_group import ProcessGroup, SingleProcess
from sheafed.training.run_checkpoint import restore
from sheafed.training.run_lock import run_lock
from sheafed.training.run_to_end import check_new_directory, run_to_end
from sheafed.training.single_round import handshake
from sheafed.transport import Barrier, Transport

logger = logging.getLogger("sheafed.training")


def train(
    agents: Iterable[Agent],
    graph: nx.Graph[str] | Iterable[tuple[str, str]],
    method: Method,
    pilots: Any,
    *,
    epochs: int,
    out: str | Path | None = None,
    seed: int = 0,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    transport: Transport | None = None,
    rounds_per_epoch: int | EpochRule = "mean",
    evaluate_every: int = 1,
    checkpoint_every: int | None = None,
    oracle: bool = True,
    progress: bool = True,
    vectorize: bool = True,
    group: ProcessGroup | None = None,
) -> Network:
    """Train a network of agents.

    Args:
        agents: with different names; their order does not matter.
        graph: the edges between agents, a networkx graph of names or a list of pairs.
        method: e.g. `SheafFRL()` or `NonCooperative()`.
        pilots: the shared inputs `(M, ...)`, a mapping of them by agent, or a `PilotSet`. A mapping
            none of whose keys is an agent's name is one input of several parts for all agents.
        epochs: how long. An epoch is one pass over the training data on average, see
            `rounds_per_epoch`.
        out: a directory for metrics, checkpoints, the network at the end (`last`) and at the best
            validation score (`best`), for `sheafed.load`, and a summary.
        seed: of all randomness: same seed, same results.
        resume: go on from the checkpoint in `out`, if there is one. A run that a callback has ended
            stays as it is.
        callbacks: see `sheafed.training.Callback`.
        transport: carries the messages, in this process by default.
        rounds_per_epoch: in a round every agent takes a step on one batch. An epoch has as many
            rounds as the `"mean"`, `"smallest"`, `"median"` or `"largest"` number of batches of the
            agents, or this number of rounds. Agents with nothing to train do not count. The records
            have every agent's passes over its data; an `UnequalPassesWarning` names agents whose
            passes differ by more than 4 times.
        evaluate_every: epochs between evaluations; the last epoch is always evaluated.
        checkpoint_every: rounds between checkpoints, an epoch by default.
        oracle: also measure oracle accuracy, i.e. let receivers encode their neighbours' inputs.
        progress: show a progress bar where standard error is a terminal, or in a notebook.
        vectorize: compute the steps of agents of one architecture at once, from 16 of them on,
            where the method and all their layers allow it (`sheafed.vectorized`). Results differ
            by rounding from those of one step after another. The summary tells how many do, and
            why others do not.
        group: the processes that train together, e.g. a `Cluster`; then `agents` are those of
            this process, and only rank 0 has callbacks. `on_round` sees its own agents.
    """
    epochs = as_count("epochs", epochs)
    evaluate_every = as_count("evaluate_every", evaluate_every)
    if checkpoint_every is not None:
        checkpoint_every = as_count("checkpoint_every", checkpoint_every)
    check_rounds_per_epoch(rounds_per_epoch)
    seed = as_seed(seed)
    if resume and out is None:
        raise InputError("resume=True needs the directory of the run: give it as out")
    group = group or SingleProcess()
    if oracle and not group.single:
        raise InputError(
            "oracle accuracy needs the inputs of all agents in one process, and agents of a "
            "cluster keep theirs; give oracle=False"
        )
    check_method(method)
    check_transport(transport)
    check_callbacks(callbacks)
    by_name = agents_by_name(agents)
    metadata = gather_metadata(by_name, group)
    learning = {name: known for name, known in metadata.items() if known.learns}
    if group.rank == 0:
        warn_if_unequal({name: known.steps_per_pass for name, known in learning.items()})
    rounds = count_rounds([known.batches for known in learning.values()], rounds_per_epoch)
    schedule = Schedule(epochs, rounds, evaluate_every, checkpoint_every)
    if not (resume and out is not None and (Path(out) / CHECKPOINT).exists()):
        note_trained_agents(by_name)
    network, barrier = _prepare(
        by_name, metadata, graph, method, pilots, seed, schedule, group, transport
    )
    network.out = None if out is None else Path(out)
    note_lone_agents(network.nodes)
    with run_lock(network.out, group):
        totals = _open_directory(network, resume)
        run_to_end(
            network,
            barrier,
            callbacks=callbacks,
            progress=progress,
            oracle=oracle,
            vectorize=vectorize,
            totals=totals,
        )
    return network


def _prepare(
    agents: Mapping[str, Agent],
    metadata: dict[str, AgentMetadata],
    graph: nx.Graph[str] | Iterable[tuple[str, str]],
    method: Method,
    pilots: Any,
    seed: int,
    schedule: Schedule,
    group: ProcessGroup,
    transport: Transport | None,
) -> tuple[Network, Barrier]:
    """Build the nodes and let neighbours shake hands."""
    edges = graph if isinstance(graph, nx.Graph) else graphs.from_edges(graph, list(metadata))
    graphs.check_graph(edges, list(metadata))
    shared = as_pilot_set(pilots, agents=metadata)
    homogeneous = len({known.dimension for known in metadata.values()}) == 1
    nodes = {
        name: build_node(
            method,
            agent,
            edges.neighbors(name),
            shared,
            seed=seed,
            rounds_per_epoch=schedule.rounds_per_epoch,
            homogeneous=homogeneous,
        )
        for name, agent in agents.items()
    }
    placement = {name: known.rank for name, known in metadata.items()}
    transport = transport or group.transport(placement, edges)
    history = RunHistory(seed, schedule, group.ledger(transport))
    network = Network(nodes, metadata, edges, shared, method, history, group)
    barrier = Barrier(transport, network.new_transport)
    handshake(nodes, barrier)
    group.count(transport, history.ledger)
    return network, barrier


def _open_directory(network: Network, resume: bool) -> Totals:
    """Restore the run of the directory, if there is one, or check that it holds none."""
    if network.out is None:
        return {}
    if resume:
        totals = restore(network, network.out)
        network.history.check_length()
        _note_early_end(network)
        return totals
    check_new_directory(network.out, network.group)
    return {}


def _note_early_end(network: Network) -> None:
    """Log that a run which a callback has ended stays as it is, whatever is asked for now.

    Resumed, it is the run that it would have been without an interruption.
    """
    history = network.history
    if history.stopped and history.rounds < history.schedule.total and network.group.rank == 0:
        logger.warning(
            "%s: a callback has ended this run after %d of %d epochs, so nothing is trained; to go "
            "on, call train(epochs=...) of the network that this returns, or of sheafed.load",
            network.out,
            history.epoch,
            history.schedule.epochs,
        )
