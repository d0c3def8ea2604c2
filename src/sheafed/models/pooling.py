"""From hidden states of tokens to one latent."""

from torch import Tensor


def masked_mean(hidden: Tensor, mask: Tensor) -> Tensor:
    """Return the mean `(n, d)` over tokens of `(n, tokens, d)` where the mask is 1; 0 if none is.

    >>> import torch
    >>> masked_mean(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[1, 1, 0]]))
    tensor([[2.]])
    """
    weights = mask.to(hidden)[..., None]
    return (hidden * weights).sum(1) / weights.sum(1).clamp(min=1)
