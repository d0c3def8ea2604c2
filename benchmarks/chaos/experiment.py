"""The training that is disturbed: small agents on digits, whose rounds take a given time."""

from collections.abc import Sequence
from pathlib import Path

METHOD = Path(__file__).parent / "paced_sheaf_frl.py"
WIDTHS = ([8, 16], [8, 24], [16, 32], [8, 20], [16, 28], [8, 16], [12, 24], [8, 32])
ROUNDS_PER_EPOCH = 8
ENDLESS = 1_000_000
"""Epochs: more than any soak reaches."""


def edges_of(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return a ring with chords: every agent has four neighbours, or all others if they are few."""
    count = len(names)
    pairs = {
        tuple(sorted((k, (k + step) % count)))
        for k in range(count)
        for step in (1, 3)
        if (k + step) % count != k
    }
    return [(names[i], names[j]) for i, j in sorted(pairs)]


def write_config(path: Path, names: Sequence[str], *, seed: int, pause: float) -> None:
    """Write the config of the agents.

    Args:
        path: of the TOML file.
        names: of the agents.
        seed: of the training.
        pause: seconds for which an agent does nothing in every round.
    """
    tables = [
        f"seed = {seed}",
        '[data]\nname = "digits"\npilot_fraction = 0.15\nsplit = [0.6, 0.2, 0.2]',
    ]
    for k, name in enumerate(names):
        targets = [(k + shift) % 10 for shift in range(5)]
        tables.append(
            f'[[model.agents]]\nname = "{name}"\nwidths = {WIDTHS[k % len(WIDTHS)]}\nhead = [32]\n'
            f"target_classes = {targets}"
        )
    tables.append(f'[graph]\nkind = "edges"\nedges = {[list(edge) for edge in edges_of(names)]}')
    tables.append(
        f'[method]\nname = "custom"\nfactory = "{METHOD.stem}:PacedSheafFRL"\n'
        f"options = {{ pause = {pause} }}"
    )
    tables.append(
        f"[training]\nepochs = {ENDLESS}\nrounds_per_epoch = {ROUNDS_PER_EPOCH}\n"
        "batch_size = 16\nevaluate_every = 10\noracle = false"
    )
    path.write_text("\n\n".join(tables), encoding="utf-8")
