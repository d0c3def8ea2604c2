"""Attacks on a trained agent, from what it transmits to a neighbour."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sheafed.agents.samples import Samples
from sheafed.errors import GraphError, InputError
from sheafed.methods.node import Node
from sheafed.methods.predictions import predict_proba
from sheafed.methods.sheaf_frl.gaussian_noise import GaussianNoise, noise_stream
from sheafed.metrics.functional import accuracy
from sheafed.privacy.inversion import relative_error, train_decoder
from sheafed.privacy.membership_inference import (
    MembershipInference,
    logistic_attack,
    threshold_attack,
)
from sheafed.tensor_tree import structure


@dataclass(frozen=True, eq=False)
class Inversion:
    """An attacker's reconstruction of an agent's private samples."""

    reconstructions: Tensor
    """`(n, ...)`, of the agent's test samples, in their order."""
    error: float
    """See `relative_error`: 0 is a perfect reconstruction, 1 is no better than the mean pilot."""


@torch.no_grad()
def transmitted_latents(
    node: Node, samples: Samples, neighbour: str, noise: GaussianNoise | None = None
) -> Tensor:
    """Return the latents of private samples as a neighbour receives them.

    Agents send them without noise; `noise` shows the effect of treating them like pilots.
    """
    if neighbour not in node.neighbours:
        raise GraphError(
            f"agent {node.name!r} sends nothing to {neighbour!r}; its neighbours are "
            f"{sorted(node.neighbours)}: give one of them"
        )
    latents, _ = node.agent.encode_samples(samples)
    link = node.link_to(neighbour)
    white = link.whiten(latents)
    if noise is not None:
        stream = noise_stream(node.context.secret, node.name, "private", 0, white)
        white = noise.release(white, stream)
    return link.carry(white).cpu()


@torch.no_grad()
def communication_accuracy(
    sender: Node, receiver: Node, noise: GaussianNoise | None = None
) -> float:
    """Return the receiver's accuracy on the sender's test samples, with noise on their latents."""
    samples = _test_samples(sender)
    targets = samples.batch(torch.arange(len(samples))).targets
    received = transmitted_latents(sender, samples, receiver.name, noise)
    latents = receiver.interpret(received, sender.name)
    if targets is None:
        raise InputError(f"agent {sender.name!r}: its test data have no labels; give labels")
    return accuracy(receiver.read(latents, sender.name), targets)


def invert_as_eavesdropper(
    node: Node,
    neighbour: str,
    observed: tuple[Tensor, Tensor],
    *,
    noise: GaussianNoise | None = None,
    seed: int = 0,
) -> Inversion:
    """Decode an agent's test samples with a decoder learnt from eavesdropped pilots.

    Args:
        node: the agent's node, after training.
        neighbour: the receiver of the samples.
        observed: the indices of pilots and their latents, from `Eavesdropper.pilot_latents`.
        noise: on the private latents, if any.
        seed: of the decoder.
    """
    known, latents = observed
    pilots = _pilots_of_one_tensor(node)
    received = transmitted_latents(node, _test_samples(node), neighbour, noise)
    decoder = train_decoder(latents, pilots[known], seed=seed)
    return _inversion(node, decoder(received), pilots)


def invert_as_neighbour(
    node: Node, neighbour: Node, *, noise: GaussianNoise | None = None, seed: int = 0
) -> Inversion:
    """Decode an agent's test samples with a decoder of the neighbour that receives them.

    The neighbour maps them into its own latent space, as it does to classify them, and decodes them
    with a decoder of its own encoder, learnt without noise. No protocol prevents that: a map that
    is good enough to classify is good enough to decode.

    Args:
        node: the agent's node, after training.
        neighbour: the neighbour's node.
        noise: on the private latents, if any.
        seed: of the decoder.
    """
    pilots = _pilots_of_one_tensor(neighbour)
    with torch.no_grad():
        own = neighbour.pilot_latents().cpu()
    received = transmitted_latents(node, _test_samples(node), neighbour.name, noise)
    decoder = train_decoder(own, pilots, seed=seed)
    return _inversion(node, decoder(neighbour.interpret(received, node.name).cpu()), pilots)


def membership_from_latents(
    node: Node, neighbour: str, *, noise: GaussianNoise | None = None, seed: int = 0
) -> MembershipInference:
    """Distinguish training from test samples by their transmitted latents (`logistic_attack`)."""
    both = (node.agent.data.train, _test_samples(node))
    sent = (transmitted_latents(node, samples, neighbour, noise) for samples in both)
    return logistic_attack(*sent, seed=seed)


def membership_from_probabilities(node: Node) -> MembershipInference:
    """Distinguish training from test samples by the confidence of the agent's head.

    It applies to an agent that sends class probabilities of private samples, not only of pilots.
    """
    if node.agent.head is None:
        raise InputError(f"agent {node.name!r} has no head, so it has no class probabilities")
    with node.agent.inference():
        members, non_members = (
            predict_proba(node.agent.apply_head, node.agent.encode_samples(samples)[0])
            .amax(-1)
            .cpu()
            for samples in (node.agent.data.train, _test_samples(node))
        )
    return threshold_attack(members, non_members)


def _inversion(node: Node, reconstructions: Tensor, pilots: Tensor) -> Inversion:
    samples = _test_samples(node)
    inputs = samples.batch(torch.arange(len(samples))).inputs
    return Inversion(reconstructions, relative_error(reconstructions, inputs, pilots.mean(0)))


def _pilots_of_one_tensor(node: Node) -> Tensor:
    pilots = node.context.pilots.of(node.name)
    if not isinstance(pilots, Tensor):
        raise InputError(
            f"agent {node.name!r}: only inputs of one tensor are reconstructed, got "
            f"{structure(pilots)}"
        )
    return pilots


def _test_samples(node: Node) -> Samples:
    if node.agent.data.test is None:
        raise InputError(f"agent {node.name!r} has no test samples to attack; give it some")
    return node.agent.data.test
