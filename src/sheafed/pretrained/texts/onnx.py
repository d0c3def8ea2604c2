"""Transformers as ONNX graphs, with the mean of their last hidden states."""

import torch
from torch import Tensor

from sheafed.errors import DataFormatError
from sheafed.models.pooling import masked_mean
from sheafed.pretrained.texts.optional import required
from sheafed.pretrained.texts.text_encoder import Forward


def onnx_transformer(graph: bytes) -> Forward:
    """Return the forward pass of a graph from ids and mask to hidden states, with mean pooling.

    The graph may have other outputs; the hidden states are the one of three dimensions.
    """
    runtime = required("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.inter_op_num_threads = 1
    session = runtime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    hidden = [output.name for output in session.get_outputs() if len(output.shape) == 3]
    if len(hidden) != 1:
        raise DataFormatError(
            f"expected a graph with one output (n, tokens, d), got {len(hidden)} of them among "
            f"{[(output.name, output.shape) for output in session.get_outputs()]}"
        )

    def forward(ids: Tensor, mask: Tensor) -> Tensor:
        given = {"input_ids": ids.numpy(), "attention_mask": mask.numpy()}
        (states,) = session.run(hidden, given)
        return masked_mean(torch.from_numpy(states), mask)

    return forward
