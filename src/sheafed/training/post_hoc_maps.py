"""Maps that are fitted after training, and what each choice of whitening makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Literal

from sheafed.methods.node import ALIGNMENT, Node
from sheafed.methods.post_hoc_node import PostHocNode
from sheafed.transport import WaitPolicy

if TYPE_CHECKING:
    from sheafed.training.live_network import Network

Source = Literal["pilots", "private"]
Shrinkage = float | Literal["least"]

SHRINKAGES = (0.1, 0.5, 0.9)
"""The candidates for the shrinkage of a fair whitening, beside the method's own."""

FIGURES = ("communication_accuracy", "communication_accuracy_degree_weighted", "misalignment")
CHOICE = "validation_communication_accuracy"


def fit_post_hoc_maps(nodes: Mapping[str, Node], policy: WaitPolicy, round: int) -> None:
    """Let methods that do not learn maps in training fit them now."""
    for node in nodes.values():
        policy.send(node.alignment_messages(round))
    neighbours = {name: node.neighbours for name, node in nodes.items()}
    inboxes = policy.collect(round, {ALIGNMENT: neighbours})[ALIGNMENT]
    for name, node in nodes.items():
        node.align(round, inboxes[name])


def compare_whitenings(network: Network, policy: WaitPolicy) -> dict[str, dict[str, float | None]]:
    """Measure communication on test data with two whitenings of one training.

    `fair`: fitted on the pilots, as Sheaf-FRL has it, with that of `SHRINKAGES` and the method's
    own by which agents understand each other best on validation data; with the method's own if they
    have none.
    `as-in-paper`: classical ZCA fitted on private training data, with the least shrinkage. Methods
    that learn their maps in training have neither. Nodes get back their settings, and the ledger
    does not count what this sends.
    """
    nodes = [node for node in network.nodes.values() if isinstance(node, PostHocNode)]
    if not any(network.group.gather(bool(nodes))):
        return {}
    kept = [(node.source, node.shrinkage) for node in nodes]
    sent, rounds = policy.transport.ledger.state(), count(network.history.rounds)

    def fit(settings: Sequence[tuple[Source, Shrinkage]]) -> None:
        for node, (source, shrinkage) in zip(nodes, settings, strict=True):
            node.source, node.shrinkage = source, shrinkage
        fit_post_hoc_maps(network.nodes, policy, next(rounds))

    def figures() -> dict[str, float | None]:
        found = network.measure(policy, "test", oracle=False).summary()
        return {key: found[key] for key in FIGURES}

    fair: list[tuple[Source, Shrinkage]] = [("pilots", shrinkage) for _, shrinkage in kept]
    choice: dict[str, float | None] = {}
    if all(known.has_validation for known in network.metadata.values()):
        scores = {}
        for shrinkage in sorted({*SHRINKAGES, *(s for _, s in kept if s != "least")}):
            fit([("pilots", shrinkage)] * len(nodes))
            found = network.measure(policy, "validation", oracle=False).summary()
            scores[shrinkage] = found["communication_accuracy"] or 0.0
        best = max(scores, key=lambda shrinkage: scores[shrinkage])
        fair = [("pilots", best)] * len(nodes)
        choice = {"shrinkage": best, CHOICE: scores[best]}
    fit(fair)
    columns = {"fair": figures() | choice}
    fit([("private", "least")] * len(nodes))
    columns["as-in-paper"] = figures()
    fit(kept)
    policy.transport.ledger.restore(sent)
    return columns
