"""Training and communication over noisy links."""

import networkx as nx
import numpy as np
import pytest
import torch
from torch import Tensor

from sheafed import Distillation, MapPolicy, NonCooperative, SheafFRL, train
from sheafed.channels import Channel
from sheafed.evaluation import evaluate_locally
from sheafed.methods import FedMuscle, Method
from sheafed.methods.node import Node
from sheafed.pilots.policies import UniformPilots
from sheafed.training.post_hoc_maps import fit_post_hoc_maps
from sheafed.transport import Barrier, Message
from tests.helpers.rounds import misalignments
from tests.helpers.small_federations import (
    MessageRecorder,
    agent,
    nodes_of,
    pilots,
    run_rounds,
    same_weights,
)

TRIANGLE = [("a", "b"), ("a", "c"), ("b", "c")]
NOISE = Channel(snr_db=3, erasure=0.1)


def network(method: Method, *, backwards: bool = False) -> dict[str, Node]:
    sizes = {"a": 9, "b": 5, "c": 5}
    names = sorted(sizes, reverse=backwards)
    return nodes_of([agent(name, sizes[name]) for name in names], TRIANGLE, method)


def by_numpy(m: Tensor) -> Tensor:
    u, _, wt = np.linalg.svd(m.double().numpy(), full_matrices=False)
    return torch.from_numpy(u @ wt).to(m.dtype)


def sent(recorder: MessageRecorder, kind: str = "round") -> dict[tuple[str, str, int], Message]:
    return {(m.sender, m.receiver, m.round): m for m in recorder.messages if m.kind == kind}


@pytest.mark.parametrize("channel", [Channel(), Channel(snr_db=-20, bits=1, when="inference")])
@pytest.mark.parametrize("privacy", ["standard", "strict"])
def test_training_is_untouched_to_the_bit(channel: Channel, privacy: str) -> None:
    method = SheafFRL(
        privacy=privacy, distillation=Distillation(), pilots_per_round=16, channel=channel
    )
    clean = network(SheafFRL(privacy=privacy, distillation=Distillation(), pilots_per_round=16))
    other = network(method)
    run_rounds(clean, 5)
    run_rounds(other, 5)
    assert same_weights(*([node.agent for node in nodes.values()] for nodes in (clean, other)))
    same = evaluate_locally(clean).communication == evaluate_locally(other).communication
    assert same == (channel.when == "always")


@pytest.mark.parametrize("maps", [MapPolicy(), MapPolicy(source="all")])
@pytest.mark.parametrize("options", [{}, {"privacy": "strict"}, {"edge_dim": 3}])
def test_what_crosses_the_wire_is_as_noisy_as_was_asked_for(
    maps: MapPolicy, options: dict[str, object]
) -> None:
    quiet = run_rounds(network(SheafFRL(maps=maps, **options)), 1)
    noisy = run_rounds(network(SheafFRL(maps=maps, channel=Channel(snr_db=6), **options)), 1)
    expected = sent(quiet)
    noises = {}
    for key, message in sent(noisy).items():
        for name, tensor in message.tensors.items():
            signal = expected[key].tensors[name]
            noises[key, name] = tensor - signal
            ratio = 10 * torch.log10(signal.square().sum() / noises[key, name].square().sum())
            assert abs(float(ratio) - 6) < 1.5
    assert len(noises) == 6 * (1 + (maps.source == "all"))
    assert len({float(noise[0, 0]) for noise in noises.values()}) == len(noises)


def test_probabilities_do_not_cross_the_channel() -> None:
    quiet = run_rounds(network(SheafFRL(distillation=Distillation())), 1)
    noisy = run_rounds(network(SheafFRL(distillation=Distillation(), channel=NOISE)), 1)
    for key, message in sent(noisy).items():
        assert torch.equal(
            message.tensors["probabilities"], sent(quiet)[key].tensors["probabilities"]
        )


@pytest.mark.parametrize("privacy", ["standard", "strict"])
def test_noise_does_not_depend_on_the_order_of_agents(privacy: str) -> None:
    wires = []
    for backwards in (False, True):
        nodes = network(SheafFRL(privacy=privacy, channel=NOISE), backwards=backwards)
        wires.append(sent(run_rounds(nodes, 3)))
        wires[-1]["accuracy"] = sorted(evaluate_locally(nodes).communication.items())
    one, other = wires
    assert one.pop("accuracy") == other.pop("accuracy")
    assert one.keys() == other.keys()
    for key, message in one.items():
        assert torch.equal(message.tensors["latents"], other[key].tensors["latents"])


