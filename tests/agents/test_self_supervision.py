"""Objectives without labels, against NumPy by hand and what their papers promise."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sheafed.agents import paper_optimizer
from sheafed.agents.agent import Agent
from sheafed.agents.objectives import (
    Autoencoding,
    Objective,
    OnlineProbe,
    SimCLR,
    SimCLROptions,
    VICReg,
    VICRegOptions,
    covariance_term,
    cross_entropy,
    invariance_term,
    nt_xent,
    reconstruction_error,
    variance_term,
)
from sheafed.agents.samples import Batch
from sheafed.errors import InputError, ShapeError
from sheafed.models import decoder, mlp

SHAPE = (1, 8, 8)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def agent(objective: Objective, head: bool = False, latent: int = 5) -> Agent:
    images = normal(1, 24, *SHAPE).float()
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(64, latent))
    data = (images, torch.arange(24) % 3) if head else images
    return Agent(
        "a",
        encoder,
        nn.Linear(latent, 3) if head else None,
        data=data,
        objective=objective,
        batch_size=8,
        optimizer=paper_optimizer,
    )


def same(inputs: Tensor) -> Tensor:
    return inputs


# Autoencoding


def test_the_reconstruction_error_by_hand() -> None:
    inputs, restored = normal(0, 4, 2, 3), normal(1, 4, 2, 3)
    by_hand = sum(
        (float(inputs[index]) - float(restored[index])) ** 2 for index in np.ndindex(4, 2, 3)
    )
    assert float(reconstruction_error(restored, inputs)) == pytest.approx(by_hand / 24)


def test_a_decoder_must_restore_the_shape() -> None:
    with pytest.raises(ShapeError, match=r"gave \(4, 6\) for inputs \(4, 2, 3\)"):
        reconstruction_error(normal(0, 4, 6), normal(0, 4, 2, 3))


def test_linear_autoencoding_finds_the_principal_subspace() -> None:
    """Its optimum is PCA (Baldi and Hornik 1989): the error is the variance left out."""
    inputs = normal(2, 60, 6) @ torch.diag(torch.tensor([5.0, 3, 1, 0.5, 0.2, 0.1]).double())
    inputs = inputs - inputs.mean(0)
    torch.manual_seed(0)
    one = Agent(
        "a",
        nn.Linear(6, 2).double(),
        data=inputs,
        objective=Autoencoding(nn.Linear(2, 6).double()),
        optimizer=lambda p: torch.optim.Adam(p, lr=0.05),
        batch_size=60,
    )
    for _ in range(400):
        loss = one.objective(one, one.next_batch())
        one.optimizer_step(loss)
    singular = np.linalg.svd(inputs.numpy(), compute_uv=False)
    assert float(loss.detach()) == pytest.approx((singular[2:] ** 2).sum() / 360, rel=1e-3)


# VICReg

WEIGHTS = {"invariance": 2, "variance": 3, "covariance": 5}


def test_the_terms_of_vicreg_by_hand() -> None:
    z, w = normal(3, 7, 4), normal(4, 7, 4)
    a, b = z.numpy(), w.numpy()
    assert float(invariance_term(z, w)) == pytest.approx(((a - b) ** 2).sum() / 28)
    spread = [max(0.0, 1 - np.sqrt(np.var(a[:, j], ddof=1) + 1e-4)) for j in range(4)]
    assert float(variance_term(z)) == pytest.approx(np.mean(spread))
    c = np.cov(a.T)
    off = sum(c[i, j] ** 2 for i in range(4) for j in range(4) if i != j)
    assert float(covariance_term(z)) == pytest.approx(off / 4)


def test_vicreg_weighs_the_terms_of_both_views() -> None:
    one = agent(VICReg(nn.Identity(), VICRegOptions(**WEIGHTS, augmentation=same)))
    batch = one.next_batch()
    views = iter([batch.inputs, 2 * batch.inputs + 1])
    objective = VICReg(nn.Identity(), VICRegOptions(**WEIGHTS, augmentation=lambda _: next(views)))
    z, w = one.encode(batch.inputs), one.encode(2 * batch.inputs + 1)
    expected = (
        2 * invariance_term(z, w)
        + 1.5 * (variance_term(z) + variance_term(w))
        + 5 * (covariance_term(z) + covariance_term(w))
    )
    torch.testing.assert_close(objective(one, batch), expected)


def white(n: int, d: int, scale: float) -> Tensor:
    q = torch.linalg.qr(normal(5, n, d) - normal(5, n, d).mean(0))[0]
    return scale * np.sqrt(n - 1) * q


def test_perfect_embeddings_cost_vicreg_nothing() -> None:
    z = white(12, 4, scale=1.2)
    assert float(invariance_term(z, z)) == 0
    assert float(variance_term(z)) == 0
    assert float(covariance_term(z)) == pytest.approx(0, abs=1e-20)


@pytest.mark.parametrize("flaw", ["collapsed", "redundant"])
def test_what_vicreg_forbids_costs_much(flaw: str) -> None:
    z = white(12, 4, scale=1.2)
    if flaw == "collapsed":
        collapsed = z[:1].expand(12, 4)
        assert float(variance_term(collapsed)) == pytest.approx(0.99)
        assert float(covariance_term(collapsed)) == 0
    else:
        redundant = z[:, :1].expand(12, 4)
        assert float(variance_term(redundant)) == 0
        assert float(covariance_term(redundant)) == pytest.approx(3 * 1.2**4)


def test_training_by_vicreg_leaves_a_collapse() -> None:
    one = agent(
        VICReg(nn.Identity(), VICRegOptions(augmentation=lambda x: x + 0.1 * torch.randn_like(x)))
    )
    with torch.no_grad():
        one.encoder[1].weight.mul_(1e-3)
    before = float(one.encode_samples(one.data.train)[0].std(0).min())
    for _ in range(150):
        with one.rng_context():
            one.optimizer_step(one.objective(one, one.next_batch()))
    after = one.encode_samples(one.data.train)[0]
    assert before < 0.01
    assert float(after.std(0).min()) > 0.5
    assert float(torch.corrcoef(after.T).triu(1).abs().max()) < 0.5


@pytest.mark.parametrize("term", [variance_term, covariance_term])
def test_one_sample_has_no_variance(term) -> None:
    with pytest.raises(ShapeError, match=r"at least two inputs, got \(1, 4\)"):
        term(normal(0, 1, 4))


@pytest.mark.parametrize("term", [variance_term, covariance_term])
def test_the_gradients_of_vicreg_by_finite_differences(term) -> None:
    z = (0.3 * normal(6, 5, 3)).requires_grad_()
    assert torch.autograd.gradcheck(term, (z,))


# SimCLR


def test_nt_xent_by_a_loop() -> None:
    first, second = normal(7, 5, 3), normal(8, 5, 3)
    z = np.concatenate([first.numpy(), second.numpy()])
    losses = []
    for k in range(10):
        partner = k + 5 if k < 5 else k - 5
        cosines = [z[k] @ v / np.linalg.norm(z[k]) / np.linalg.norm(v) for v in z]
        others = sum(np.exp(cosines[m] / 0.2) for m in range(10) if m != k)
        losses.append(-np.log(np.exp(cosines[partner] / 0.2) / others))
    assert float(nt_xent(first, second, 0.2)) == pytest.approx(np.mean(losses))


def test_one_input_has_nothing_to_be_told_from() -> None:
    with pytest.raises(ShapeError, match="at least two inputs, got 1"):
        nt_xent(normal(1, 1, 4), normal(2, 1, 4), 0.5)


def test_nt_xent_sees_directions_alone() -> None:
    first, second = normal(7, 5, 3), normal(8, 5, 3)
    turned = torch.linalg.qr(normal(9, 3, 3))[0]
    loss = nt_xent(first, second, 0.5)
    torch.testing.assert_close(nt_xent(3 * first @ turned, 0.1 * second @ turned, 0.5), loss)
    torch.testing.assert_close(nt_xent(second, first, 0.5), loss)


def test_nt_xent_of_a_collapse_is_that_of_guessing() -> None:
    same_everywhere = torch.ones(6, 3)
    assert float(nt_xent(same_everywhere, same_everywhere, 0.5)) == pytest.approx(np.log(11))
    assert float(nt_xent(torch.eye(6), torch.eye(6), 0.01)) == pytest.approx(0, abs=1e-6)


def test_temperatures() -> None:
    with pytest.raises(InputError, match="temperature must be above 0, got 0"):
        SimCLROptions(temperature=0)


# In an agent


@pytest.mark.parametrize(
    "make",
    [
        lambda: Autoencoding(decoder(5, SHAPE)),
        lambda: VICReg(mlp((12, 12), inputs=(5,))),
        lambda: SimCLR(mlp((12, 6), inputs=(5,))),
    ],
    ids=["autoencoding", "vicreg", "simclr"],
)
class TestInAnAgent:
    def test_it_trains_the_encoder_and_its_own_parameters(self, make) -> None:
        one = agent(make())
        own = list(one.objective.parameters())
        before = [p.detach().clone() for p in [one.encoder[1].weight, *own]]
        losses = []
        for _ in range(60):
            with one.rng_context():
                loss = one.objective(one, one.next_batch())
                one.optimizer_step(loss)
            losses.append(float(loss.detach()))
        assert np.mean(losses[-15:]) < np.mean(losses[:15])
        changed = [
            not torch.equal(p, q)
            for p, q in zip(before, [one.encoder[1].weight, *own], strict=True)
        ]
        assert all(changed)

    def test_it_resumes(self, make) -> None:
        def step(a: Agent) -> float:
            with a.rng_context():
                loss = a.objective(a, a.next_batch())
                a.optimizer_step(loss)
            return float(loss.detach())

        one, other = agent(make()), agent(make())
        one.reset_rng(3)
        other.reset_rng(3)
        other.encoder[1].weight.data.zero_()
        step(one)
        other.load_state(deepcopy(one.state()))
        torch.rand(7)  # whatever happens around it
        assert [step(one) for _ in range(3)] == [step(other) for _ in range(3)]

    def test_it_draws_from_the_agent_alone(self, make) -> None:
        one = agent(make())
        before = torch.get_rng_state()
        with one.rng_context():
            one.objective(one, one.next_batch())
        assert torch.equal(torch.get_rng_state(), before)

    def test_a_probe_trains_the_head_and_leaves_the_encoder_alone(self, make) -> None:
        plain, probed = agent(make(), head=True), agent(OnlineProbe(make()), head=True)
        probed.objective.objective.load_state_dict(plain.objective.state_dict())
        for _ in range(20):
            for one in (plain, probed):
                with one.rng_context():
                    one.optimizer_step(one.objective(one, one.next_batch()))
        assert torch.equal(plain.encoder[1].weight, probed.encoder[1].weight)
        latents, targets = probed.encode_samples(probed.data.train)
        with torch.no_grad():
            learnt, not_learnt = (
                float(nn.functional.cross_entropy(one.head(latents), targets))
                for one in (probed, plain)
            )
        assert learnt < 0.95 * not_learnt


def test_a_probe_needs_labels() -> None:
    one = agent(OnlineProbe(Autoencoding(decoder(5, SHAPE))))
    with pytest.raises(InputError, match="has no head"):
        one.objective(one, one.next_batch())


def test_a_probe_adds_the_cross_entropy_of_the_head() -> None:
    one = agent(OnlineProbe(lambda a, b: a.encode(b.inputs).square().mean()), head=True)
    batch = Batch(*one.data.train.batch(torch.arange(8)))
    expected = one.encode(batch.inputs).square().mean() + cross_entropy(one, batch)
    torch.testing.assert_close(one.objective(one, batch), expected)
