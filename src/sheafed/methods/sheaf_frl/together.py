r"""A round of Sheaf-FRL for many agents of one architecture at once.

It is what `SheafFRLNode` does agent by agent, with one whitening for all, one decomposition for all
maps of one shape, and penalties that go backward with the objectives. Messages are read, and maps
applied, by each agent for itself. Encoders that are frozen, compressed stalks, pilots that are
means, and other whitenings than ZCA are left to the nodes, whose models still compute at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sheafed.errors import NonFiniteError, SingularCovarianceError
from sheafed.linalg.running_zca import RunningZCA, whiten_together
from sheafed.methods.divergence import divergence_of
from sheafed.methods.local_loss import check_losses
from sheafed.methods.node import Node
from sheafed.methods.pilot_encoder import check_pilot_latents
from sheafed.methods.sheaf_frl.gluing_penalty import gluing_penalties
from sheafed.methods.sheaf_frl.map_updates import solve_together
from sheafed.transport.message import Message
from sheafed.vectorized import StackedCohort

if TYPE_CHECKING:
    from sheafed.methods.sheaf_frl.node import SheafFRLNode

Nodes = Sequence["SheafFRLNode"]
Inboxes = Mapping[str, Mapping[str, Message]]
Logs = dict[str, dict[str, float]]
WHITE = "white pilots"
"""What is kept of an exchange from sending to receiving."""
_DIVERGED = (NonFiniteError, torch.linalg.LinAlgError)  # type: ignore[attr-defined]


def before_send(nodes: Nodes, round: int, cohort: StackedCohort) -> None:
    """Encode and whiten the pilots of all members, if it can be done at once."""
    if nodes[0].map_updates.is_exchanged(round) and is_possible(nodes):
        raw, white = white_pilots(nodes, round, cohort)
        cohort.kept[WHITE] = white
        for node, *encoded in zip(nodes, raw.detach(), white.detach(), strict=True):
            node.encoded = (encoded[0], encoded[1])


def receive_together(nodes: Nodes, round: int, inboxes: Inboxes, cohort: StackedCohort) -> Logs:
    """Do what `receive` of each member does."""
    if nodes[0].map_updates.is_exchanged(round):
        if WHITE in cohort.kept:
            return _receive_exchange(nodes, round, inboxes, cohort)
    elif is_possible(nodes):
        rounds = {node.compared_round() for node in nodes}
        if len(rounds) == 1:  # else some have nothing to compare with, and encode nothing
            (then,) = rounds
            white = None if then is None else white_pilots(nodes, then, cohort)[1]
            return take_steps(nodes, round, cohort, white)
    return Node.receive_together(nodes, round, inboxes, cohort)


def is_possible(nodes: Nodes) -> bool:
    """Whether all members whiten alike, so that they can take a round together."""
    first = nodes[0]
    if first.method.edge_dim is not None or first.pilot_policy.select(0).groups is not None:
        return False
    return all(
        type(node.whitening) is RunningZCA
        and not node.agent.frozen
        and node.penalised == first.penalised
        and node.method.edge_dim is None
        and node.pilot_policy == first.pilot_policy
        and node.map_updates.exchange_every == first.map_updates.exchange_every
        for node in nodes
    )


def white_pilots(nodes: Nodes, round: int, cohort: StackedCohort) -> tuple[Tensor, Tensor]:
    """Return the latents of a round's pilots `(agents, K, d)`, raw and white, as agents learn."""
    indices = nodes[0].pilot_policy.select(round).indices
    with torch.set_grad_enabled(nodes[0].penalised):
        raw = cohort.encode_all_pilots(indices)
        if not bool(torch.isfinite(raw).all()):
            for node, latents in zip(nodes, raw, strict=True):
                check_pilot_latents(node.agent, latents, node.context.pilots, round)
        layers = [node.whitening.train() for node in nodes]
        try:
            return raw, whiten_together(layers, raw)  # type: ignore[arg-type]
        except (SingularCovarianceError, *_DIVERGED):
            for node, latents in zip(nodes, raw, strict=True):
                with divergence_of(node.name, round):
                    node.whitening.train()(latents)
            raise


def _receive_exchange(nodes: Nodes, round: int, inboxes: Inboxes, cohort: StackedCohort) -> Logs:
    """Let all members read an exchange, fit their maps and take their step."""
    exchanges = []
    for node in nodes:
        with divergence_of(node.name, round):
            exchanges.append(node.read_exchange(round, inboxes[node.name]))
    fits = [node.fits(round, e) for node, e in zip(nodes, exchanges, strict=True)]
    try:
        solve_together([fit for of_one in fits for fit in of_one])
    except _DIVERGED:
        for node, of_one in zip(nodes, fits, strict=True):
            with divergence_of(node.name, round):
                for fit in of_one:
                    fit.solve()
        raise
    for node, exchange in zip(nodes, exchanges, strict=True):
        node.remember(round, exchange)
    logs = take_steps(nodes, round, cohort, cohort.kept[WHITE])
    for node, exchange in zip(nodes, exchanges, strict=True):
        node.update_weights(round, exchange)
    return logs


def take_steps(nodes: Nodes, round: int, cohort: StackedCohort, white: Tensor | None) -> Logs:
    """Descend on objectives, gluing penalties and distillation losses.

    Args:
        nodes: of the members.
        round: the current one.
        cohort: the members.
        white: own latents of pilots that are compared with what arrived, if any are.
    """
    logs: Logs = {node.name: {} for node in nodes}
    penalties = None
    if white is not None and white.requires_grad:
        targets = [node.penalty_targets() for node in nodes]
        penalties = gluing_penalties(white, targets)
        for node, pulled_to, value in zip(nodes, targets, penalties.tolist(), strict=True):
            if pulled_to:
                logs[node.name]["penalty"] = value
    own = cohort.own_pass()
    check_losses(cohort.agents, own, round)
    for node, loss in zip(nodes, own.losses.tolist(), strict=True):
        logs[node.name]["loss"] = loss
        if node.method.distillation is not None:
            with node.agent.rng_context():
                distillation_loss = node.distillation_loss(round)
                if distillation_loss is not None:
                    distillation_loss.backward()  # type: ignore[no-untyped-call]
                    logs[node.name]["distillation_loss"] = float(distillation_loss.detach())
    cohort.train_on(own.losses if penalties is None else own.losses + penalties)
    cohort.take_step()
    return logs
