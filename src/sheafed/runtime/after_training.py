"""Maps that are fitted after training, and what each choice of whitening makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sheafed.exchange import Exchange
from sheafed.methods.node import ALIGNMENT, Node
from sheafed.methods.noncooperative import PostHocNode
from sheafed.runtime.group import Group

COLUMNS: dict[Literal["pilots", "private"], str] = {"pilots": "fair", "private": "as-in-paper"}
"""What tables call a whitening that is fitted on the pilots, or on private training data."""

FIGURES = ("communication_accuracy", "communication_accuracy_degree_weighted", "misalignment")


def align_after_training(nodes: Mapping[str, Node], exchange: Exchange, round: int) -> None:
    """Let methods that do not learn maps fit them now."""
    for node in nodes.values():
        exchange.send(node.alignment_messages(round))
    exchange.settle(round, ALIGNMENT)
    for node in nodes.values():
        node.align(round, exchange.receive(node.name, round, ALIGNMENT, node.neighbours))


def compare_whitenings(
    nodes: Mapping[str, Node], exchange: Exchange, round: int, group: Group
) -> dict[str, dict[str, float | None]]:
    """Measure communication on test data with both whitenings of one training.

    The columns `fair` and `as-in-paper` differ in the data that the whitening is fitted on and in
    nothing else. Methods that learn their maps in training have neither. Nodes are left as they
    were found, and the ledger does not count what this sends.

    Args:
        nodes: the programs, after training.
        exchange: what carries their messages.
        round: the first that has not been; what is sent counts as of it and of the next.
        group: the processes in which they live.
    """
    post_hoc = [node for node in nodes.values() if isinstance(node, PostHocNode)]
    sources = {source for part in group.gather([n.source for n in post_hoc]) for source in part}
    if not sources:
        return {}
    sent, chosen = exchange.ledger.state(), min(sources)
    columns = {}
    for extra, source in enumerate(sorted(COLUMNS, key=lambda source: source == chosen)):
        for node in post_hoc:
            node.source = source
        align_after_training(nodes, exchange, round + extra)
        figures = group.evaluate(nodes, "test", ceiling=False).summary()
        columns[COLUMNS[source]] = {key: figures[key] for key in FIGURES}
    exchange.ledger.restore(sent)
    return columns
