"""Membership inference: was a sample in the training data of the agent that encoded it?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from sheafed.errors import EmptyInputError
from sheafed.linalg.checks import check_fraction
from sheafed.seeds import permutation


@dataclass(frozen=True)
class MembershipInference:
    """The success of an attack; guessing has an `auc` of 0.5 and a `tpr` equal to `fpr`."""

    auc: float
    """The probability that a random member scores higher than a random non-member."""
    tpr: float
    """The true positive rate at a false positive rate of at most `fpr`."""
    fpr: float
    members: int
    non_members: int


def threshold_attack(
    members: Tensor, non_members: Tensor, fpr: float = 0.01
) -> MembershipInference:
    """Evaluate an attack by a threshold on a score, e.g. the confidence of a head.

    Args:
        members: scores `(n,)` of training samples.
        non_members: scores `(m,)` of other samples.
        fpr: the false positive rate allowed. With m < 1/fpr no false positive is.
    """
    check_fraction("fpr", fpr)
    n, m = len(members), len(non_members)
    if not n or not m:
        raise EmptyInputError(f"an attack needs members and non-members, got {n} and {m}")
    ranks = rankdata(np.concatenate([members.double().numpy(), non_members.double().numpy()]))
    auc = (ranks[:n].sum() - n * (n + 1) / 2) / (n * m)
    allowed = int(fpr * m + 1e-9)
    threshold = non_members.double().sort(descending=True).values[min(allowed, m - 1)]
    tpr = float((members.double() > threshold).double().mean()) if allowed < m else 1.0
    return MembershipInference(float(auc), tpr, fpr, n, m)


def logistic_attack(
    members: Tensor, non_members: Tensor, *, seed: int = 0, fpr: float = 0.01
) -> MembershipInference:
    """Evaluate an attacker that knows half of the members and learns to recognise the others.

    Logistic regression on the features `(n, d)` and their squares, fitted on one half and tested on
    the other, and vice versa, so that no sample is scored by a model that was fitted on it.
    """
    halves = [
        [x[rows] for rows in permutation(len(x), seed, "membership", group).chunk(2)]
        for group, x in enumerate((members, non_members))
    ]
    if any(len(parts) < 2 for parts in halves):
        raise EmptyInputError(
            "an attack needs at least two members and two non-members, got "
            f"{len(members)} and {len(non_members)}"
        )
    scores: tuple[list[float], list[float]] = ([], [])
    for fitted, tested in ((0, 1), (1, 0)):
        x = np.concatenate([_features(parts[fitted]) for parts in halves])
        y = np.repeat([1, 0], [len(parts[fitted]) for parts in halves])
        balanced = LogisticRegression(C=0.1, max_iter=1000, class_weight="balanced")
        attacker = make_pipeline(StandardScaler(), balanced).fit(x, y)
        for collected, parts in zip(scores, halves, strict=True):
            collected += list(attacker.decision_function(_features(parts[tested])))
    return threshold_attack(Tensor(scores[0]), Tensor(scores[1]), fpr)


def _features(x: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    rows = x.double().numpy()
    return np.concatenate([rows, rows**2], axis=1)
