"""Errors of linear algebra, which knows no agents, said of the agent and the round."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sheafed.errors import EmptyInputError, NonFiniteError, SingularCovarianceError


@contextmanager
def divergence_of(agent: str, round: int) -> Iterator[None]:
    """Name the agent and the round if latents cannot be whitened or mapped within this."""
    where = f"agent {agent!r}, round {round}"
    try:
        yield
    except EmptyInputError as problem:
        raise EmptyInputError(
            f"{where}: {problem}. If these are too few latents to whiten, give at least 2 pilots, "
            "2 in each round with pilots_per_round, and 2 training samples with "
            "whitening='private'. Maps are determined by more pilots than the largest latent size, "
            "better several times as many"
        ) from problem
    except SingularCovarianceError as problem:
        raise SingularCovarianceError(f"{where}: {problem}") from problem
    except (NonFiniteError, torch.linalg.LinAlgError) as problem:  # type: ignore[attr-defined]
        if str(problem).startswith("agent "):
            raise
        raise NonFiniteError(
            f"{where}: latents, its own or a neighbour's, have diverged: {problem}; lower the "
            "learning rate or clip the gradient (max_grad_norm), and check the data"
        ) from problem
