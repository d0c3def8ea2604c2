"""What an evaluation costs, in rounds of training."""

from __future__ import annotations

from sheafed.experiments.bench.measurement import Measurement, interleaved, ratio
from sheafed.experiments.bench.networks import zoo
from sheafed.methods import SheafFRL
from sheafed.runtime.evaluation import evaluate


def evaluations(repeats: int) -> list[Measurement]:
    """Compare an evaluation of the 15 agents, both directions of 42 edges, with a round."""
    network = zoo(SheafFRL())
    network.step()
    evaluate(network.nodes, "test", ceiling=False)
    seconds = interleaved(
        {
            "round": network.step,
            "accuracies": lambda: evaluate(network.nodes, "test", ceiling=False),
            "with ceilings": lambda: evaluate(network.nodes, "test", ceiling=True),
        },
        repeats,
        warm_up=0,
    )
    what = "an evaluation of 15 agents, in rounds"
    return [
        Measurement(4, what, 2.0, ratio(seconds, "accuracies", "round"), raw=seconds),
        Measurement(4, f"{what}, with ceilings", 9.0, ratio(seconds, "with ceilings", "round")),
    ]
