"""What leaks: attacks on what agents transmit, and how much privacy noise leaves."""

from sheafed.privacy.eavesdropping import Eavesdropper
from sheafed.privacy.inversion import Decoder, relative_error, train_decoder
from sheafed.privacy.membership import Membership, logistic_attack, threshold_attack
from sheafed.privacy.spending import Spent, spent

__all__ = [
    "Decoder",
    "Eavesdropper",
    "Membership",
    "Spent",
    "logistic_attack",
    "relative_error",
    "spent",
    "threshold_attack",
    "train_decoder",
]
