"""The round loop: one for every method and every exchange."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx

from sheafed.domain import graphs
from sheafed.domain.agent import Agent
from sheafed.domain.pilot_set import as_pilot_set
from sheafed.domain.seeds import derive
from sheafed.errors import InputError, RunExistsError
from sheafed.exchange import Exchange, LocalExchange
from sheafed.files import write_atomically
from sheafed.methods.node import HELLO, ROUND, Method, Node, Setting
from sheafed.runtime.after_training import align_after_training, compare_whitenings
from sheafed.runtime.callbacks import Callback, MetricsLog, Started
from sheafed.runtime.checkpoint import save_checkpoint
from sheafed.runtime.evaluation import evaluate, mean
from sheafed.runtime.resume import restore, snapshot
from sheafed.runtime.run import Record, Run

CHECKPOINT, METRICS, SUMMARY = "checkpoint.safetensors", "metrics.jsonl", "summary.json"


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
    exchange: Exchange | None = None,
    rounds_per_epoch: int | None = None,
    evaluate_every: int = 1,
    checkpoint_every: int | None = None,
    ceiling: bool = True,
) -> Run:
    """Train a network of agents.

    Args:
        agents: with names of their own; their order does not matter.
        graph: who talks to whom, a networkx graph of names or a list of edges.
        method: e.g. `SheafFRL()` or `NonCooperative()`.
        pilots: the shared inputs `(M, ...)`, or a `PilotSet`.
        epochs: how long. An epoch is as many rounds as the smallest training set has batches.
        out: a directory for metrics, checkpoints, the weights at the end (`last`) and at the best
            validation score (`best`), and a summary.
        seed: of all randomness: same seed, same results.
        resume: go on from the checkpoint in `out`, if there is one.
        callbacks: see `sheafed.runtime.callbacks`.
        exchange: what carries the messages, in-process by default.
        rounds_per_epoch: if not the default.
        evaluate_every: epochs between evaluations; the last epoch is always evaluated.
        checkpoint_every: rounds between checkpoints, an epoch by default.
        ceiling: also measure what perfect maps would give (see `evaluate`).
    """
    _check_counts(
        epochs=epochs,
        evaluate_every=evaluate_every,
        checkpoint_every=checkpoint_every,
        rounds_per_epoch=rounds_per_epoch,
    )
    if resume and out is None:
        raise InputError("resume=True needs to know where: give the directory of the run as out")
    by_name = _by_name(agents)
    network = graph if isinstance(graph, nx.Graph) else graphs.from_edges(graph, list(by_name))
    graphs.check_graph(network, list(by_name))
    rounds_per_epoch = rounds_per_epoch or _smallest_epoch(by_name)
    nodes = _programs(by_name, network, method, pilots, seed, rounds_per_epoch)
    exchange = exchange or LocalExchange(list(nodes))
    shake_hands(nodes, exchange)
    run = Run(nodes, network, method.name, exchange.ledger, seed, epochs, rounds_per_epoch)
    totals: dict[str, list[float]] = {}
    observers = list(callbacks)
    if out is not None:
        run.out = Path(out)
        if resume:
            totals = restore(run, run.out / CHECKPOINT, method)
            if run.rounds > epochs * rounds_per_epoch:
                raise InputError(
                    f"{run.out} has {run.epoch} epochs behind it, {epochs} were asked for; give at "
                    "least as many"
                )
        elif (run.out / CHECKPOINT).exists() or (run.out / METRICS).exists():
            raise RunExistsError(
                f"{run.out} already holds a run; go on with resume=True, or choose another place"
            )
        observers = [MetricsLog(run.out / METRICS), *observers]

    started = time.monotonic() - run.seconds
    with Started(observers, run):
        while run.rounds < epochs * rounds_per_epoch and not run.stopped:
            log = one_round(nodes, exchange, run.rounds)
            run.rounds += 1
            run.seconds = time.monotonic() - started
            for key, value in log.items():
                totals.setdefault(key, []).append(value)
            for observer in observers:
                observer.on_round(run, log)
            if _is_due(run, evaluate_every):
                record = _record(run, exchange, totals, ceiling)
                totals = {}
                run.metrics.append(record)
                votes = [observer.on_evaluation(run, record) for observer in observers]
                run.stopped = any(votes)
                _keep_best(run, record)
            last_round = run.stopped or run.rounds == epochs * rounds_per_epoch
            if run.out and (last_round or run.rounds % (checkpoint_every or rounds_per_epoch) == 0):
                save_checkpoint(run.out / CHECKPOINT, snapshot(run, totals, method))
        if run.evaluation is None:
            _measure_again(run, exchange, ceiling)
        run.whitenings = compare_whitenings(nodes, exchange, run.rounds)
        run.seconds = time.monotonic() - started
        if run.out is not None:
            save_checkpoint(run.out / "last.safetensors", _weights(run))
            content = json.dumps(run.summary(), indent=2).encode()
            write_atomically(run.out / SUMMARY, content)
    return run


def shake_hands(nodes: Mapping[str, Node], exchange: Exchange) -> None:
    """Let neighbours introduce themselves and check that they mean the same thing."""
    for node in nodes.values():
        exchange.send(node.hello())
    for node in nodes.values():
        node.meet(exchange.receive(node.name, 0, HELLO, node.neighbours))


def one_round(nodes: Mapping[str, Node], exchange: Exchange, round: int) -> dict[str, float]:
    """Let everybody send, then everybody receive; return what they log, averaged."""
    for node in nodes.values():
        exchange.send(node.send(round))
    logs = [
        node.receive(round, exchange.receive(node.name, round, ROUND, node.neighbours))
        for node in nodes.values()
    ]
    keys = dict.fromkeys(key for log in logs for key in log)
    return {key: mean(log[key] for log in logs if key in log) or 0.0 for key in keys}


def _record(
    run: Run, exchange: Exchange, totals: Mapping[str, Sequence[float]], ceiling: bool
) -> Record:
    align_after_training(run.nodes, exchange, run.rounds - 1)
    run.evaluation = evaluate(run.nodes, "test", ceiling)
    record: Record = {"epoch": run.epoch, "round": run.rounds, **run.evaluation.summary()}
    if all(agent.data.validation is not None for agent in run.agents.values()):
        validation = evaluate(run.nodes, "validation", ceiling=False).summary()
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
        for name in run.nodes
    }
    return record


def _measure_again(run: Run, exchange: Exchange, ceiling: bool) -> None:
    """Restore the details of the last evaluation of a run that was resumed after its end."""
    sent = run.ledger.state()
    align_after_training(run.nodes, exchange, run.rounds - 1)
    run.evaluation = evaluate(run.nodes, "test", ceiling)
    run.ledger.restore(sent)


def _is_due(run: Run, every: int) -> bool:
    epoch, rest = divmod(run.rounds, run.rounds_per_epoch)
    return rest == 0 and (epoch % every == 0 or epoch == run.epochs)


def _keep_best(run: Run, record: Record) -> None:
    if run.out is not None and run.best is record:
        save_checkpoint(run.out / "best.safetensors", _weights(run))


def _weights(run: Run) -> dict[str, Any]:
    return {
        name: {
            "encoder": dict(agent.encoder.state_dict()),
            "head": None if agent.head is None else dict(agent.head.state_dict()),
        }
        for name, agent in run.agents.items()
    }


def _by_name(agents: Iterable[Agent]) -> dict[str, Agent]:
    """Sort the agents by name: their order must not matter."""
    listed = sorted(agents, key=lambda agent: agent.name)
    by_name = {agent.name: agent for agent in listed}
    if len(by_name) != len(listed):
        raise InputError(f"agents must have different names, got {[a.name for a in listed]}")
    if not by_name:
        raise InputError("there are no agents to train; give at least one")
    return by_name


def _programs(
    agents: Mapping[str, Agent],
    graph: nx.Graph[str],
    method: Method,
    pilots: Any,
    seed: int,
    rounds_per_epoch: int,
) -> dict[str, Node]:
    shared = as_pilot_set(pilots)
    homogeneous = len({agent.dimension for agent in agents.values()}) == 1
    nodes = {}
    for name, agent in agents.items():
        agent.start(seed)
        shared.of(name)
        neighbours = tuple(sorted(graph.neighbors(name)))
        # In one process nothing is secret, so that a run can be repeated.
        secret = derive(seed, name, "secret")
        setting = Setting(agent, neighbours, shared, seed, secret, rounds_per_epoch, homogeneous)
        nodes[name] = method.node(setting)
    return nodes


def _smallest_epoch(agents: Mapping[str, Agent]) -> int:
    return max(1, min(len(a.data.train) // a.batch_size for a in agents.values()))


def _check_counts(**counts: int | None) -> None:
    for name, value in counts.items():
        if value is not None and (not isinstance(value, int) or value < 1):
            raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
