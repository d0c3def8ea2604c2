"""The round loop: one for every method and every exchange."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx

from sheafed import graphs
from sheafed.agents.agent import Agent
from sheafed.atomic_io import write_atomically
from sheafed.checkpointing.run_directory import BEST, CHECKPOINT, LAST, METRICS, SUMMARY
from sheafed.errors import InputError, RunExistsError
from sheafed.evaluation.evaluation import mean
from sheafed.methods.build_node import build_node
from sheafed.methods.node import HELLO, ROUND, Method, Node
from sheafed.pilots.pilot_set import as_pilot_set
from sheafed.training.callbacks import Callback, MetricsLog, Started
from sheafed.training.identity import check_epochs
from sheafed.training.metadata import gather_metadata
from sheafed.training.post_hoc import compare_whitenings, fit_post_hoc_maps
from sheafed.training.process_group import ProcessGroup, SingleProcess
from sheafed.training.resume import restore, save, save_weights
from sheafed.training.run import Record, Run
from sheafed.transport import Transport

Log = dict[str, float]
Logs = dict[str, Log]
"""Of one round, by agent."""


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
    rounds_per_epoch: int | None = None,
    evaluate_every: int = 1,
    checkpoint_every: int | None = None,
    oracle: bool = True,
    group: ProcessGroup | None = None,
) -> Run:
    """Train a network of agents.

    Args:
        agents: with names of their own; their order does not matter.
        graph: who talks to whom, a networkx graph of names or a list of edges.
        method: e.g. `SheafFRL()` or `NonCooperative()`.
        pilots: the shared inputs `(M, ...)`, or a `PilotSet`.
        epochs: how long. An epoch is as many rounds as the smallest training set has batches;
            agents with nothing to train do not count.
        out: a directory for metrics, checkpoints, the weights at the end (`last`) and at the best
            validation score (`best`), and a summary.
        seed: of all randomness: same seed, same results.
        resume: go on from the checkpoint in `out`, if there is one.
        callbacks: see `sheafed.training.callbacks`.
        exchange: what carries the messages, in-process by default.
        rounds_per_epoch: if not the default.
        evaluate_every: epochs between evaluations; the last epoch is always evaluated.
        checkpoint_every: rounds between checkpoints, an epoch by default.
        ceiling: also measure what perfect maps would give (see `evaluate`).
        group: the processes that train together, e.g. a `Cluster`; then `agents` are those that
            live in this one, and only rank 0 has callbacks. `on_round` sees its own agents.
    """
    _check_counts(
        epochs=epochs,
        evaluate_every=evaluate_every,
        checkpoint_every=checkpoint_every,
        rounds_per_epoch=rounds_per_epoch,
    )
    if resume and out is None:
        raise InputError("resume=True needs to know where: give the directory of the run as out")
    group = group or SingleProcess()
    if oracle and not group.alone:
        raise InputError(
            "a ceiling needs the sender's inputs where the receiver lives, and agents of a cluster "
            "keep theirs; give ceiling=False"
        )
    by_name = _by_name(agents)
    profiles = gather_metadata(by_name, group)
    network = graph if isinstance(graph, nx.Graph) else graphs.from_edges(graph, list(profiles))
    graphs.check_graph(network, list(profiles))
    batches = [p.batches for p in profiles.values() if p.learns]
    rounds_per_epoch = rounds_per_epoch or max(1, min(batches, default=1))
    shared = as_pilot_set(pilots)
    homogeneous = len({profile.dimension for profile in profiles.values()}) == 1
    nodes = {
        name: build_node(
            method,
            agent,
            network.neighbors(name),
            shared,
            seed=seed,
            rounds_per_epoch=rounds_per_epoch,
            homogeneous=homogeneous,
        )
        for name, agent in by_name.items()
    }
    placement = {name: profile.home for name, profile in profiles.items()}
    transport = transport or group.transport(placement, network)
    ledger = group.ledger(transport)
    handshake(nodes, transport)
    group.count(transport, ledger)
    run = Run(nodes, profiles, network, shared, method, ledger, seed, epochs, rounds_per_epoch)
    totals: dict[str, list[float]] = {}
    observers = list(callbacks) if group.rank == 0 else []
    if out is not None:
        run.out = Path(out)
        if resume:
            totals = restore(run, run.out, method, group)
            check_epochs(run.out, run.rounds, epochs, rounds_per_epoch)
        elif any(group.gather(_holds_a_run(run.out))):
            raise RunExistsError(
                f"{run.out} already holds a run; go on with resume=True, or choose another place"
            )
        if group.rank == 0:
            observers = [MetricsLog(run.out / METRICS), *observers]

    started = time.monotonic() - run.seconds
    logs: list[Logs] = []
    with Started(observers, run):
        while run.rounds < epochs * rounds_per_epoch and not run.stopped:
            logs.append(_take_round(nodes, transport, run.rounds))
            run.rounds += 1
            run.seconds = time.monotonic() - started
            for observer in observers:
                observer.on_round(run, _average(logs[-1]))
            if _is_due(run, evaluate_every):
                _gather_logs(totals, logs, group)
                record = _record(run, transport, totals, oracle, group)
                totals = {}
                run.metrics.append(record)
                votes = [observer.on_evaluation(run, record) for observer in observers]
                run.stopped = any(group.gather(any(votes)))
                if run.out is not None and run.best is record:
                    save_weights(run, run.out / BEST, group)
            last_round = run.stopped or run.rounds == epochs * rounds_per_epoch
            if run.out and (last_round or run.rounds % (checkpoint_every or rounds_per_epoch) == 0):
                _gather_logs(totals, logs, group)
                group.count(transport, run.ledger)
                save(run, run.out, totals, method, group)
        if run.evaluation is None:
            _measure_again(run, transport, oracle, group)
        run.whitenings = compare_whitenings(nodes, transport, run.rounds, group)
        run.seconds = time.monotonic() - started
        if run.out is not None:
            write_results(run, run.out, group)
        group.gather(None)  # nobody leaves before everything is written
    return run


def handshake(nodes: Mapping[str, Node], transport: Transport) -> None:
    """Let neighbours introduce themselves and check that they mean the same thing."""
    for node in nodes.values():
        transport.send(node.hello())
    transport.barrier(0, HELLO)
    for node in nodes.values():
        node.finish_handshake(transport.receive(node.name, 0, HELLO, node.neighbours))


def one_round(nodes: Mapping[str, Node], transport: Transport, round: int) -> Log:
    """Let everybody send, then everybody receive; return what they log, averaged."""
    return _average(_take_round(nodes, transport, round))


def _take_round(nodes: Mapping[str, Node], transport: Transport, round: int) -> Logs:
    for node in nodes.values():
        transport.send(node.send(round))
    transport.barrier(round, ROUND)
    return {
        node.name: node.receive(round, transport.receive(node.name, round, ROUND, node.neighbours))
        for node in nodes.values()
    }


def _average(logs: Logs) -> Log:
    keys = dict.fromkeys(key for log in logs.values() for key in log)
    return {key: mean(log[key] for log in logs.values() if key in log) or 0.0 for key in keys}


def _gather_logs(totals: dict[str, list[float]], logs: list[Logs], group: ProcessGroup) -> None:
    """Move what all agents have logged, averaged, from the rounds' logs to the totals."""
    for parts in zip(*group.gather(logs), strict=True):
        everybody = {name: log for part in parts for name, log in part.items()}
        for key, value in _average(dict(sorted(everybody.items()))).items():
            totals.setdefault(key, []).append(value)
    logs.clear()


