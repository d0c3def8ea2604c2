"""What an epoch should be where agents have very different numbers of samples.

    python benchmarks/unequal_agents.py --seeds 3

Five agents on scikit-learn's digits, all classes alike, so that only the number of samples differs.
A rule decides the rounds of an epoch and nothing else: agents that took equally many rounds are
equal under every rule. One training, evaluated every ten rounds, therefore has the figures of all
rules. Sheaf-FRL with distillation, AdamW at 0.001, batches of 16.
"""

import argparse
import warnings
from statistics import mean, median

import torch
from sklearn.datasets import load_digits
from torch import nn

import sheafed
from sheafed import graphs
from sheafed.datasets import partitions

BATCH = 16
EPOCHS = (10, 20)
SIZES = {
    "one large": (800, 50, 50, 50, 50),
    "each a third of the next": (640, 213, 71, 24, 16),
    "one small": (240, 240, 240, 240, 20),
}
WIDTHS = ((96, 32), (64, 24), (48, 40), (80, 16), (32, 20))
RULES = {"smallest": min, "median": median, "mean": mean, "largest": max}
FIGURES = ("private_accuracy", "communication_accuracy")


def build(sizes, batch_sizes, seed):
    """Return agents with so many training samples each, and the pilots that they share."""
    images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
    images = (images / 16).float()
    generator = torch.Generator().manual_seed(seed)
    pilots, rest = partitions.hold_out(len(images), 0.15, generator)
    rest = rest[torch.randperm(len(rest), generator=generator)]
    test, rest = rest[:400], rest[400:]
    torch.manual_seed(seed)
    agents = []
    for number, (size, batch, (hidden, latent)) in enumerate(
        zip(sizes, batch_sizes, WIDTHS, strict=True)
    ):
        train, rest = rest[:size], rest[size:]
        encoder = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, latent))
        head = nn.Sequential(nn.Linear(latent, 32), nn.ReLU(), nn.Linear(32, 10))
        agents.append(
            sheafed.Agent(
                f"agent {number} of {size}",
                encoder,
                head,
                data={
                    "train": (images[train], labels[train]),
                    "test": (images[test], labels[test]),
                },
                optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
                batch_size=batch,
            )
        )
    return agents, images[pilots]


def curves(sizes, batch_sizes, rounds, seed):
    """Return the accuracies of the largest and the smallest agent, by the number of rounds."""
    agents, pilots = build(sizes, batch_sizes, seed)
    network = sheafed.train(
        agents,
        graphs.ring([agent.name for agent in agents]),
        sheafed.SheafFRL(distillation=sheafed.Distillation(), exchange_every=8),
        pilots,
        epochs=rounds // 10,
        rounds_per_epoch=10,
        seed=seed,
        oracle=False,
    )
    ends = agents[0].name, agents[-1].name
    return {
        record["round"]: [record["agents"][name][key] for key in FIGURES for name in ends]
        for record in network.history.records
    }


def row(cells, values):
    print("|" + "|".join([*map(str, cells), *(f"{value:.3f}".lstrip("0") for value in values)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", sheafed.errors.SheafedWarning)
    accuracies = "private, largest|private, smallest|received, largest|received, smallest"
    for name, sizes in SIZES.items():
        batches = [max(1, size // BATCH) for size in sizes]
        rules = {rule: max(1, int(of(batches) + 0.5)) for rule, of in RULES.items()}
        total = max(EPOCHS) * rules["largest"]
        proportional = [max(2, round(size / rules["mean"])) for size in sizes]
        found = {
            kind: [curves(sizes, batch, total, seed) for seed in range(given.seeds)]
            for kind, batch in {"equal": [BATCH] * 5, "proportional": proportional}.items()
        }

        def at(rounds, kind, found=found):
            seeds = [curve[rounds] for curve in found[kind]]
            return [mean(values) for values in zip(*seeds, strict=True)]

        print(f"\n{name}: {', '.join(map(str, sizes))} samples\n")
        print(f"|rule|epochs|steps|passes, largest|passes, smallest|{accuracies}|")
        print("|" + "---|" * 9)
        for rule, rounds in rules.items():
            for epochs in EPOCHS:
                steps = rounds * epochs
                passes = [f"{steps / max(1, sizes[end] / BATCH):.3g}" for end in (0, -1)]
                row([rule, epochs, steps, *passes], at(steps, "equal"))
        print(f"\n|steps|batches|{accuracies}|\n|" + "---|" * 6)
        for steps in sorted({rounds * EPOCHS[-1] for rounds in rules.values()}):
            row([steps, "equal"], at(steps, "equal"))
            row([steps, f"in proportion: {proportional}"], at(steps, "proportional"))


if __name__ == "__main__":
    main()
