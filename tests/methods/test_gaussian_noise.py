"""Noise on what leaves: how much, from where, and that nothing leaves beside it."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from sheafed import Distillation, MapPolicy, SheafFRL, train
from sheafed.differential_privacy import mu_of
from sheafed.errors import InputError
from sheafed.evaluation import evaluate_locally
from sheafed.evaluation.peer_evaluator import PeerEvaluator
from sheafed.linalg.procrustes import polar_factor
from sheafed.methods import GaussianNoise, NoWhitening
from sheafed.methods.sheaf_frl.gaussian_noise import noise_stream
from sheafed.methods.sheaf_frl.node import SheafFRLNode
from sheafed.training.multi_hop import mismatches
from tests.helpers.rounds import handshake
from tests.helpers.small_federations import MessageRecorder, agent, nodes_of, normal, pilots

EDGES = [("a", "b"), ("b", "c"), ("a", "c")]
MIXED, EQUAL = (7, 4, 4), (5, 5, 5)
NOISE = GaussianNoise(epsilon=8.0, clip=0.7)


def test_long_latents_are_clipped_and_all_are_noised_to_scale() -> None:
    z = torch.cat([3 * normal(1, 4000, 9), 0.01 * normal(2, 4000, 9), torch.zeros(2, 9)]).double()
    sent = NOISE.release(z, noise_stream(5, "a", "latents", 0, z))
    bound, sigma = 0.7 * 3, 2 * 0.7 * 3 / mu_of(8.0, 1e-5)
    kept = torch.stack([row * min(1, bound / float(row.norm())) for row in z[:8000]])
    noise = sent[:8000] - kept
    assert float(kept.norm(dim=1).max()) <= bound + 1e-9
    assert float(noise.std()) == pytest.approx(sigma, rel=0.01)
    assert float(noise.mean()) == pytest.approx(0, abs=0.02 * sigma)
    correlation = float((noise * kept).mean() / (noise.std() * kept.std()))
    assert correlation == pytest.approx(0, abs=0.02)
    assert torch.isfinite(sent).all()  # rows of zeros too


def test_noise_is_repeated_only_for_the_same_release() -> None:
    z = normal(1, 6, 4)

    def noise(*key: object, latents: Tensor = z) -> float:
        return float(noise_stream(*key, latents).standard_normal())

    same = noise(5, "a", "latents", 3)
    assert noise(5, "a", "latents", 3) == same
    others = [noise(6, "a", "latents", 3), noise(5, "b", "latents", 3), noise(5, "a", "all", 3)]
    others += [noise(5, "a", "latents", 4), noise(5, "a", "latents", 3, latents=z + 1e-6)]
    assert len({same, *others}) == 6


def first_rounds(method: SheafFRL, dims: tuple[int, ...], rounds: int = 1, send: bool = False):
    """Return the nodes and the recorder; with `send`, another round is sent but not received."""
    team = [agent(name, d) for name, d in zip("abc", dims, strict=True)]
    nodes: dict[str, SheafFRLNode] = nodes_of(team, EDGES, method)
    recorder = MessageRecorder(nodes)
    handshake(nodes, recorder.transport)
    for round in range(rounds + send):
        for node in nodes.values():
            recorder.transport.send(node.send(round))
        if round < rounds:
            for name, node in nodes.items():
                node.receive(
                    round, recorder.transport.receive(name, round, "round", node.neighbours)
                )
    return nodes, recorder


def test_all_neighbours_get_one_and_the_same_noise() -> None:
    """So the number of neighbours does not count in what is spent."""
    nodes, recorder = first_rounds(SheafFRL(pilots_per_round=24, noise=NOISE), MIXED, 0, send=True)
    sent = recorder.of_round(0)
    for name, node in nodes.items():
        one, other = (sent[name, j].tensors["latents"] for j in node.neighbours)
        assert torch.equal(one, other)
        assert not torch.allclose(one, node._sent.own.detach(), atol=0.1)


@pytest.mark.parametrize("dims", [MIXED, EQUAL])
def test_strict_messages_are_the_same_release_turned(dims: tuple[int, ...]) -> None:
    method = SheafFRL(pilots_per_round=24, noise=NOISE, privacy="strict")
    nodes, recorder = first_rounds(method, dims, 2)
    sent = recorder.of_round(1)
    for name, node in nodes.items():
        one, other = (sent[name, j].tensors["latents"] for j in node.neighbours)
        torch.testing.assert_close(one @ one.mT, other @ other.mT, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("source", ["round", "all"])
def test_maps_that_leave_are_fitted_to_what_left(source: str) -> None:
    """At the tail of equal sizes the map turns what is sent: exact latents must not show in it."""
    maps = MapPolicy(source=source)
    nodes, recorder = first_rounds(SheafFRL(pilots_per_round=24, noise=NOISE, maps=maps), EQUAL)
    field = "latents" if source == "round" else "all"
    sent = recorder.of_round(0)
    received = sent["a", "b"].tensors[field]  # a is the head: its map is the identity
    own = sent["b", "a"].tensors[field]  # and b had no map yet, so this is what b released
    expected = polar_factor(received.mT @ own)
    torch.testing.assert_close(nodes["b"].endpoints["a"].map, expected, atol=1e-4, rtol=0)


def test_maps_that_stay_are_fitted_to_exact_own_latents() -> None:
    method = SheafFRL(pilots_per_round=24, noise=NOISE, maps=MapPolicy(source="round"))
    nodes, recorder = first_rounds(method, MIXED, 0, send=True)
    own = {name: node._sent.own.detach().clone() for name, node in nodes.items()}
    for name, node in nodes.items():
        node.receive(0, recorder.transport.receive(name, 0, "round", node.neighbours))
    sent = recorder.of_round(0)
    at_head = polar_factor(own["a"].mT @ sent["b", "a"].tensors["latents"])
    at_tail = polar_factor(sent["a", "b"].tensors["latents"].mT @ own["b"])
    torch.testing.assert_close(nodes["a"].endpoints["b"].map, at_head, atol=1e-4, rtol=0)
    torch.testing.assert_close(nodes["b"].endpoints["a"].map, at_tail, atol=1e-4, rtol=0)
    assert not torch.allclose(at_head, at_tail, atol=0.05)


def test_probabilities_are_about_what_was_released() -> None:
    method = SheafFRL(
        pilots_per_round=24, noise=NOISE, distillation=Distillation(), whitening=NoWhitening()
    )
    nodes, recorder = first_rounds(method, MIXED, 0, send=True)
    sent = recorder.of_round(0)["b", "a"].tensors
    expected = torch.softmax(nodes["b"].agent.head(sent["latents"]), dim=-1)
    torch.testing.assert_close(sent["probabilities"], expected)


def test_exact_pilots_are_not_shown_to_neighbours() -> None:
    nodes, _ = first_rounds(SheafFRL(pilots_per_round=24, noise=NOISE), MIXED)
    assert [list(PeerEvaluator(node, 1).show_pilots()) for node in nodes.values()] == [[], [], []]
    assert evaluate_locally(nodes).misalignment == {}
    with pytest.raises(InputError, match="add noise to their pilots"):
        mismatches(nodes)
    exact, _ = first_rounds(SheafFRL(pilots_per_round=24), MIXED)
    assert len(evaluate_locally(exact).misalignment) == 3


def test_an_interrupted_run_ends_with_the_same_bytes(tmp_path: Path) -> None:
    def run(out: Path, epochs: int, resume: bool = False) -> None:
        team = [agent(name, d) for name, d in zip("abc", MIXED, strict=True)]
        method = SheafFRL(pilots_per_round=24, noise=NOISE, distillation=Distillation(0.3))
        train(team, EDGES, method, pilots(), epochs=epochs, out=out, resume=resume, seed=3)

    run(tmp_path / "whole", 4)
    run(tmp_path / "parts", 2)
    run(tmp_path / "parts", 4, resume=True)
    for name in ("metrics.jsonl", "last.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()


def test_noise_that_protects_nothing_is_refused() -> None:
    for options in ({"epsilon": 0.0}, {"epsilon": 1.0, "delta": 0.0}, {"epsilon": 1.0, "clip": 0}):
        with pytest.raises(InputError, match="must"):
            GaussianNoise(**options)
