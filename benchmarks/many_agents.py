"""What an agent of one architecture costs per round, in networks of 200 to 10,000 agents.

    python benchmarks/many_agents.py --agents 200,1000,10000

Small convolutional agents (two blocks, d = 16, batches of 64 images of 8 x 8 pixels) on a random
regular graph of degree 4, in one process. Up to `--compare` agents the same network also steps one
by one, turn by turn with the other, so that the ratio does not depend on what else the machine
does. CPU time and the time on the clock are per agent and round; memory is that of the process.
"""

import argparse
import gc
import json
import time
from statistics import median

import networkx as nx
import torch

from sheafed.bench.networks import small_agents
from sheafed.methods import ConsensusDistillation, NonCooperative, SheafFRL
from sheafed.training.allocator import keep_freed_memory
from sheafed.training.garbage import existing_objects_kept
from sheafed.training.single_round import group_agents, run_round
from sheafed.training.summary import peak_memory
from sheafed.transport import Barrier

METHODS = {
    "non-cooperative": NonCooperative,
    "sheaf-frl": SheafFRL,
    "consensus-distillation": lambda: ConsensusDistillation(confidence=0.05),
}
DEGREE = 4


def measure(count, method, rounds, compare):
    """Return the costs of a network; one by one too, if that is to be compared."""
    began = time.process_time()
    names = [f"agent-{k:05}" for k in range(count)]
    graph = nx.random_regular_graph(DEGREE, count, seed=0)
    edges = [(names[a], names[b]) for a, b in graph.edges]
    ways = ("together", "one by one") if compare else ("together",)
    networks = {way: small_agents(names, edges, METHODS[method]()) for way in ways}
    building = (time.process_time() - began) / len(ways)
    nodes = networks["together"].nodes
    groupings = {"together": group_agents(nodes, networks["together"].pilots)}
    cpu, clock = ({way: [] for way in ways} for _ in range(2))
    with existing_objects_kept(count):
        for k in range(rounds + 1):
            for way, network in networks.items():
                start = time.process_time(), time.perf_counter()
                run_round(network.nodes, Barrier(network.transport), k, groupings.get(way))
                if k:  # the first one warms up
                    cpu[way].append(time.process_time() - start[0])
                    clock[way].append(time.perf_counter() - start[1])
    found = {
        "agents": count,
        "method": method,
        "together": groupings["together"].summary(),
        "CPU s of building": building,
        "CPU ms per agent": {way: 1e3 * median(cpu[way]) / count for way in ways},
        "CPU s per round": {way: median(cpu[way]) for way in ways},
        "s per round": {way: median(clock[way]) for way in ways},
        "bytes per agent and round": networks["together"].transport.ledger.bytes_sent(kind="round")
        / count
        / (rounds + 1),
        "peak GiB": peak_memory() / 2**30,
    }
    if compare:
        found["times faster"] = median(
            a / b for a, b in zip(cpu["one by one"], cpu["together"], strict=True)
        )
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", default="200,1000,10000")
    parser.add_argument("--methods", default="non-cooperative,sheaf-frl")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compare", type=int, default=1000, help="largest network to step twice")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    keep_freed_memory()
    for method in given.methods.split(","):
        for count in map(int, given.agents.split(",")):
            found = measure(count, method, given.rounds, compare=count <= given.compare)
            print(json.dumps(found), flush=True)
            gc.collect()


if __name__ == "__main__":
    main()