def test_each_end_fits_to_its_own_latents_and_what_arrived() -> None:
    """By NumPy, from the messages of a quiet and a noisy network with equal weights."""
    options = {"maps": MapPolicy(source="round"), "pilots_per_round": UniformPilots(48, 40, 0)}
    quiet = run_rounds(network(SheafFRL(**options)), 1)
    nodes = network(SheafFRL(channel=NOISE, **options))
    noisy = run_rounds(nodes, 1)
    for head, tail in [("a", "b"), ("a", "c"), ("b", "c")]:
        clean = {
            n: sent(quiet)[n, m, 0].tensors["latents"] for n, m in ((head, tail), (tail, head))
        }
        arrived = {
            n: sent(noisy)[n, m, 0].tensors["latents"] for n, m in ((head, tail), (tail, head))
        }
        at_head = by_numpy(clean[head].mT @ arrived[tail])
        at_tail = by_numpy(arrived[head].mT @ clean[tail])
        torch.testing.assert_close(nodes[head].endpoints[tail].map, at_head, atol=1e-4, rtol=0)
        torch.testing.assert_close(nodes[tail].endpoints[head].map, at_tail, atol=1e-4, rtol=0)
        assert float((at_head - at_tail).abs().max()) > 0.02


def test_running_maps_average_the_noise_of_rounds() -> None:
    """With latents that stand still, both ends of an edge come near the map of a quiet one."""

    def off(source: str, channel: Channel | None) -> float:
        frozen = {"optimizer": lambda p: torch.optim.SGD(p, lr=0.0)}
        agents = [agent("a", 6, **frozen), agent("b", 4, **frozen)]
        method = SheafFRL(maps=MapPolicy(source=source), pilots_per_round=48, channel=channel)
        nodes = nodes_of(agents, [("a", "b")], method)
        run_rounds(nodes, 40)
        return misalignments(nodes)["a", "b"]

    best = off("running", None)
    noise = Channel(snr_db=-6)
    assert off("round", noise) - best > 3 * (off("running", noise) - best) > 0


def test_maps_after_training_are_fitted_over_the_channel() -> None:
    quiet, noisy = (network(NonCooperative(channel=c)) for c in (None, Channel(snr_db=6)))
    wires = [run_rounds(nodes, 1) for nodes in (quiet, noisy)]
    for nodes, recorder in zip((quiet, noisy), wires, strict=True):
        fit_post_hoc_maps(nodes, Barrier(recorder.transport), 0)
    clean, arrived = (sent(recorder, "alignment") for recorder in wires)
    assert len(arrived) == 6
    for key, message in arrived.items():
        signal, noise = clean[key].tensors["latents"], message.tensors["latents"]
        ratio = 10 * torch.log10(signal.square().sum() / (noise - signal).square().sum())
        assert abs(float(ratio) - 6) < 1.5
    assert not torch.equal(noisy["a"].endpoints["b"].map, noisy["b"].endpoints["a"].map)
    assert torch.equal(quiet["a"].endpoints["b"].map, quiet["b"].endpoints["a"].map)


def test_the_representations_of_fedmuscle_cross_the_channel() -> None:
    def one_round(channel: Channel | None) -> dict[tuple[str, str, int], Message]:
        method = FedMuscle(local_epochs=0, pilots_per_round=16, channel=channel)
        return sent(run_rounds(nodes_of([agent("a", 4), agent("b", 4)], [("a", "b")], method), 1))

    quiet, noisy = one_round(None), one_round(NOISE)
    assert not torch.equal(*(w["a", "b", 0].tensors["latents"] for w in (quiet, noisy)))


def test_the_worse_the_link_the_less_is_understood() -> None:
    agents = [agent("a", 9), agent("b", 5)]
    run = train(agents, [("a", "b")], SheafFRL(), pilots(), epochs=15, oracle=False)
    measured = []
    for snr_db in (-30, 0, 30):
        for node in run.nodes.values():
            node.channel = Channel(snr_db=snr_db)
        found = evaluate_locally(run.nodes, oracle=False)
        measured.append(found.summary()["communication_accuracy"])
        assert (
            found.misalignment == run.history.evaluation.misalignment
        )  # which is about clean pilots
    assert measured[0] < 0.5 < measured[1] + 0.1 <= measured[2] + 0.1
    assert measured[2] == pytest.approx(run.history.last["communication_accuracy"], abs=0.02)


def test_the_sheaf_of_a_noisy_run_has_the_maps_of_the_heads() -> None:
    sizes = {"a": 4, "b": 7}  # the head sorts last
    agents = [agent(name, d) for name, d in sizes.items()]
    run = train(agents, nx.path_graph(["a", "b"]), SheafFRL(channel=NOISE), pilots(), epochs=1)
    at_head, at_tail = run.nodes["b"].endpoints["a"].map, run.nodes["a"].endpoints["b"].map
    (v,) = run.sheaf.maps.values()
    assert torch.equal(v, at_head)
    assert not torch.equal(v, at_tail)
