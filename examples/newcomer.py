"""A fourth agent joins three that have trained together: understood at once, better after a while.

It has trained alone, on digits of its own, and then joins by its latents of the pilots: nobody
trains for that. Then it trains on for some epochs, and the others do not: not a bit of theirs
changes. A row per method says how well its neighbours read what it sends and it reads what they
send, right after it has joined and after it has trained on; and what the others achieve among
themselves, before and after.
"""

import argparse
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import sheafed
from sheafed.domain import graphs
from sheafed.runtime import ProgressBar
from sheafed.runtime.evaluation import mean
from three_agents import build, cnn, mlp

TARGETS = {
    "ada": [0, 1, 2, 3, 4],
    "bo": [3, 4, 5, 6, 7],
    "cy": [6, 7, 8, 9, 0],
    "dee": [1, 3, 5, 7, 9],
}
METHODS = {
    "Non-cooperative": sheafed.NonCooperative(),
    "Sheaf-FRL": sheafed.SheafFRL(),
    "Sheaf-FRL, strict": sheafed.SheafFRL(privacy="strict"),
    "Sheaf-FRL with beliefs": sheafed.SheafFRL(beliefs=sheafed.Beliefs()),
}


def train(agents, edges, method, pilots, epochs, seed):
    options = {"epochs": epochs, "evaluate_every": epochs, "seed": seed}
    return sheafed.train(agents, edges, method, pilots, callbacks=[ProgressBar()], **options)


def figures(evaluation):
    """Return how well the newcomer is read, how well it reads, and how the others do."""
    said = evaluation.communication
    others = evaluation.without("dee")
    return {
        "is read": mean(v for (sender, _), v in said.items() if sender == "dee"),
        "reads": mean(v for (_, receiver), v in said.items() if receiver == "dee"),
        "private": evaluation.private["dee"],
        "others": mean([*others.communication.values(), *others.private.values()]),
    }


def let_join(method, seed, epochs):
    """Return the figures of the newcomer right after joining and after training on."""
    torch.manual_seed(seed)
    encoders = {"ada": cnn(8, 24), "bo": cnn(16, 40), "cy": mlp(96, 32), "dee": mlp(64, 28)}
    (*three, dee), pilots = build(TARGETS, encoders, seed)
    run = train(three, graphs.ring(["ada", "bo", "cy"]), method, pilots, epochs, seed)
    train([dee], [], sheafed.NonCooperative(), pilots, epochs, seed)
    before = run.evaluation

    run.join(dee, ["ada", "bo", "cy"])
    joined = figures(run.evaluation)
    run.leave("dee")
    run.join(dee, ["ada", "bo", "cy"], epochs=max(1, epochs // 2))
    assert run.evaluation.without("dee") == before, "the others are disturbed"
    return joined, figures(run.evaluation)


def main(out=None, epochs=60, seed=0):
    torch.set_num_threads(1)  # small networks lose time to threads
    table = Table(title=f"Before and after the newcomer trains on, {epochs} epochs, seed {seed}")
    table.add_column("method")
    found = {name: let_join(method, seed, epochs) for name, method in METHODS.items()}
    for heading in next(iter(found.values()))[0]:
        table.add_column(heading)
    for name, (joined, trained) in found.items():
        table.add_row(name, *(f"{joined[k]:.3f} {trained[k]:.3f}" for k in joined))
    Console().print(table)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("w") as file:
            Console(file=file, width=100).print(table)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="a text file for the table")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
