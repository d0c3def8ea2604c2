"""What a message of a round says beside its tensors, and what it must hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sheafed.errors import MessageError
from sheafed.methods.endpoints import EdgeEndpoint
from sheafed.methods.latent_codec import PROBABILITIES, LatentCodec
from sheafed.methods.predictions import are_probabilities
from sheafed.transport.message import Message, TensorSpec

IN_FRAME = "fitted"
"""The field that tells whether latents are in the frame that the receiver reads them in."""
OTHER_PILOTS = "other pilots"
"""The field that marks an earlier round's message whose pilots are not those of this one."""


def in_frame(message: Message) -> bool:
    """Whether the receiver of latents can read them."""
    return message.fields.get(IN_FRAME) is True


def is_comparable(message: Message) -> bool:
    """Whether the latents are those of this round's pilots."""
    return message.fields.get(OTHER_PILOTS) is not True


def expected_tensors(
    codec: LatentCodec,
    endpoint: EdgeEndpoint,
    *,
    pilots: int,
    all_pilots: int | None,
    classes: int,
    outputs: int = 0,
) -> dict[str, TensorSpec]:
    """Return what a neighbour's message must hold.

    Args:
        codec: of this edge.
        endpoint: likewise.
        pilots: how many a round has.
        all_pilots: how many there are, if all are sent.
        classes: how many the neighbour's head tells apart; 0 if it sends no probabilities.
        outputs: how many numbers it predicts; 0 if it sends none.
    """
    return codec.specs(
        latents=(pilots, endpoint.width),
        probabilities=(pilots, classes) if classes else None,
        all=None if all_pilots is None else (all_pilots, endpoint.width),
        outputs=(pilots, outputs) if outputs else None,
    )


def check_probabilities(codec: LatentCodec, message: Message) -> None:
    """Raise unless the class probabilities of a message, if it has any, are probabilities."""
    if PROBABILITIES not in message.tensors:
        return
    unpacked = codec.unpack(message, PROBABILITIES).tensors
    if not are_probabilities(unpacked[PROBABILITIES]):
        raise MessageError(
            PROBABILITIES,
            f"{message}: rows of probabilities must be at least 0 and sum to 1",
        )


def moved_to(
    round: int, message: Message, expected: Mapping[str, TensorSpec], *, same_pilots: bool
) -> Message | None:
    """Return an earlier round's message as one of this round, if it holds all that this one needs.

    Unless both rounds have the same pilots it is marked, so that neither maps nor penalty use its
    latents; what the sender's head predicts of them is still good.
    """
    if not expected.keys() <= message.tensors.keys():
        return None
    tensors = {name: message.tensors[name] for name in expected}
    fields = {**message.fields, OTHER_PILOTS: not same_pilots}
    return replace(message, round=round, tensors=tensors, fields=fields)
