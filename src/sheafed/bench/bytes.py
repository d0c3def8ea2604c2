"""How much fewer bytes buy the same communication accuracy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean

from sheafed.bench.measurement import Measurement
from sheafed.bench.workers import fresh_processes
from sheafed.config.federation import build
from sheafed.config.presets import preset
from sheafed.training import train

FULL = ("method.exchange_every=1", "method.quantisation=none")
FRUGAL = ("method.exchange_every=8", "method.quantisation=int8")
CASES = {
    "digits": ("digits",),
    "the MNIST pair": (
        "pair",
        "model.bottleneck=64",
        "data.train_fraction=0.1",
        "training.epochs=10",
    ),
}


def frugality(cases: Iterable[str], seeds: Sequence[int]) -> list[Measurement]:
    """Train with every pilot latent sent in full, and rarely in bytes; compare.

    No time is measured here, so the trainings share the cores.
    """
    chosen = {name: CASES[name] for name in cases}
    with fresh_processes() as pool:
        outcomes = {
            (name, way): [pool.submit(_outcome, config, (*settings, *way), seed) for seed in seeds]
            for name, (config, *settings) in chosen.items()
            for way in (FULL, FRUGAL)
        }
    found = []
    for name in chosen:
        full, frugal = ([run.result() for run in outcomes[name, way]] for way in (FULL, FRUGAL))
        accuracy = [fmean(a for a, _ in runs) for runs in (full, frugal)]
        sent = [fmean(b for _, b in runs) for runs in (full, frugal)]
        raw = {"full": full, "frugal": frugal, "seeds": list(seeds)}
        what = f"bytes of float32 latents every round over frugal ones, {name}"
        found.append(Measurement(7, what, 20.0, sent[0] / sent[1], at_most=False, raw=raw))
        what = f"communication accuracy lost by that, {name}"
        lost = 100 * (accuracy[0] - accuracy[1])
        found.append(Measurement(7, what, 1.0, lost, unit="points"))
    return found


def _outcome(config: str, overrides: Sequence[str], seed: int) -> tuple[float, int]:
    """Return the communication accuracy and the bytes of one training."""
    experiment = preset(config, [*overrides, f"seed={seed}"])
    federation = build(experiment)
    run = train(
        federation.agents,
        federation.graph,
        federation.method,
        federation.pilots,
        epochs=experiment.training.epochs,
        seed=seed,
        evaluate_every=experiment.training.epochs,
        oracle=False,
    )
    last = run.metrics[-1]
    return float(last["communication_accuracy"]), int(last["bytes_sent"])
