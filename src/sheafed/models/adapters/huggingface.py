"""Hugging Face transformers as encoders."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from sheafed.errors import InputError, MissingDependencyError
from sheafed.models.pooling import masked_mean

Pooling = Literal["first", "mean", "pooler"]


class HuggingFaceEncoder(nn.Module):
    """A Hugging Face model whose hidden states are pooled to one latent per input.

    Freeze it with `Agent(frozen=True)`, or fine-tune it.

    Args:
        model: without a task's head, e.g. `ViTModel` or `BertModel`. Inputs of one tensor are
            passed by its `main_input_name`: images as `pixel_values`, or token ids as `input_ids`,
            where `config.pad_token_id` is padding. Mappings, e.g. what a tokenizer returns, are
            passed as they are; then `attention_mask` says what padding is.
        pooling: `"mean"` over all tokens but padding, the `"first"` token, or the model's own
            `"pooler"`, which has random weights in a model that was not trained with one.
        prepare: a module from the agent's inputs to the model's, e.g. `ImageInputs`; none by
            default.
    """

    def __init__(
        self, model: nn.Module, pooling: Pooling = "mean", prepare: nn.Module | None = None
    ) -> None:
        super().__init__()
        if pooling not in get_args(Pooling):
            raise InputError(f"pooling must be one of {get_args(Pooling)}, got {pooling!r}")
        self.model = model
        self.pooling = pooling
        self.prepare = prepare or nn.Identity()

    def forward(self, inputs: Tensor | None = None, /, **named: Tensor) -> Tensor:
        model: Any = self.model
        main = model.main_input_name
        if inputs is not None:
            named[main] = inputs
        if main not in named:
            raise InputError(f"this model needs the input {main!r}, got {sorted(named)}")
        named[main] = self.prepare(named[main])
        mask = named.get("attention_mask", self._mask(named[main]))
        if mask is not None:
            named["attention_mask"] = mask
        return pool(model(**named), self.pooling, mask)

    def _mask(self, given: Tensor) -> Tensor | None:
        model: Any = self.model
        padding = getattr(model.config, "pad_token_id", None)
        if model.main_input_name != "input_ids" or padding is None:
            return None
        return given.ne(padding).long()


def pool(output: Any, pooling: Pooling, mask: Tensor | None = None) -> Tensor:
    """Return the latents `(n, d)` of a model's output.

    Args:
        output: with `last_hidden_state` `(n, tokens, d)`, or `(n, d, h, w)` of a convolutional
            model, and optionally `pooler_output`.
        pooling: see `HuggingFaceEncoder`.
        mask: `(n, tokens)`, 0 where a token is padding.
    """
    if pooling == "pooler":
        pooled: Tensor | None = getattr(output, "pooler_output", None)
        if pooled is None:
            raise InputError("this model has no pooler; use pooling='mean' or 'first'")
        return pooled.flatten(1)
    hidden: Tensor = output.last_hidden_state
    if hidden.ndim == 4:
        if pooling == "first":
            raise InputError("a convolutional model has no first token; use pooling='mean'")
        return hidden.mean((2, 3))
    if pooling == "first":
        return hidden[:, 0]
    return masked_mean(hidden, torch.ones(hidden.shape[:2]) if mask is None else mask)


def load_huggingface(
    path: str | Path,
    pooling: Pooling = "mean",
    prepare: nn.Module | None = None,
    *,
    download: bool = False,
) -> HuggingFaceEncoder:
    """Load a model that `save_pretrained` wrote.

    Args:
        path: the directory, or the name of a model in the local cache.
        pooling: see `HuggingFaceEncoder`.
        prepare: see `HuggingFaceEncoder`.
        download: whether a model that is not on this machine may be downloaded.

    >>> encoder = load_huggingface("google/vit-base-patch16-224")  # doctest: +SKIP
    """
    try:
        import transformers
    except ImportError as problem:
        raise MissingDependencyError(
            f"the model {str(path)!r} needs transformers, which is not installed; pip install "
            "'sheafed[pretrained]'"
        ) from problem
    model = transformers.AutoModel.from_pretrained(str(path), local_files_only=not download)
    # It is loaded in evaluation mode, in which fine-tuning would have no dropout.
    return HuggingFaceEncoder(model.train(), pooling, prepare)
