import pytest
import torch
from torch import nn

from sheafed.errors import InputError
from sheafed.models import cnn, head, linear, mlp


def kinds(module):
    return [type(layer).__name__ for layer in module]


def test_the_blocks_of_a_cnn():
    block = ["Conv2d", "BatchNorm2d", "ReLU", "MaxPool2d", "Dropout"]
    assert kinds(cnn((4, 8), dropout=0.3)) == [*block, *block, "AdaptiveAvgPool2d", "Flatten"]
    assert kinds(cnn((4,), batch_norm=False)) == [
        *("Conv2d", "ReLU", "MaxPool2d", "AdaptiveAvgPool2d", "Flatten")
    ]


@pytest.mark.parametrize("inputs", [(1, 28, 28), (1, 8, 8), (3, 5, 9), (2, 1, 7), (1, 1, 1)])
@pytest.mark.parametrize("blocks", [1, 4, 6])
def test_any_number_of_blocks_fits_any_image(inputs, blocks):
    encoder = cnn([3] * (blocks - 1) + [5], inputs=inputs)
    assert encoder(torch.rand(2, *inputs)).shape == (2, 5)


def test_a_latent_is_the_mean_of_the_last_map():
    encoder = cnn((2, 3), inputs=(1, 12, 12)).eval()
    images = torch.rand(4, 1, 12, 12)
    torch.testing.assert_close(encoder(images), encoder[:-2](images).mean(dim=(2, 3)))


def test_dropout_acts_in_training_only():
    for module, shape in (
        (cnn((8,), dropout=0.5, batch_norm=False), (4, 1, 28, 28)),
        (mlp((8, 3), inputs=(5,), dropout=0.5, batch_norm=False), (4, 5)),
        (head(5, (8,), 3, 0.5, batch_norm=False), (4, 5)),
    ):
        x = torch.rand(shape)
        assert not torch.equal(module(x), module(x))
        module.eval()
        assert torch.equal(module(x), module(x))


def test_a_linear_encoder_is_one_layer_and_tanh():
    encoder = linear((3,), inputs=(5,), dropout=0.5)
    assert kinds(encoder) == ["Flatten", "Linear", "Tanh"]
    x = torch.rand(4, 5)
    torch.testing.assert_close(encoder(x), torch.tanh(x @ encoder[1].weight.T + encoder[1].bias))
    with pytest.raises(InputError, match=r"widths must be 1 positive whole numbers, got \[4, 3\]"):
        linear((4, 3), inputs=(5,))


def test_the_layers_of_perceptrons():
    hidden = ["Linear", "BatchNorm1d", "ReLU", "Dropout"]
    assert kinds(head(6, (5, 4), 3, 0.1)) == [*hidden, *hidden, "Linear"]
    assert kinds(head(6, (), 3)) == ["Linear"]
    encoder = mlp((5, 4), inputs=(1, 8, 8), dropout=0.1)
    assert kinds(encoder) == ["Flatten", *hidden, "Linear"]
    assert encoder(torch.rand(2, 1, 8, 8)).shape == (2, 4)
    assert mlp((4,), inputs=(7,))(torch.rand(2, 7)).shape == (2, 4)


def test_modules_learn():
    torch.manual_seed(0)
    model = nn.Sequential(cnn((8, 8), inputs=(1, 8, 8)), head(8, (8,), 2))
    images = torch.rand(32, 1, 8, 8)
    labels = (images.mean(dim=(1, 2, 3)) > 0.5).long()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(60):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.2 * losses[0]


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: cnn(()), r"widths must be at least 1 positive whole numbers, got \[\]"),
        (lambda: cnn((4, 0)), r"\[4, 0\]"),
        (lambda: cnn((4.0,)), r"\[4\.0\]"),
        (lambda: cnn((4,), inputs=(28, 28)), r"inputs \(c, h, w\) must be 3 positive"),
        (lambda: cnn((4,), dropout=1.0), r"dropout must lie in \[0, 1\), got 1\.0"),
        (lambda: mlp((), inputs=(3,)), "widths"),
        (lambda: mlp((3,), inputs=()), "inputs"),
        (lambda: mlp((3,), inputs=(3,), dropout=-0.1), "dropout"),
        (lambda: head(0, (), 10), "latent and classes"),
        (lambda: head(4, (-1,), 10), "widths"),
        (lambda: head(4, (True,), 10), "widths"),
    ],
)
def test_what_cannot_be_built(build, said):
    with pytest.raises(InputError, match=said):
        build()
