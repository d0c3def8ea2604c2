"""From the files of a text encoder to its tokenizer and forward pass."""

import io
from collections.abc import Callable, Mapping

import numpy as np
import safetensors.torch
import torch

from sheafed.pretrained.texts.onnx import onnx_transformer
from sheafed.pretrained.texts.optional import required
from sheafed.pretrained.texts.text_encoder import Forward, Tokenizer
from sheafed.pretrained.texts.tokenizers import (
    json_tokenizer,
    sentencepiece_tokenizer,
    word_tokenizer,
)
from sheafed.pretrained.texts.transformer import transformer
from sheafed.pretrained.texts.universal_sentence_encoder import universal_sentence_encoder
from sheafed.pretrained.texts.word_vectors import mean_of_vectors

Build = Callable[[Mapping[str, bytes], int], tuple[Tokenizer, Forward]]
"""From the contents of files, by name, and the largest number of tokens to an encoder's parts."""


def sentence_transformer(files: Mapping[str, bytes], max_tokens: int) -> tuple[Tokenizer, Forward]:
    return (
        json_tokenizer(files["tokenizer.json"], max_tokens),
        transformer(files["config.json"], files["model.safetensors"]),
    )


def onnx_sentence_transformer(
    files: Mapping[str, bytes], max_tokens: int
) -> tuple[Tokenizer, Forward]:
    return (
        json_tokenizer(files["tokenizer.json"], max_tokens),
        onnx_transformer(files["paraphrase-MiniLM-L3-v2.onnx"]),
    )


def universal(files: Mapping[str, bytes], max_tokens: int) -> tuple[Tokenizer, Forward]:
    return (
        sentencepiece_tokenizer(files["sp.model"], max_tokens),
        universal_sentence_encoder(files["weights.npz"]),
    )


def wordllama(files: Mapping[str, bytes], max_tokens: int) -> tuple[Tokenizer, Forward]:
    table = safetensors.torch.load(files["l2_supercat_256.safetensors"])["embedding.weight"]
    tokenizer = files["l2_supercat_tokenizer_config.json"]
    return json_tokenizer(tokenizer, max_tokens, special=False), mean_of_vectors(table)


def glove(files: Mapping[str, bytes], max_tokens: int) -> tuple[Tokenizer, Forward]:
    index = required("pyarrow.parquet").read_table(io.BytesIO(files["glove_6B_index.parquet"]))
    words = {word: k for k, word in enumerate(index["index"].to_pylist())}
    table = np.load(io.BytesIO(files["glove_6B_50d_emb.npy"]), allow_pickle=False)
    return word_tokenizer(words, max_tokens), mean_of_vectors(torch.from_numpy(table))
