"""Peak memory of a training of the 15 agents, without its data."""

from __future__ import annotations

from sheafed.bench.measurement import Measurement, peak_bytes
from sheafed.bench.networks import zoo
from sheafed.evaluation import evaluate_locally
from sheafed.methods import SheafFRL

TRAIN, TEST = 3360, 420
"""Samples per agent, as on MNIST."""


def memory(rounds: int, pilots: int) -> list[Measurement]:
    """Measure the peak memory of rounds before and after an evaluation, in this process."""
    network = zoo(SheafFRL(), train=TRAIN, test=TEST, pilots=pilots)
    for _ in range(rounds):
        network.step()
    evaluate_locally(network.nodes, "test", oracle=False)  # the oracle takes no more memory
    for _ in range(rounds):
        network.step()
    data = 28 * 28 * (15 * (TRAIN + TEST) + 4 * pilots)
    above = (peak_bytes() - data) / 2**30
    what = "peak memory of a training of 15 agents, above its data"
    return [Measurement(8, what, 1.5, above, unit="GiB", raw={"data bytes": data})]
