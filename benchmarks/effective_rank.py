"""How many directions the penalty leaves to the latents, over its weight: the preset `digits`.

    python benchmarks/effective_rank.py --penalty 0.1 1 --seeds 4

The effective rank is the exponential of the entropy of the spectrum of the pilots' latents, here
its mean over the agents.
"""

import argparse
import warnings

import torch
from torch import Tensor

from sheafed import train
from sheafed.config import build_federation, read_experiment
from sheafed.errors import SheafedWarning


def effective_rank(latents: Tensor) -> float:
    shares = torch.linalg.eigvalsh(torch.cov(latents.mT).double()).clamp_min(1e-300)
    shares = shares / shares.sum()
    return float(torch.exp(-(shares * shares.log()).sum()))


def measure(overrides: list[str], seed: int) -> list[float]:
    """Return private and communication accuracy, misalignment and effective rank."""
    experiment = read_experiment("digits", [*overrides, f"seed={seed}"])
    built, epochs = build_federation(experiment), experiment.training.epochs
    network = train(
        built.agents,
        built.graph,
        built.method,
        built.pilots,
        epochs=epochs,
        rounds_per_epoch=built.rounds_per_epoch,
        evaluate_every=epochs,
        seed=seed,
        oracle=False,
    )
    ranks = []
    for name, agent in network.agents.items():
        agent.encoder.eval()
        with torch.no_grad():
            ranks.append(effective_rank(agent.encode(built.pilots.of(name))))
    last = network.history.last
    keys = ("private_accuracy", "communication_accuracy", "misalignment")
    return [*(last[key] for key in keys), sum(ranks) / len(ranks)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--penalty", type=float, nargs="+", default=[0.1, 0.3, 1.0, 3.0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", SheafedWarning)
    print("| λ | private | communication | misalignment | effective rank |\n|---|---|---|---|---|")
    for penalty in given.penalty:
        overrides = [f"method.penalty={penalty}", *given.set]
        rows = torch.tensor([measure(overrides, seed) for seed in range(given.seeds)])
        print(f"| {penalty:g} | " + " | ".join(f"{mean:.3f}" for mean in rows.mean(0)) + " |")


if __name__ == "__main__":
    main()
