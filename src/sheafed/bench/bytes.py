"""Bytes saved by rare and quantised exchanges, and the communication accuracy that they cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from sheafed.bench.measurement import Measurement, fresh_processes, standard_error
from sheafed.config.federation import build_federation
from sheafed.config.reading import read_experiment
from sheafed.training import train

FULL = ("method.exchange_every=1", "method.quantisation=none")
REDUCED = ("method.exchange_every=8", "method.quantisation=int8")
CASES = {
    "digits": ("digits",),
    "the MNIST pair": (
        "pair",
        "model.bottleneck=64",
        "data.train_fraction=0.1",
        "training.epochs=10",
    ),
}


def byte_savings(cases: Iterable[str], seeds: Sequence[int]) -> list[Measurement]:
    """Compare an exchange of float32 latents in every round with one of bytes in every 8th.

    No time is measured here, so the trainings share the cores.
    """
    chosen = {name: CASES[name] for name in cases}
    with fresh_processes() as pool:
        running = {
            (name, way): [pool.submit(_train, config, (*settings, *way), seed) for seed in seeds]
            for name, (config, *settings) in chosen.items()
            for way in (FULL, REDUCED)
        }
    found = []
    for name in chosen:
        full, reduced = ([run.result() for run in running[name, way]] for way in (FULL, REDUCED))
        accuracy = [fmean(a for a, _ in runs) for runs in (full, reduced)]
        sent = [fmean(b for _, b in runs) for runs in (full, reduced)]
        raw = {"full": full, "reduced": reduced, "seeds": list(seeds)}
        what = f"bytes of float32 latents every round over int8 every 8th, {name}"
        saved = sent[0] / sent[1]
        found.append(Measurement(7, what, 20.0, saved, at_most=False, noise=0.0, raw=raw))
        what = f"communication accuracy lost by the latter, {name}"
        lost = 100 * (accuracy[0] - accuracy[1])
        noise = standard_error(
            [100 * (a - b) for (a, _), (b, _) in zip(full, reduced, strict=True)]
        )
        found.append(Measurement(7, what, 1.0, lost, unit="points", noise=noise))
    return found


def _train(config: str, overrides: Sequence[str], seed: int) -> tuple[float, int]:
    """Return the communication accuracy and the bytes of one training."""
    experiment = read_experiment(config, [*overrides, f"seed={seed}"])
    federation = build_federation(experiment)
    run = train(
        federation.agents,
        federation.graph,
        federation.method,
        federation.pilots,
        epochs=experiment.training.epochs,
        seed=seed,
        rounds_per_epoch=federation.rounds_per_epoch,
        evaluate_every=experiment.training.epochs,
        oracle=False,
        progress=False,
    )
    last = run.history.records[-1]
    return float(last["communication_accuracy"]), int(last["bytes_sent"])
