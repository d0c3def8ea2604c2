"""The adapters of timm and transformers: by stand-ins for what they do with shapes, which need
neither library, and by the libraries themselves, without any download, where they are installed."""

import json
import sys
from types import SimpleNamespace

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from sheafed import Agent
from sheafed.errors import DataFormatError, InputError, MissingDependencyError, ShapeError
from sheafed.models.adapters import (
    HuggingFaceEncoder,
    ImageInputs,
    TimmEncoder,
    load_huggingface,
    load_timm,
)
from sheafed.models.adapters.huggingface import pool
from sheafed.pretrained.texts.text_encoder import TextEncoder
from sheafed.pretrained.texts.transformer import transformer


def images(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


class LikeTimm(nn.Module):
    """The interface that models of timm share."""

    def __init__(self) -> None:
        super().__init__()
        means, deviations = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
        self.pretrained_cfg = {"input_size": (3, 12, 12), "mean": means, "std": deviations}
        self.conv = nn.Conv2d(3, 6, 3)
        self.fc = nn.Linear(6, 4)
        self.seen: Tensor | None = None

    def forward_features(self, x: Tensor) -> Tensor:
        self.seen = x
        return self.conv(x)

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        pooled = x.mean((2, 3))
        return pooled if pre_logits else self.fc(pooled)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


class LikeTransformers(nn.Module):
    """The interface that models of transformers share."""

    def __init__(self, name: str, padding: int | None = None) -> None:
        super().__init__()
        self.main_input_name = name
        self.config = SimpleNamespace(pad_token_id=padding)
        self.embed = nn.Embedding(9, 5) if name == "input_ids" else nn.Conv2d(3, 5, 4, stride=4)
        self.given: dict[str, Tensor] = {}

    def forward(self, **given: Tensor) -> SimpleNamespace:
        self.given = given
        hidden = self.embed(given[self.main_input_name])
        hidden = hidden if hidden.ndim == 3 else hidden.flatten(2).mT
        return SimpleNamespace(last_hidden_state=hidden, pooler_output=hidden[:, 0].tanh())


# Images


def test_images_that_fit_are_standardised_alone() -> None:
    x = images(2, 3, 4, 5)
    made = ImageInputs((3, 4, 5), (0.1, 0.2, 0.3), (0.5, 1.0, 2.0))(x)
    for c, (m, s) in enumerate([(0.1, 0.5), (0.2, 1.0), (0.3, 2.0)]):
        torch.testing.assert_close(made[:, c], (x[:, c] - m) / s)


def test_grey_images_are_repeated_and_resized() -> None:
    made = ImageInputs((3, 16, 8))(torch.full((2, 1, 8, 8), 0.25))
    assert made.shape == (2, 3, 16, 8)
    torch.testing.assert_close(made, torch.full_like(made, 0.25))
    assert ImageInputs((3, 16, 8)).state_dict() == {}


@pytest.mark.parametrize("shape", [(2, 64), (2, 2, 8, 8)])
def test_what_is_no_image(shape) -> None:
    with pytest.raises(ShapeError, match="expected images"):
        ImageInputs((3, 8, 8))(torch.zeros(shape))


def test_means_of_other_channels() -> None:
    with pytest.raises(ShapeError, match="mean must have 1 or 3 values"):
        ImageInputs((3, 8, 8), (0.1, 0.2))


# timm


def test_timm_without_its_classifier() -> None:
    model = LikeTimm()
    encoder = TimmEncoder(model)
    x = images(4, 1, 8, 8)
    latents = encoder(x)
    assert model.seen is not None
    torch.testing.assert_close(
        model.seen, ImageInputs((3, 12, 12), (0.1, 0.2, 0.3), (0.5, 0.6, 0.7))(x)
    )
    torch.testing.assert_close(model.fc(latents), model(model.seen))
    assert Agent("a", encoder, data=x, frozen=True).dimension == 6


def test_other_preparations() -> None:
    model = LikeTimm()
    assert TimmEncoder(model, nn.Identity())(images(4, 3, 9, 9)).shape == (4, 6)
    model.pretrained_cfg = {"mean": (0,)}
    with pytest.raises(InputError, match="lacks input_size, std"):
        TimmEncoder(model)
    with pytest.raises(InputError, match="has no forward_features and no forward_head"):
        TimmEncoder(nn.Linear(3, 3))


# transformers


def test_images_of_transformers() -> None:
    model = LikeTransformers("pixel_values")
    encoder = HuggingFaceEncoder(model, prepare=ImageInputs((3, 8, 8)))
    x = images(4, 1, 8, 8)
    expected = model.embed(x.expand(-1, 3, -1, -1)).mean((2, 3))
    torch.testing.assert_close(encoder(x), expected)
    assert list(model.given) == ["pixel_values"]
    assert Agent("a", encoder, nn.Linear(5, 2), data=(x, torch.arange(4) % 2)).dimension == 5


def test_padding_does_not_count() -> None:
    model = LikeTransformers("input_ids", padding=0)
    tokens = torch.tensor([[3, 4, 5, 0], [6, 0, 0, 0]])
    table = model.embed.weight
    latents = HuggingFaceEncoder(model)(tokens)
    torch.testing.assert_close(latents[0], (table[3] + table[4] + table[5]) / 3)
    torch.testing.assert_close(latents[1], table[6])
    assert model.given["attention_mask"].tolist() == [[1, 1, 1, 0], [1, 0, 0, 0]]
    assert Agent("a", HuggingFaceEncoder(model), data=tokens, frozen=True).dimension == 5


def test_what_a_tokenizer_returns_is_passed_with_its_own_mask() -> None:
    model = LikeTransformers("input_ids", padding=0)
    tokens = torch.tensor([[3, 4, 5, 0], [6, 7, 0, 0]])
    given = {"attention_mask": torch.tensor([[1, 1, 0, 0], [1, 1, 0, 0]]), "input_ids": tokens}
    one = Agent("a", HuggingFaceEncoder(model), data={"train": given}, frozen=True)
    table = model.embed.weight
    torch.testing.assert_close(one.encode(given)[0], (table[3] + table[4]) / 2)
    assert model.given == given
    with pytest.raises(InputError, match=r"needs the input 'input_ids', got \['pixel_values'\]"):
        HuggingFaceEncoder(model)(pixel_values=tokens)


def test_poolings() -> None:
    hidden = images(2, 3, 5)
    output = SimpleNamespace(last_hidden_state=hidden, pooler_output=hidden[:, 2, :, None, None])
    torch.testing.assert_close(pool(output, "first"), hidden[:, 0])
    torch.testing.assert_close(pool(output, "mean"), hidden.mean(1))
    torch.testing.assert_close(pool(output, "pooler"), hidden[:, 2])
    convolutional = SimpleNamespace(last_hidden_state=images(2, 5, 3, 4), pooler_output=None)
    torch.testing.assert_close(pool(convolutional, "mean"), images(2, 5, 3, 4).mean((2, 3)))
    with pytest.raises(InputError, match="has no pooler"):
        pool(convolutional, "pooler")
    with pytest.raises(InputError, match="no first token"):
        pool(convolutional, "first")
    with pytest.raises(InputError, match="pooling must be one of"):
        HuggingFaceEncoder(nn.Identity(), "last")


# The libraries


@pytest.mark.parametrize(
    ("library", "load", "name"),
    [("timm", load_timm, "resnet10t"), ("transformers", load_huggingface, "somewhere")],
)
def test_a_missing_library_is_named_with_its_extra(monkeypatch, library, load, name) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        MissingDependencyError, match=rf"{name}.* needs {library}.*sheafed\[pretrained\]"
    ):
        load(name)


