"""What leaks: attacks on what agents transmit, and how much privacy noise leaves."""

from sheafed.privacy.eavesdropping import Eavesdropper
from sheafed.privacy.inversion import Decoder, relative_error, train_decoder
from sheafed.privacy.membership import Membership, logistic_attack, threshold_attack
from sheafed.privacy.probes import (
    Inversion,
    invert,
    invert_as_neighbour,
    membership_by_beliefs,
    membership_by_latents,
    transmitted,
    understood,
)
from sheafed.privacy.spending import Spent, spent

__all__ = [
    "Decoder",
    "Eavesdropper",
    "Inversion",
    "Membership",
    "Spent",
    "invert",
    "invert_as_neighbour",
    "logistic_attack",
    "membership_by_beliefs",
    "membership_by_latents",
    "relative_error",
    "spent",
    "threshold_attack",
    "train_decoder",
    "transmitted",
    "understood",
]
