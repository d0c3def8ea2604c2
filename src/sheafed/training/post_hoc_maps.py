"""Maps that are fitted after training, and what each choice of whitening makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import count
from typing import TYPE_CHECKING, Literal

from sheafed.methods.divergence import divergence_of
from sheafed.methods.node import Node
from sheafed.methods.post_hoc_node import PostHocNode
from sheafed.methods.returned import checked_messages
from sheafed.training.scores import metric_signs, score
from sheafed.transport import Message, WaitPolicy
from sheafed.transport.wait_policy import Inbox

if TYPE_CHECKING:
    from sheafed.training.live_network import Network

Source = Literal["pilots", "private"]
Shrinkage = float | Literal["least"]

SHRINKAGES = (0.1, 0.5, 0.9)
"""The candidates for the shrinkage of a fair whitening, beside the method's own."""


def fit_post_hoc_maps(
    nodes: Mapping[str, Node], policy: WaitPolicy, round: int, *, newcomer: str | None = None
) -> None:
    """Let methods that do not learn maps in training fit them now.

    Agents answer what they must answer as it arrives: an absent neighbour holds up nobody else.

    Args:
        nodes: of this process.
        policy: how messages are sent and waited for.
        round: of the messages.
        newcomer: an agent that must change nothing in others but the maps of its own edges.
    """
    for name, node in nodes.items():
        with divergence_of(name, round):
            given = node.alignment_messages(round)
            policy.send(checked_messages(node, "alignment_messages", given))
    exchanges = {name: node.alignment_exchange for name, node in nodes.items()}
    last = {name: list(exchange)[-1] for name, exchange in exchanges.items()}
    kinds = dict.fromkeys(kind for exchange in exchanges.values() for kind in exchange)
    expected = {kind: {name: exchanges[name].get(kind, ()) for name in nodes} for kind in kinds}

    def reply(receiver: str, kind: str, inbox: Inbox) -> Iterator[Message]:
        if kind != last[receiver]:
            with divergence_of(receiver, round):
                yield from nodes[receiver].answer_alignment(round, inbox)

    inboxes = policy.collect(round, expected, reply)
    for name, node in nodes.items():
        inbox = inboxes[last[name]][name]
        with divergence_of(name, round):
            if newcomer is not None and isinstance(node, PostHocNode):
                node.align(round, inbox, newcomer=newcomer)
            else:
                node.align(round, inbox)


def compare_whitenings(network: Network, policy: WaitPolicy) -> dict[str, dict[str, float | None]]:
    """Measure communication on test data with two whitenings of one training.

    `fair`: fitted on the pilots, as Sheaf-FRL has it, with that of `SHRINKAGES` and the method's
    own by which agents understand each other best on validation data; with the method's own if they
    have none, or if nothing can be measured there.
    `as-in-paper`: classical ZCA fitted on private training data, with the least shrinkage. Methods
    that learn their maps in training have neither. Nodes get back their settings
    and the maps that were evaluated, and the ledger does not count what this sends.
    """
    nodes = [node for node in network.nodes.values() if isinstance(node, PostHocNode)]
    if not any(network.group.gather(bool(nodes))):
        return {}
    kept = [(node.source, node.shrinkage) for node in nodes]
    fitted = [deepcopy(node.state()) for node in nodes]
    sent, rounds = policy.transport.ledger.state(), count(network.history.rounds)

    def fit(settings: Sequence[tuple[Source, Shrinkage]]) -> None:
        for node, (source, shrinkage) in zip(nodes, settings, strict=True):
            node.source, node.shrinkage = source, shrinkage
        fit_post_hoc_maps(network.nodes, policy, next(rounds))

    def figures() -> dict[str, float | None]:
        return _communication(network.measure(policy, "test", oracle=False).summary())

    fair: list[tuple[Source, Shrinkage]] = [("pilots", shrinkage) for _, shrinkage in kept]
    choice: dict[str, float | None] = {}
    if all(known.has_validation for known in network.metadata.values()):
        scores, validation, signs = {}, {}, metric_signs(network.metadata)
        for shrinkage in sorted({*SHRINKAGES, *(s for _, s in kept if s != "least")}):
            fit([("pilots", shrinkage)] * len(nodes))
            found = network.measure(policy, "validation", oracle=False).summary()
            keys = [f"communication_{metric}" for metric in signs]
            validation[shrinkage] = {f"validation_{key}": found[key] for key in keys}
            scored = score({key: found[key] for key in keys}, signs)
            if scored is not None:
                scores[shrinkage] = scored
        if scores:
            best = max(scores, key=lambda shrinkage: scores[shrinkage])
            fair = [("pilots", best)] * len(nodes)
            choice = {"shrinkage": best, **validation[best]}
    fit(fair)
    columns = {"fair": figures() | choice}
    fit([("private", "least")] * len(nodes))
    columns["as-in-paper"] = figures()
    for node, settings, maps in zip(nodes, kept, fitted, strict=True):
        node.source, node.shrinkage = settings
        node.load_state(maps)
    policy.transport.ledger.restore(sent)
    return columns


def _communication(summary: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return what whitenings are compared by."""
    return {
        key: value
        for key, value in summary.items()
        if key.startswith("communication_") or key == "misalignment"
    }
