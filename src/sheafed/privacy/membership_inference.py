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
class Membership:
    """How well an attack tells members from others; guessing has `auc` 0.5 and `tpr` `fpr`."""

    auc: float
    """The probability that a random member scores above a random other."""
    tpr: float
    """The share of members that is found while at most `fpr` of the others is accused."""
    fpr: float
    members: int
    others: int


def threshold_attack(members: Tensor, others: Tensor, fpr: float = 0.01) -> Membership:
    """Judge an attack that calls members what scores high, e.g. the confidence of a head.

    Args:
        members: scores `(n,)` of training samples.
        others: scores `(m,)` of samples that were not trained on.
        fpr: the share of others that may be accused. With m below 1/fpr it is none.
    """
    check_fraction("fpr", fpr)
    n, m = len(members), len(others)
    if not n or not m:
        raise EmptyInputError(f"an attack needs members and others, got {n} and {m}")
    ranks = rankdata(np.concatenate([members.double().numpy(), others.double().numpy()]))
    auc = (ranks[:n].sum() - n * (n + 1) / 2) / (n * m)
    accused = int(fpr * m + 1e-9)
    threshold = others.double().sort(descending=True).values[min(accused, m - 1)]
    found = float((members.double() > threshold).double().mean()) if accused < m else 1.0
    return Membership(float(auc), found, fpr, n, m)


def logistic_attack(
    members: Tensor, others: Tensor, *, seed: int = 0, fpr: float = 0.01
) -> Membership:
    """Judge an attacker that knows half of the members and learns to tell them from others.

    Logistic regression on the features `(n, d)` and their squares, fitted to one half and tried on
    the other, and the other way round; both halves are scored by who has not seen them.
    """
    halves = [
        [x[rows] for rows in permutation(len(x), seed, "membership", who).chunk(2)]
        for who, x in enumerate((members, others))
    ]
    if any(len(parts) < 2 for parts in halves):
        raise EmptyInputError(
            f"both halves need members and others, got {len(members)} and {len(others)}"
        )
    scores: tuple[list[float], list[float]] = ([], [])
    for fitted, tried in ((0, 1), (1, 0)):
        x = np.concatenate([_features(parts[fitted]) for parts in halves])
        y = np.repeat([1, 0], [len(parts[fitted]) for parts in halves])
        balanced = LogisticRegression(C=0.1, max_iter=1000, class_weight="balanced")
        attacker = make_pipeline(StandardScaler(), balanced).fit(x, y)
        for found, parts in zip(scores, halves, strict=True):
            found += list(attacker.decision_function(_features(parts[tried])))
    return threshold_attack(Tensor(scores[0]), Tensor(scores[1]), fpr)


def _features(x: Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    rows = x.double().numpy()
    return np.concatenate([rows, rows**2], axis=1)
