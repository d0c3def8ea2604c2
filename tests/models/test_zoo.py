import pytest
import torch

from sheafed.errors import InputError
from sheafed.models import (
    AGENT_ZOO,
    BOTTLENECKS,
    AgentSpec,
    bottleneck_pair,
    build_encoder,
    build_head,
)

MNIST = (1, 28, 28)


def parameters(spec):
    modules = build_encoder(spec, MNIST), build_head(spec, 10)
    return sum(p.numel() for m in modules for p in m.parameters())


def by_formula(spec):
    """Weights of each layer, and per unit a bias and, but for the last, batch norm's two."""
    convolutions = zip((1, *spec.encoder), spec.encoder, strict=False)
    hidden = zip((spec.encoder[-1], *spec.head), spec.head, strict=False)
    last = (*spec.encoder, *spec.head)[-1]
    return (
        sum(9 * a * b + 3 * b for a, b in convolutions)
        + sum(a * b + 3 * b for a, b in hidden)
        + 10 * (last + 1)
    )


def test_the_zoo_has_the_references_number_of_parameters():
    assert len(AGENT_ZOO) == 15
    assert sum(map(parameters, AGENT_ZOO)) == 3_411_690


def test_the_pair_has_the_references_number_of_parameters():
    assert sum(map(parameters, bottleneck_pair(16))) == 3_344


@pytest.mark.parametrize("spec", [*AGENT_ZOO, *bottleneck_pair(512), *bottleneck_pair(64)])
def test_parameters_of_single_agents(spec):
    assert parameters(spec) == by_formula(spec)


def test_latent_sizes_and_targets_of_the_table():
    sizes = [128, 224, 64, 128, 192, 96, 256, 144, 160, 80, 120, 240, 80, 96, 160]
    assert [spec.latent for spec in AGENT_ZOO] == sizes
    assert sum(len(spec.target_classes) for spec in AGENT_ZOO) == 80
    for spec in AGENT_ZOO:
        assert len(set(spec.target_classes)) == len(spec.target_classes) in (5, 6)
        assert set(spec.target_classes) <= set(range(10))


@pytest.mark.parametrize("d", BOTTLENECKS)
def test_both_of_a_pair_end_at_the_bottleneck(d):
    first, second = bottleneck_pair(d)
    assert first.latent == second.latent == d
    assert (first.dropout, second.dropout) == (0.3, 0.1)
    assert (set(first.target_classes), set(second.target_classes)) == (
        set(range(4, 10)),
        set(range(6)),
    )
    for spec in (first, second):
        latents = build_encoder(spec, MNIST)(torch.rand(2, *MNIST))
        assert latents.shape == (2, d)
        assert build_head(spec, 10)(latents).shape == (2, 10)


def test_other_kinds_and_sizes():
    spec = AgentSpec((16, 4), (), kind="mlp", batch_norm=False)
    assert build_encoder(spec, (64,))(torch.rand(1, 64)).shape == (1, 4)
    assert build_encoder(AGENT_ZOO[1], (1, 8, 8))(torch.rand(2, 1, 8, 8)).shape == (2, 224)
    with pytest.raises(InputError, match="one of 16, 32, 64, 128, 256, 512, got 48"):
        bottleneck_pair(48)
    with pytest.raises(InputError, match="one of cnn, mlp, linear, got 'rnn'"):
        AgentSpec((4,), (), kind="rnn")
    with pytest.raises(InputError, match="at least one width"):
        AgentSpec((), ())
