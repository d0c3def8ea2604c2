"""One network of many small agents on one, two and four processes: do all end alike?

    python benchmarks/many_agents_cluster.py --agents 2000 --processes 1,2,4

The agents of `many_agents.py` train for some rounds, one process or torchrun after another, and are
evaluated. Bytes must be the same, figures up to rounding: agents of one process step together, and
others share a process with them where there are several. Seconds are those of the training on the
clock, without start-up; peak memory is that of rank 0.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from contextlib import nullcontext
from math import isclose
from pathlib import Path

import networkx as nx
import torch

from sheafed.bench.networks import small_agent, small_pilots
from sheafed.methods import ConsensusDistillation, NonCooperative, SheafFRL
from sheafed.training import Cluster, train
from sheafed.training.allocator import keep_freed_memory
from sheafed.training.summary import peak_memory
from sheafed.training.torchrun import in_cluster

METHODS = {
    "non-cooperative": NonCooperative,
    "sheaf-frl": SheafFRL,
    "consensus-distillation": lambda: ConsensusDistillation(confidence=0.05),
}
FIGURES = ("private_accuracy", "communication_accuracy", "misalignment", "loss")
DEGREE = 4


def work(count, method, rounds, out):
    """Train this process's share of the agents."""
    torch.set_num_threads(1)
    keep_freed_memory()
    names = [f"agent-{k:05}" for k in range(count)]
    edges = [(names[a], names[b]) for a, b in nx.random_regular_graph(DEGREE, count, seed=0).edges]
    with Cluster() if in_cluster() else nullcontext() as cluster:
        here, is_first = names, True
        if cluster is not None:
            is_first = cluster.rank == 0
            here = cluster.place(dict.fromkeys(names, 1.0) if is_first else None)
        network = train(
            [small_agent(name) for name in here],
            edges,
            METHODS[method](),
            small_pilots(),
            epochs=1,
            rounds_per_epoch=rounds,
            oracle=False,
            progress=False,
            group=cluster,
        )
        if is_first:
            record = network.history.last
            found = {key: record[key] for key in FIGURES if record.get(key) is not None}
            found |= {
                "bytes": network.history.ledger.bytes_sent(),
                "together": network.history.vectorized,
                "seconds": network.history.seconds,
                "peak GiB": peak_memory() / 2**30,
            }
            out.write_text(json.dumps(found))


def run(processes, arguments, out):
    """Run this file as a worker, by torchrun if there are several processes."""
    command = [__file__, *arguments, "--out", str(out)]
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    subprocess.run([sys.executable, *(launcher if processes > 1 else []), *command], check=True)
    return json.loads(out.read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, default=2000)
    parser.add_argument("--method", choices=METHODS, default="sheaf-frl")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--processes", default="1,2,4")
    parser.add_argument("--out", type=Path, help="set in the processes that this one starts")
    given = parser.parse_args()
    if given.out is not None:
        work(given.agents, given.method, given.rounds, given.out)
        return
    options = ["--agents", given.agents, "--method", given.method, "--rounds", given.rounds]
    found = []
    with tempfile.TemporaryDirectory() as directory:
        for processes in map(int, given.processes.split(",")):
            out = Path(directory) / f"{processes}.json"
            found.append(run(processes, list(map(str, options)), out))
            print(json.dumps({"processes": processes} | found[-1]), flush=True)
    same = all(
        other["bytes"] == found[0]["bytes"]
        and all(isclose(other[key], found[0][key], rel_tol=1e-3) for key in FIGURES if key in other)
        for other in found[1:]
    )
    print("the same figures" if same else "FIGURES DIFFER")
    raise SystemExit(not same)


if __name__ == "__main__":
    main()
