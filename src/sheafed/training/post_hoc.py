"""Maps that are fitted after training, and what each choice of whitening makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sheafed.methods.node import ALIGNMENT, Node
from sheafed.methods.post_hoc import PostHocNode
from sheafed.training.process_group import ProcessGroup
from sheafed.transport import Transport

COLUMNS: dict[Literal["pilots", "private"], str] = {"pilots": "fair", "private": "as-in-paper"}
"""What tables call a whitening that is fitted on the pilots, or on private training data."""

FIGURES = ("communication_accuracy", "communication_accuracy_degree_weighted", "misalignment")


def fit_post_hoc_maps(nodes: Mapping[str, Node], transport: Transport, round: int) -> None:
    """Let methods that do not learn maps fit them now."""
    for node in nodes.values():
        transport.send(node.alignment_messages(round))
    transport.barrier(round, ALIGNMENT)
    for node in nodes.values():
        node.align(round, transport.receive(node.name, round, ALIGNMENT, node.neighbours))


def compare_whitenings(
    nodes: Mapping[str, Node], transport: Transport, round: int, group: ProcessGroup
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
    sent, chosen = transport.ledger.state(), min(sources)
    columns = {}
    for extra, source in enumerate(sorted(COLUMNS, key=lambda source: source == chosen)):
        for node in post_hoc:
            node.source = source
        fit_post_hoc_maps(nodes, transport, round + extra)
        figures = group.evaluate(nodes, "test", oracle=False).summary()
        columns[COLUMNS[source]] = {key: figures[key] for key in FIGURES}
    transport.ledger.restore(sent)
    return columns