def test_timm_itself() -> None:
    # It needs torchvision, whose package on the index does not load beside a CPU build of torch.
    pytest.importorskip("timm")
    torch.manual_seed(0)
    for prepare in (None, ImageInputs((3, 32, 32))):
        encoder = load_timm("resnet10t", prepare)
        one = Agent("a", encoder, data=images(4, 1, 8, 8), frozen=True)
        assert one.dimension == 512
        assert not one.learns


@pytest.mark.parametrize("option", [{"in_chans": 1}, {"img_size": 64}])
def test_timm_with_other_inputs_needs_to_be_told_how(option) -> None:
    with pytest.raises(InputError, match=rf"another {next(iter(option))}.*prepare="):
        load_timm("resnet10t", **option)


def test_transformers_itself(tmp_path) -> None:
    import transformers  # slow to import

    config = transformers.ViTConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        image_size=8,
        patch_size=4,
    )
    torch.manual_seed(0)
    transformers.ViTModel(config).save_pretrained(tmp_path)
    x = images(4, 1, 8, 8)
    first, second = (load_huggingface(tmp_path, prepare=ImageInputs((3, 8, 8))) for _ in range(2))
    one = Agent("a", first, data=x, frozen=True)
    assert one.dimension == 8
    torch.testing.assert_close(one.encode(x), second.eval()(x))
    tuned = Agent("b", load_huggingface(tmp_path, prepare=ImageInputs((3, 8, 8))), data=x)
    assert all(module.training for module in tuned.encoder.modules())  # with its dropout
    assert not any(module.training for module in first.modules())


def test_a_sentence_transformer() -> None:
    """Against each text alone, without padding, and a mean taken token by token."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=16,
    )
    torch.manual_seed(0)
    model = transformers.BertModel(config).eval()
    weights = {k: v.contiguous() for k, v in model.state_dict().items()}
    described = json.dumps(config.to_dict()).encode()
    tokens = {"a": [2, 7, 3], "b": [2, 5, 9, 9, 11, 4, 3], "c": [2, 3]}
    encoder = TextEncoder(
        "tiny",
        8,
        lambda texts: [tokens[text] for text in texts],
        transformer(described, safetensors.torch.save(weights)),
    )
    latents = torch.from_numpy(encoder.encode(["a", "b", "c"]))
    for latent, ids in zip(latents, tokens.values(), strict=True):
        (states,) = model(input_ids=torch.tensor([ids])).last_hidden_state.detach()
        mean = sum(states) / len(ids)
        torch.testing.assert_close(latent, mean / mean.norm(), atol=1e-5, rtol=0)
    del weights["embeddings.word_embeddings.weight"]
    with pytest.raises(DataFormatError, match=r"do not fit a BertModel: missing \['embeddings"):
        transformer(described, safetensors.torch.save(weights))
