"""The time of an evaluation, in rounds of training."""

from __future__ import annotations

from sheafed.bench.measurement import Measurement, interleaved, ratios
from sheafed.bench.networks import zoo
from sheafed.evaluation import evaluate_locally
from sheafed.methods import SheafFRL


def evaluation(repeats: int) -> list[Measurement]:
    """Compare an evaluation of the 15 agents, both directions of 42 edges, with a round."""
    network = zoo(SheafFRL())
    network.step()
    evaluate_locally(network.nodes, "test", oracle=False)
    seconds = interleaved(
        {
            "round": network.step,
            "accuracies": lambda: evaluate_locally(network.nodes, "test", oracle=False),
            "with oracle": lambda: evaluate_locally(network.nodes, "test", oracle=True),
        },
        repeats,
        warm_up=0,
    )
    what = "an evaluation of 15 agents, in rounds"
    alone, both = (ratios(seconds, each, "round") for each in ("accuracies", "with oracle"))
    return [
        Measurement.of_turns(4, what, 2.0, alone, raw=seconds),
        Measurement.of_turns(4, f"{what}, with oracle accuracy", 9.0, both),
    ]
