"""Scikit-learn transformers as encoders: PCA, random features, any fitted transformer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from sheafed.errors import InputError


class ScikitEncoder(nn.Module):
    """A fitted transformer as a frozen encoder.

    It has no weights and gives no gradient. Checkpoints do not contain its fit: resume with a
    transformer that was fitted to the same data.

    >>> from sklearn.decomposition import PCA
    >>> x = np.random.default_rng(0).standard_normal((20, 8))
    >>> ScikitEncoder(PCA(3).fit(x))(torch.as_tensor(x)).shape
    torch.Size([20, 3])

    Args:
        transformer: e.g. `PCA(16).fit(x)`. Its inputs are flattened, `(n, features)`, and its
            `transform` must be deterministic.
    """

    def __init__(self, transformer: Any) -> None:
        super().__init__()
        if not hasattr(transformer, "transform"):
            raise InputError(
                f"a {type(transformer).__name__} has no transform(); give a transformer, or a "
                "pipeline that ends in one"
            )
        try:
            check_is_fitted(transformer)
        except NotFittedError as problem:
            raise InputError(
                f"this {type(transformer).__name__} has not been fitted; call fit() with the "
                "agent's own data first"
            ) from problem
        self.transformer = transformer

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.requires_grad and torch.is_grad_enabled():
            raise InputError(
                f"a {type(self.transformer).__name__} of scikit-learn cannot be differentiated; "
                "detach its inputs"
            )
        latents = self.transformer.transform(inputs.detach().flatten(1).cpu().numpy())
        dense = latents.toarray() if hasattr(latents, "toarray") else np.asarray(latents)
        dtype = inputs.dtype if inputs.is_floating_point() else torch.float32
        return torch.as_tensor(dense, dtype=dtype, device=inputs.device)

    def extra_repr(self) -> str:
        return repr(self.transformer)
