"""The attacks on one trained agent, from what it transmits to a neighbour."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from sheafed.agents.samples import Samples
from sheafed.errors import InputError
from sheafed.evaluation.evaluation import accuracy
from sheafed.methods.node import Node
from sheafed.methods.sheaf_frl.distillation import predict_proba
from sheafed.methods.sheaf_frl.gaussian_noise import GaussianNoise, noise_stream
from sheafed.privacy.inversion import relative_error, train_decoder
from sheafed.privacy.membership_inference import Membership, logistic_attack, threshold_attack


@dataclass(frozen=True, eq=False)
class Inversion:
    """What an attacker makes of an agent's private samples."""

    guesses: Tensor
    """`(n, ...)`, of the agent's test samples, in their order."""
    error: float
    """See `relative_error`: 0 all is known, 1 nothing."""


@torch.no_grad()
def transmitted(
    node: Node, samples: Samples, neighbour: str, noise: GaussianNoise | None = None
) -> Tensor:
    """Return the latents of private samples as they leave for a neighbour.

    Exact, as agents send them, or noised like pilots: what if they did.
    """
    latents, _ = node.agent.encode_samples(samples)
    link = node.link_to(neighbour)
    white = link.whiten(latents)
    if noise is not None:
        stream = noise_stream(node.context.secret, node.name, "private", 0, white)
        white = noise.release(white, stream)
    return link.carry(white)


@torch.no_grad()
def understood(node: Node, reader: Node, noise: GaussianNoise | None = None) -> float:
    """Return how many of an agent's test samples a neighbour classifies: what noise costs."""
    samples = _test_samples(node)
    targets = samples.batch(torch.arange(len(samples))).targets
    read = reader.interpret(transmitted(node, samples, reader.name, noise), node.name)
    return accuracy(reader, read, targets, of=node.name)


def invert(
    node: Node,
    neighbour: str,
    heard: tuple[Tensor, Tensor],
    *,
    noise: GaussianNoise | None = None,
    seed: int = 0,
) -> Inversion:
    """Let an attacker that knows the pilots decode an agent's test samples.

    Args:
        node: the agent's program, after training.
        neighbour: to whom it sends them.
        heard: which pilots the attacker has heard of, and their latents (`Eavesdropper.pilots`).
        noise: on the private latents, if there is any.
        seed: of the decoder.
    """
    known, latents = heard
    pilots = node.context.pilots.of(node.name)
    decoder = train_decoder(latents, pilots[known], seed=seed)
    return _judged(node, decoder(transmitted(node, _test_samples(node), neighbour, noise)), pilots)


def invert_as_neighbour(
    node: Node, reader: Node, *, noise: GaussianNoise | None = None, seed: int = 0
) -> Inversion:
    """Let the neighbour that an agent talks to decode its test samples.

    It reads them by its map, as it does to classify them, and decodes them by what it knows of its
    own encoder, to which no noise was added: whatever the protocol, a map that serves the one
    purpose serves the other.

    Args:
        node: the agent's program, after training.
        reader: the neighbour's.
        noise: on the private latents, if there is any.
        seed: of the decoder.
    """
    pilots = reader.context.pilots.of(reader.name)
    with torch.no_grad():
        own = reader.pilot_latents()
    decoder = train_decoder(own, pilots, seed=seed)
    received = transmitted(node, _test_samples(node), reader.name, noise)
    return _judged(node, decoder(reader.interpret(received, node.name)), pilots)


def membership_by_latents(
    node: Node, neighbour: str, *, noise: GaussianNoise | None = None, seed: int = 0
) -> Membership:
    """Tell training from test samples by the latents that leave (`logistic_attack`)."""
    both = (node.agent.data.train, _test_samples(node))
    return logistic_attack(*(transmitted(node, s, neighbour, noise) for s in both), seed=seed)


def membership_by_probabilities(node: Node) -> Membership:
    """Tell training from test samples by how sure the agent's own head is of their class.

    For an agent that would give class probabilities of private samples as it does of pilots.
    """
    if node.agent.head is None:
        raise InputError(f"agent {node.name!r} has no head, so it has no class probabilities")
    with node.agent.inference():
        members, others = (
            predict_proba(node.agent.head, node.agent.encode_samples(samples)[0]).amax(-1)
            for samples in (node.agent.data.train, _test_samples(node))
        )
    return threshold_attack(members, others)


def _judged(node: Node, guesses: Tensor, pilots: Tensor) -> Inversion:
    private = _test_samples(node)
    truth = private.batch(torch.arange(len(private))).inputs
    return Inversion(guesses, relative_error(guesses, truth, pilots.mean(0)))


def _test_samples(node: Node) -> Samples:
    if node.agent.data.test is None:
        raise InputError(f"agent {node.name!r} has no test samples to attack; give it some")
    return node.agent.data.test
