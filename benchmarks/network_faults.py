"""Eight agents with mutual TLS on loopback: killed, restarted and frozen, against undisturbed.

    python benchmarks/network_faults.py --out out/faults

Three of them are killed (SIGKILL) at random moments and restarted, another one is stopped
(SIGSTOP) for ten seconds. Prints the accuracies of both runs, and fails unless all agents finish
without a traceback, every directed edge is evaluated, every evaluation that was in a checkpoint
before a kill is in the metrics at the end, and the communication accuracies are within two points
of each other.
"""

import argparse
import json
import random
import signal
import time
from pathlib import Path

import networkx as nx

from sheafed.checkpointing.checkpoint import load_checkpoint
from sheafed.config.federation import build_federation
from sheafed.config.reading import read_experiment
from sheafed.network.launcher import CERTIFICATES, LOG, LocalLauncher
from sheafed.network.peer_summary import gather
from sheafed.transport.zenoh.certificates import make_certificates

WIDTHS = [(8, 16), (8, 24), (16, 32), (8, 20), (16, 28), (8, 16), (12, 24), (8, 32)]
NAMES = [f"agent{k}" for k in range(8)]
RESTART_SECONDS = 1.0
LARGEST_DIFFERENCE = 0.02
"""Of communication accuracy, between undisturbed and disturbed runs."""


def write_config(path: Path, epochs: int, seed: int) -> None:
    tables = [
        f"seed = {seed}",
        '[data]\nname = "digits"\npilot_fraction = 0.15\nsplit = [0.6, 0.2, 0.2]',
    ]
    for k, (name, widths) in enumerate(zip(NAMES, WIDTHS, strict=True)):
        targets = [(k + shift) % 10 for shift in range(5)]
        tables.append(
            f'[[model.agents]]\nname = "{name}"\nwidths = {list(widths)}\nhead = [32]\n'
            f"target_classes = {targets}"
        )
    edges = [(NAMES[k], NAMES[(k + step) % 8]) for k in range(8) for step in (1, 3)]
    tables.append(f'[graph]\nkind = "edges"\nedges = {[list(edge) for edge in edges]}')
    tables.append('[method]\nname = "sheaf-frl"\ndistillation = {}\nexchange_every = 1')
    tables.append(f"[training]\nepochs = {epochs}\nbatch_size = 16\nevaluate_every = 20")
    path.write_text("\n\n".join(tables), encoding="utf-8")


def wait_for_round(network: LocalLauncher, round: int) -> None:
    while network.running:
        statuses = network.statuses()
        if len(statuses) == 8 and max(s.round for s in statuses.values()) >= round:
            return
        time.sleep(0.1)


def disturb(network: LocalLauncher, total: int, chance: random.Random) -> dict[str, list[dict]]:
    """Kill three agents and freeze one; return the records in the checkpoints of the killed."""
    *killed, frozen = chance.sample(NAMES, 4)
    moments = sorted(chance.uniform(0.1, 0.8) for _ in range(4))
    actions = [("kill", name) for name in killed] + [("freeze", frozen)]
    chance.shuffle(actions)
    kept = {}
    for moment, (action, name) in zip(moments, actions, strict=True):
        wait_for_round(network, int(moment * total))
        print(f"round {int(moment * total)} of {total}: {action} {name}", flush=True)
        if action == "kill":
            network.send_signal(signal.SIGKILL, name)
            network.processes[name].wait()
            kept[name] = load_checkpoint(network.out / name / "checkpoint.safetensors")["metrics"]
            time.sleep(RESTART_SECONDS)
            network.start(name)
        else:
            network.send_signal(signal.SIGSTOP, name)
            time.sleep(10)
            network.send_signal(signal.SIGCONT, name)
    return kept


def problems_of(out: Path, graph: nx.Graph, kept: dict[str, list[dict]], edges: int) -> list[str]:
    """Return what is wrong with a run that all agents have finished."""
    found = [f"{name} raised" for name in NAMES if "Traceback" in (out / name / LOG).read_text()]
    for name, records in kept.items():
        lines = (out / name / "metrics.jsonl").read_text().splitlines()
        if [json.loads(line) for line in lines[: len(records)]] != records:
            found.append(f"{name} lost what it had checkpointed")
    expected = 2 * graph.number_of_edges()
    if edges != expected:
        found.append(f"{edges} of {expected} directed edges were evaluated")
    return [f"{out.name}: {problem}" for problem in found]


def run(
    config: Path, graph: nx.Graph, out: Path, chance: random.Random | None
) -> tuple[dict, list[str]]:
    """Return the summary of a training, and what was wrong with it."""
    make_certificates(out / CERTIFICATES, NAMES)
    began, kept = time.monotonic(), {}
    with LocalLauncher(str(config), graph, out, ["--deadline", "2", "--lease", "3"]) as network:
        network.start()
        if chance is not None:
            wait_for_round(network, 1)
            total = next(iter(network.statuses().values())).rounds
            kept = disturb(network, total, chance)
        codes = network.wait()
    if any(codes.values()):
        raise SystemExit(f"{out.name}: not all agents finished, exit codes: {codes}")
    summary = gather(out)
    statuses = network.statuses()
    print(f"{out.name}: {time.monotonic() - began:.0f} s")
    print(f"  private {summary['private_accuracy']:.4f}")
    print(f"  communication {summary['communication_accuracy']:.4f}, {len(summary['edges'])} edges")
    for name in NAMES:
        own = json.loads((out / name / "summary.json").read_text())
        print(
            f"  {name}: missed {own['missed_rounds']} of {own['rounds']} rounds, left out "
            f"{sum(own['left_out'].values())}, reused {sum(own['reused'].values())}, "
            f"rejected {statuses[name].rejected}"
        )
    return summary, problems_of(out, graph, kept, len(summary["edges"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("out/network_faults"))
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--chance", type=int, nargs="+", default=[0], help="seeds of the faults")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    config = options.out / "config.toml"
    write_config(config, options.epochs, options.seed)
    graph = build_federation(read_experiment(config)).graph
    calm, problems = run(config, graph, options.out / "undisturbed", None)
    key = "communication_accuracy"
    for chance in options.chance:
        out = options.out / f"disturbed-{chance}"
        faulty, found = run(config, graph, out, random.Random(chance))
        problems += found
        difference = faulty[key] - calm[key]
        print(f"  difference of communication: {100 * difference:+.2f} points")
        if abs(difference) > LARGEST_DIFFERENCE:
            problems.append(
                f"{out.name}: {100 * abs(difference):.2f} points from undisturbed, "
                f"at most {100 * LARGEST_DIFFERENCE:.0f} are expected"
            )
    if problems:
        raise SystemExit("\n".join(problems))


if __name__ == "__main__":
    main()
