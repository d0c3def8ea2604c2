"""Which optimiser to give an agent that names none: small tasks of several kinds.

    python benchmarks/default_optimizer.py --seeds 3

Two or three agents a task, Sheaf-FRL with distillation, batches of 32; private and communication
accuracy on validation data after 100 and after 300 steps, and the means over tasks. A training that
ends in numbers that are not finite has diverged.
"""

import argparse
import warnings
from functools import partial
from statistics import mean

import torch
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from torch import nn
from torch.optim import SGD, Adam, AdamW

import sheafed
from sheafed import graphs
from sheafed.datasets import partitions

STEPS = (100, 300)
OPTIMIZERS = {
    "SGD 0.01, momentum 0.9 (the paper's)": partial(SGD, lr=0.01, momentum=0.9, weight_decay=5e-4),
    "SGD 0.1, momentum 0.9": partial(SGD, lr=0.1, momentum=0.9, weight_decay=5e-4),
    "Adam 0.001": partial(Adam, lr=1e-3),
    "AdamW 0.0003": partial(AdamW, lr=3e-4),
    "AdamW 0.001": partial(AdamW, lr=1e-3),
    "AdamW 0.003": partial(AdamW, lr=3e-3),
    "AdamW 0.01": partial(AdamW, lr=1e-2),
}


class Bag(nn.Module):
    """The mean of word vectors, then a hidden layer."""

    def __init__(self, words, width, latent):
        super().__init__()
        self.vectors = nn.EmbeddingBag(words, width)
        self.out = nn.Sequential(nn.ReLU(), nn.Linear(width, latent))

    def forward(self, ids):
        return self.out(self.vectors(ids))


class Transformer(nn.Module):
    """Layers of attention over words with positions, and the mean over them."""

    def __init__(self, words, length, width, latent, layers=1):
        super().__init__()
        self.vectors = nn.Embedding(words, width)
        self.positions = nn.Parameter(torch.randn(length, width) / 10)
        layer = partial(nn.TransformerEncoderLayer, width, 4, 2 * width, 0.1, batch_first=True)
        self.layers = nn.Sequential(*(layer() for _ in range(layers)))
        self.out = nn.Linear(width, latent)

    def forward(self, ids):
        return self.out(self.layers(self.vectors(ids) + self.positions).mean(1))


def mlp(inputs, hidden, latent):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, latent))


def cnn(width, latent):
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        *(nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8 * width, latent)),
    )


def texts(seed, words=500, length=24, classes=6, samples=1500):
    """Return word ids (n, length) and topics; a word in three is of the text's topic."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (samples,), generator=generator)
    topics = torch.rand(classes, words, generator=generator).pow(8)
    own = torch.multinomial(topics[labels], length, replacement=True, generator=generator)
    common = torch.randint(words, (samples, length), generator=generator)
    chosen = torch.rand(samples, length, generator=generator) < 1 / 3
    return torch.where(chosen, own, common), labels


def table(load):
    inputs, labels = map(torch.as_tensor, load(return_X_y=True))
    return ((inputs - inputs.mean(0)) / inputs.std(0)).float(), labels


def counts(ids, words=500):
    return nn.functional.one_hot(ids, words).sum(1).float()


def task(name, seed):
    """Return inputs, labels and an encoder for each agent with its latent size."""
    if name == "digits, CNN and MLP":
        images, labels = map(torch.as_tensor, load_digits(return_X_y=True))
        return (images / 16).float(), labels, [cnn(8, 24), cnn(16, 40), mlp(64, 96, 32)]
    if name == "words counted, MLP":
        ids, labels = texts(seed)
        return counts(ids), labels, [mlp(500, 64, 24), mlp(500, 128, 32)]
    if name == "words, transformer and bag":
        return *texts(seed), [Transformer(500, 24, 32, 24), Bag(500, 64, 32)]
    if name == "words, four layers and bag":
        return *texts(seed), [Transformer(500, 24, 32, 24, layers=4), Bag(500, 64, 32)]
    inputs, labels = table({"breast cancer": load_breast_cancer, "wine": load_wine}[name])
    return inputs, labels, [mlp(inputs.shape[1], 32, 8), mlp(inputs.shape[1], 64, 12)]


TASKS = (
    "digits, CNN and MLP",
    "words counted, MLP",
    "words, transformer and bag",
    "words, four layers and bag",
    "breast cancer",
    "wine",
)


def measure(name, optimizer, seed):
    """Return private and communication accuracy on validation data, by the number of steps."""
    torch.manual_seed(seed)
    inputs, labels, encoders = task(name, seed)
    generator = torch.Generator().manual_seed(seed)
    pilots, rest = partitions.hold_out(len(inputs), 0.2, generator)
    names = [f"agent {number}" for number in range(len(encoders))]
    shares = partitions.iid(labels[rest], names, generator)
    agents = []
    for encoder, (agent, share) in zip(encoders, shares.items(), strict=True):
        latent = [m for m in encoder.modules() if isinstance(m, nn.Linear)][-1].out_features
        head = nn.Sequential(nn.Linear(latent, 32), nn.ReLU(), nn.Linear(32, int(labels.max()) + 1))
        parts = partitions.stratified_split(labels[rest[share]], (0.6, 0.3, 0.1), generator)
        samples = [(inputs[rest[share][rows]], labels[rest[share][rows]]) for rows in parts]
        data = dict(zip(("train", "validation", "test"), samples, strict=True))
        agents.append(
            sheafed.Agent(agent, encoder, head, data=data, optimizer=optimizer, batch_size=32)
        )
    try:
        network = sheafed.train(
            agents,
            graphs.complete(names),
            sheafed.SheafFRL(distillation=sheafed.Distillation(), exchange_every=8),
            inputs[pilots],
            epochs=STEPS[-1] // STEPS[0],
            rounds_per_epoch=STEPS[0],
            seed=seed,
            oracle=False,
        )
    except (sheafed.errors.NonFiniteError, torch.linalg.LinAlgError):
        return [[float("nan")] * 2] * len(STEPS)
    keys = ("validation_private_accuracy", "validation_communication_accuracy")
    found = {record["round"]: [record[key] for key in keys] for record in network.history.records}
    return [found[steps] for steps in STEPS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--task", action="append", choices=TASKS, help="by default all")
    parser.add_argument("--optimizer", default="", help="those whose name contains this")
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", sheafed.errors.SheafedWarning)
    tasks = given.task or TASKS
    optimizers = {label: of for label, of in OPTIMIZERS.items() if given.optimizer in label}
    found = {}
    for name in tasks:
        for label, optimizer in optimizers.items():
            runs = [measure(name, optimizer, seed) for seed in range(given.seeds)]
            found[name, label] = torch.tensor(runs).mean(0).tolist()
            print(name, label, found[name, label], flush=True)
    for number, steps in enumerate(STEPS):
        print(f"\n|{steps} steps|{'|'.join(tasks)}|mean|\n|" + "---|" * (len(tasks) + 2))
        for label in optimizers:
            cells = [found[name, label][number] for name in tasks]
            cells.append([mean(values) for values in zip(*cells, strict=True)])
            shown = [f"{p:.3f} / {c:.3f}".replace("0.", ".") for p, c in cells]
            text = "|".join("diverged" if "nan" in cell else cell for cell in shown)
            print(f"|{label}|{text}|")


if __name__ == "__main__":
    main()
