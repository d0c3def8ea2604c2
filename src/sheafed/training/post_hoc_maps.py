"""Maps that are fitted after training, and what each choice of whitening makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from sheafed.methods.node import ALIGNMENT, Node
from sheafed.methods.post_hoc_node import PostHocNode
from sheafed.transport import WaitPolicy

if TYPE_CHECKING:
    from sheafed.training.live_network import Network

COLUMNS: dict[Literal["pilots", "private"], str] = {"pilots": "fair", "private": "as-in-paper"}
"""What tables call a whitening that is fitted on the pilots, or on private training data."""

FIGURES = ("communication_accuracy", "communication_accuracy_degree_weighted", "misalignment")


def fit_post_hoc_maps(nodes: Mapping[str, Node], policy: WaitPolicy, round: int) -> None:
    """Let methods that do not learn maps in training fit them now."""
    for node in nodes.values():
        policy.send(node.alignment_messages(round))
    neighbours = {name: node.neighbours for name, node in nodes.items()}
    inboxes = policy.collect(round, {ALIGNMENT: neighbours})[ALIGNMENT]
    for name, node in nodes.items():
        node.align(round, inboxes[name])


def compare_whitenings(network: Network, policy: WaitPolicy) -> dict[str, dict[str, float | None]]:
    """Measure communication on test data with both whitenings of one training.

    The columns `fair` and `as-in-paper` differ in the data that the whitening is fitted on and in
    nothing else. Methods that learn their maps in training have neither. Nodes are left as they
    were found, and the ledger does not count what this sends.
    """
    group, history = network.group, network.history
    post_hoc = [node for node in network.nodes.values() if isinstance(node, PostHocNode)]
    sources = {source for part in group.gather([n.source for n in post_hoc]) for source in part}
    if not sources:
        return {}
    sent, chosen = policy.transport.ledger.state(), min(sources)
    columns = {}
    for extra, source in enumerate(sorted(COLUMNS, key=lambda source: source == chosen)):
        for node in post_hoc:
            node.source = source
        fit_post_hoc_maps(network.nodes, policy, history.rounds + extra)
        figures = network.measure(policy, "test", oracle=False).summary()
        columns[COLUMNS[source]] = {key: figures[key] for key in FIGURES}
    policy.transport.ledger.restore(sent)
    return columns