def _record(
    run: Run,
    transport: Transport,
    totals: Mapping[str, Sequence[float]],
    oracle: bool,
    group: ProcessGroup,
) -> Record:
    fit_post_hoc_maps(run.nodes, transport, run.rounds - 1)
    group.count(transport, run.ledger)
    return measure(run, totals, oracle, group)


def measure(
    run: Run, totals: Mapping[str, Sequence[float]], oracle: bool, group: ProcessGroup
) -> Record:
    """Evaluate everybody as they are; return the record of it, with the means of the totals."""
    run.evaluation = group.evaluate(run.nodes, "test", oracle)
    record: Record = {"epoch": run.epoch, "round": run.rounds, **run.evaluation.summary()}
    if all(profile.has_validation for profile in run.profiles.values()):
        validation = group.evaluate(run.nodes, "validation", oracle=False).summary()
        parts = {k: validation[k] for k in ("private_accuracy", "communication_accuracy")}
        record |= {f"validation_{key}": value for key, value in parts.items()}
        record["validation_score"] = mean(v for v in parts.values() if v is not None)
    record |= {key: mean(values) for key, values in totals.items()}
    record |= {"bytes_sent": run.ledger.bytes_sent(), "payload_bytes": run.ledger.payload_bytes()}
    record["agents"] = {
        name: {
            "private_accuracy": run.evaluation.private.get(name),
            "communication_accuracy": run.evaluation.communication_of(name),
        }
        for name in run.profiles
    }
    return record


def write_results(run: Run, out: Path, group: ProcessGroup) -> None:
    """Write the weights that the agents have now, and the summary."""
    save_weights(run, out / LAST, group)
    if group.rank == 0:
        write_atomically(out / SUMMARY, json.dumps(run.summary(), indent=2).encode())


def _measure_again(run: Run, transport: Transport, oracle: bool, group: ProcessGroup) -> None:
    """Restore the details of the last evaluation of a run that was resumed after its end."""
    sent = run.ledger.state()
    fit_post_hoc_maps(run.nodes, transport, run.rounds - 1)
    run.evaluation = group.evaluate(run.nodes, "test", oracle)
    run.ledger.restore(sent)


def _is_due(run: Run, every: int) -> bool:
    epoch, rest = divmod(run.rounds, run.rounds_per_epoch)
    return rest == 0 and (epoch % every == 0 or epoch == run.epochs)


def _holds_a_run(out: Path) -> bool:
    return (out / CHECKPOINT).exists() or (out / METRICS).exists()


def _by_name(agents: Iterable[Agent]) -> dict[str, Agent]:
    """Sort the agents by name: their order must not matter."""
    listed = sorted(agents, key=lambda agent: agent.name)
    by_name = {agent.name: agent for agent in listed}
    if len(by_name) != len(listed):
        raise InputError(f"agents must have different names, got {[a.name for a in listed]}")
    return by_name


def _check_counts(**counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and (not isinstance(value, int) or value < 1):
            raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
