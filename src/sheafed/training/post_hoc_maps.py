"""Maps that are fitted after training, and what each choice of whitening makes of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import count
from typing import TYPE_CHECKING, Literal

from sheafed.errors import EmptyInputError, NonFiniteError, SingularCovarianceError
from sheafed.methods.divergence import divergence_of
from sheafed.methods.node import Node
from sheafed.methods.post_hoc_node import PostHocNode
from sheafed.methods.returned import checked_messages
from sheafed.training.scores import metric_signs, score
from sheafed.transport import Message, WaitPolicy
from sheafed.transport.wait_policy import Inbox

if TYPE_CHECKING:
    from sheafed.evaluation import Split
    from sheafed.training.live_network import Network

logger = logging.getLogger("sheafed.training")

Source = Literal["pilots", "private"]
Shrinkage = float | Literal["least"]
Settings = tuple[Source, Shrinkage]
"""What latents a node whitens by, and with what shrinkage."""

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
    _exchange(nodes, policy, round, _first_messages(nodes, round), newcomer)


def _first_messages(nodes: Mapping[str, Node], round: int) -> Iterator[list[Message]]:
    """Let one node after the other fit its whitening, and yield what it sends."""
    for name, node in nodes.items():
        with divergence_of(name, round):
            given = node.alignment_messages(round)
            messages = list(checked_messages(node, "alignment_messages", given))
        yield messages


def _exchange(
    nodes: Mapping[str, Node],
    policy: WaitPolicy,
    round: int,
    first: Iterable[list[Message]],
    newcomer: str | None = None,
) -> None:
    """Send the first messages, answer what arrives, and fit the maps."""
    for messages in first:
        policy.send(messages)
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
    that learn their maps in training have neither. One by which the latents of some agent cannot be
    whitened, e.g. those of a single training sample, is left out, and a warning is logged. Nodes
    get back their settings and the maps that were evaluated, and the ledger does not count what
    this sends.
    """
    nodes = [node for node in network.nodes.values() if isinstance(node, PostHocNode)]
    if not any(network.group.gather(bool(nodes))):
        return {}
    kept = [(node.source, node.shrinkage, deepcopy(node.state())) for node in nodes]
    sent = policy.transport.ledger.state()
    try:
        return _columns(network, policy, nodes)
    finally:
        for node, (source, shrinkage, maps) in zip(nodes, kept, strict=True):
            node.source, node.shrinkage = source, shrinkage
            node.load_state(maps)
        policy.transport.ledger.restore(sent)


def _columns(
    network: Network, policy: WaitPolicy, nodes: Sequence[PostHocNode]
) -> dict[str, dict[str, float | None]]:
    own, rounds = [node.shrinkage for node in nodes], count(network.history.rounds)

    def measure(
        column: str, settings: Sequence[Settings], split: Split
    ) -> dict[str, float | None] | None:
        """Return what is measured with other settings, unless they leave some agent no maps."""
        for node, (source, shrinkage) in zip(nodes, settings, strict=True):
            node.source, node.shrinkage = source, shrinkage
        if not _fit_if_possible(network, policy, next(rounds), column):
            return None
        return network.measure(policy, split, oracle=False).summary()

    fair: list[Settings] = [("pilots", shrinkage) for shrinkage in own]
    choice: dict[str, float | None] = {}
    if all(known.has_validation for known in network.metadata.values()):
        scores, validation, signs = {}, {}, metric_signs(network.metadata)
        for shrinkage in sorted({*SHRINKAGES, *(s for s in own if s != "least")}):
            found = measure("fair", [("pilots", shrinkage)] * len(nodes), "validation")
            if found is None:
                continue
            keys = [f"communication_{metric}" for metric in signs]
            validation[shrinkage] = {f"validation_{key}": found[key] for key in keys}
            scored = score({key: found[key] for key in keys}, signs)
            if scored is not None:
                scores[shrinkage] = scored
        if scores:
            best = max(scores, key=lambda shrinkage: scores[shrinkage])
            fair = [("pilots", best)] * len(nodes)
            choice = {"shrinkage": best, **validation[best]}
    columns = {}
    if (found := measure("fair", fair, "test")) is not None:
        columns["fair"] = _communication(found) | choice
    private: list[Settings] = [("private", "least")] * len(nodes)
    if (found := measure("as-in-paper", private, "test")) is not None:
        columns["as-in-paper"] = _communication(found)
    return columns


def _fit_if_possible(network: Network, policy: WaitPolicy, round: int, column: str) -> bool:
    """Fit all maps, unless the latents of some agent cannot be whitened; return whether they are.

    All processes decide before one of them sends: else some would wait for the others' messages.
    """
    first: list[list[Message]] = []
    problem = None
    try:
        first.extend(_first_messages(network.nodes, round))
    except (EmptyInputError, NonFiniteError, SingularCovarianceError) as found:
        problem = str(found)
    problems = [known for known in network.group.gather(problem) if known is not None]
    if problems:
        if network.group.rank == 0:
            logger.warning(
                "of the whitenings compared after training, %r is left out where it cannot be "
                "fitted: %s",
                column,
                "; ".join(problems),
            )
        return False
    _exchange(network.nodes, policy, round, first)
    return True


def _communication(summary: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return what whitenings are compared by."""
    return {
        key: value
        for key, value in summary.items()
        if key.startswith("communication_") or key == "misalignment"
    }
