"""Attacks on what agents transmit, and accounting of differential privacy."""

from sheafed.privacy.accounting import PrivacyLoss, privacy_loss
from sheafed.privacy.attacks import (
    Inversion,
    communication_accuracy,
    invert_as_eavesdropper,
    invert_as_neighbour,
    membership_from_latents,
    membership_from_probabilities,
    transmitted_latents,
)
from sheafed.privacy.eavesdropping import Eavesdropper
from sheafed.privacy.inversion import Decoder, relative_error, train_decoder
from sheafed.privacy.membership_inference import (
    MembershipInference,
    logistic_attack,
    threshold_attack,
)

__all__ = [
    "Decoder",
    "Eavesdropper",
    "Inversion",
    "MembershipInference",
    "PrivacyLoss",
    "communication_accuracy",
    "invert_as_eavesdropper",
    "invert_as_neighbour",
    "logistic_attack",
    "membership_from_latents",
    "membership_from_probabilities",
    "privacy_loss",
    "relative_error",
    "threshold_attack",
    "train_decoder",
    "transmitted_latents",
]
