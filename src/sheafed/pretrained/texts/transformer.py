"""Sentence transformers: a transformer, the mean of its last hidden states, unit length."""

import json
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from sheafed.errors import DataFormatError
from sheafed.models.pooling import masked_mean
from sheafed.pretrained.texts.optional import required
from sheafed.pretrained.texts.text_encoder import Forward

BUFFERS = {"embeddings.position_ids"}  # stored by old versions of transformers, now computed


def transformer(config: bytes, weights: bytes) -> Forward:
    """Return the forward pass of a transformer with mean pooling and L2 normalisation.

    Args:
        config: content of its `config.json`.
        weights: content of its `model.safetensors`.
    """
    model = _model(json.loads(config), safetensors.torch.load(weights))

    def forward(ids: Tensor, mask: Tensor) -> Tensor:
        hidden: Tensor = model(input_ids=ids, attention_mask=mask).last_hidden_state
        return torch.nn.functional.normalize(masked_mean(hidden, mask))

    return forward


def _model(config: dict[str, Any], weights: dict[str, Tensor]) -> Any:
    transformers = required("transformers")
    described = transformers.AutoConfig.for_model(**config)
    model = transformers.AutoModel.from_config(described)
    loaded = model.load_state_dict(weights, strict=False)
    if loaded.missing_keys or set(loaded.unexpected_keys) - BUFFERS:
        raise DataFormatError(
            f"the weights do not fit a {type(model).__name__}: missing {loaded.missing_keys}, "
            f"unexpected {loaded.unexpected_keys}; fetch the encoder again"
        )
    return model.eval()
