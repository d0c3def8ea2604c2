"""What leaks: attacks on what agents transmit, and how much privacy noise leaves."""

from sheafed.privacy.accounting import Spent, spent
from sheafed.privacy.attacks import (
    Inversion,
    invert,
    invert_as_neighbour,
    membership_by_latents,
    membership_by_probabilities,
    transmitted,
    understood,
)
from sheafed.privacy.eavesdropping import Eavesdropper
from sheafed.privacy.inversion import Decoder, relative_error, train_decoder
from sheafed.privacy.membership_inference import Membership, logistic_attack, threshold_attack

__all__ = [
    "Decoder",
    "Eavesdropper",
    "Inversion",
    "Membership",
    "Spent",
    "invert",
    "invert_as_neighbour",
    "logistic_attack",
    "membership_by_latents",
    "membership_by_probabilities",
    "relative_error",
    "spent",
    "threshold_attack",
    "train_decoder",
    "transmitted",
    "understood",
]
