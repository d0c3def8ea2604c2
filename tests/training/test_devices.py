"""Networks whose agents are on different devices, beside the same networks on the CPU.

The stand-in runs the kernels of the CPU, so figures and weights must agree in every bit. On real
devices they agree up to rounding. `bob` is always on the CPU, between two agents that are not.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam

import sheafed
from sheafed import Agent, Distillation, NonCooperative, SheafFRL, train
from sheafed.channels import Channel
from sheafed.checkpointing.checkpoint import load_checkpoint
from sheafed.checkpointing.state_tree import flatten
from sheafed.errors import InputError
from sheafed.methods import (
    SWBN,
    ComFed,
    Consensus,
    ConsensusDistillation,
    FedMuscle,
    FedProto,
    GaussianNoise,
    MapPolicy,
    Method,
    SheafFMTL,
)
from sheafed.methods.node import Node
from sheafed.privacy import membership_from_latents, membership_from_probabilities
from sheafed.training import Network
from tests.helpers.devices import OTHERS, STAND_IN, using, without_float64
from tests.helpers.federations import seeded, weights

# The same bits are asked for after every step that they take.
pytestmark = pytest.mark.usefixtures("short_reading_heads")

LINE = [("ada", "bob"), ("bob", "cyd")]
SIDE, CLASSES = 4, 3

METHODS: dict[str, Callable[[], Method]] = {
    "running": lambda: SheafFRL(
        pilots_per_round=8,
        maps=MapPolicy(source="running"),
        distillation=Distillation(confidence=0.3),
        exchange_every=2,
    ),
    "strict": lambda: SheafFRL(
        privacy="strict",
        maps=MapPolicy(source="all"),
        pilots_per_round=9,
        whitening=SWBN(),
        quantisation="int8",
    ),
    "compressed": lambda: SheafFRL(
        edge_dim=2, pilots_per_round=8, channel=Channel(snr_db=15, bits=6, erasure=0.1)
    ),
    "gaussian": lambda: SheafFRL(pilots_per_round=8, noise=GaussianNoise(epsilon=8)),
    "consensus": lambda: ConsensusDistillation(confidence=0.4, exchange_every=2),
    "agreed": lambda: SheafFRL(
        pilots_per_round=8, distillation=Consensus(confidence=0.3), exchange_every=2
    ),
    "alone": lambda: NonCooperative(whitening="private"),
    "parameters": lambda: SheafFMTL(penalty=1e-3, gamma=0.02, every=1),
    "projections": lambda: ComFed(penalty=0.5, projection=3, every="round"),
}
HOMOGENEOUS: dict[str, Callable[[], Method]] = {
    "homogeneous": lambda: SheafFRL(pilots_per_round=8),
    "prototypes": lambda: FedProto(),
    "contrast": lambda: FedMuscle(pilots_per_round=8, local_epochs=1),
}
ALL = METHODS | HOMOGENEOUS


def images(count: int, seed: int) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    targets = torch.randint(CLASSES, (count,), generator=stream)
    centres = torch.randn(CLASSES, 1, SIDE, SIDE, generator=torch.Generator().manual_seed(9))
    return centres[targets] + torch.randn(count, 1, SIDE, SIDE, generator=stream), targets


def pilots() -> Tensor:
    return images(24, seed=5)[0]


def member(name: str, dimension: int, device: Any, dropout: float = 0.3, **options: Any) -> Agent:
    """A small CNN with everything that torch treats differently from device to device."""
    encoder = seeded(
        len(name) + dimension,
        lambda: nn.Sequential(
            nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, dimension)
        ),
    )
    head = seeded(
        7 + dimension, lambda: nn.Sequential(nn.Dropout(dropout), nn.Linear(dimension, CLASSES))
    )
    seed = sum(map(ord, name))
    data = {"train": images(18, seed), "validation": images(9, seed), "test": images(12, seed + 1)}
    return Agent(name, encoder, head, data=data, batch_size=8, device=device, **options)


def team(device: torch.device | str, case: str) -> list[Agent]:
    # Random numbers of a real device are others than the CPU's.
    dropout = 0.3 if torch.device(device).type in ("cpu", "standin") else 0.0
    sizes = (4, 4, 4) if case in HOMOGENEOUS else (5, 4, 3)
    return [
        member("ada", sizes[0], device, dropout, optimizer=lambda p: SGD(p, lr=0.05, momentum=0.9)),
        member("bob", sizes[1], "cpu", dropout, max_grad_norm=0.5),
        member("cyd", sizes[2], device, dropout, optimizer=lambda p: Adam(p, lr=0.01)),
    ]


def run(case: str, device: torch.device | str, out: Path | None = None, **options: Any) -> Network:
    options = {"epochs": 2, "seed": 3, "evaluate_every": 2, **options}
    return train(team(device, case), LINE, ALL[case](), pilots(), out=out, **options)


def tolerance_on(device: torch.device | str) -> float:
    return 0.0 if torch.device(device).type == "standin" else 1e-3


def assert_same(one: Any, other: Any, tolerance: float) -> None:
    """Compare tensors, or figures in nested dictionaries: in every bit, unless it is tolerated."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key], tolerance)
    elif isinstance(one, Tensor):
        torch.testing.assert_close(one.cpu(), other, atol=tolerance, rtol=tolerance)
    elif isinstance(one, float):
        assert one == pytest.approx(other, abs=100 * tolerance, rel=0)
    else:
        assert one == other


def assert_same_networks(one: Network, other: Network, tolerance: float) -> None:
    assert_same(weights(one), weights(other), tolerance)
    assert_same(one.history.last, other.history.last, tolerance)


@pytest.fixture(params=OTHERS)
def device(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[torch.device]:
    with using(request.param, monkeypatch) as found:
        yield found


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    with using(STAND_IN, monkeypatch) as found:
        yield found


# The stand-in


def test_operations_across_devices_are_refused(device: torch.device) -> None:
    here, there = torch.ones(2, 2), torch.ones(2, 2, device=device)
    for operation in (torch.add, torch.matmul, torch.equal, lambda a, b: torch.cat([a, b])):
        with pytest.raises(RuntimeError, match=r"device|standin"):
            operation(here, there)
    with pytest.raises(TypeError, match="numpy"):
        there.numpy()
    assert torch.equal((there + there).cpu(), here + here)


def test_a_transfer_that_is_missing_is_noticed(
    stand_in: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Node, "_received", lambda self, message: message)
    with pytest.raises(RuntimeError, match="standin"):
        run("running", stand_in)


# Training and evaluation


@pytest.mark.parametrize("case", ALL)
def test_results_do_not_depend_on_devices(case: str, device: torch.device) -> None:
    here, there = run(case, "cpu"), run(case, device)
    assert there.agents["ada"].device.type == device.type
    assert {p.device.type for p in there.agents["ada"].parameters} == {device.type}
    assert {p.device.type for p in there.agents["bob"].parameters} == {"cpu"}
    assert_same_networks(there, here, tolerance_on(device))
    latents = torch.randn(6, here.agents["ada"].dimension)
    path = ["ada", "bob", "cyd"]
    arrived = there.send(latents, "ada", "cyd", path)
    assert arrived.device.type == device.type
    assert there.send(latents.to(device), "ada", "bob").device.type == "cpu"
    assert_same(arrived, here.send(latents, "ada", "cyd", path), tolerance_on(device))
    labels = [network.classify(latents, "ada", "cyd", path) for network in (here, there)]
    assert torch.equal(labels[0], labels[1].cpu())


@pytest.mark.parametrize(
    "case", ["running", "strict", "compressed", "consensus", "alone", "projections"]
)
def test_devices_without_float64(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = run(case, "cpu")
    with without_float64(monkeypatch) as device:
        there = run(case, device)
        assert_same_networks(there, here, tolerance=1e-4)


def test_routes_and_the_sheaf_of_a_network_on_several_devices(device: torch.device) -> None:
    here, there = run("running", "cpu"), run("running", device)
    latents = torch.randn(6, 5)
    assert_same(
        there.send(latents, "ada", "cyd"), here.send(latents, "ada", "cyd"), tolerance_on(device)
    )
    assert there.sheaf.maps.keys() == here.sheaf.maps.keys()
    assert all(v.device.type == "cpu" for v in there.sheaf.maps.values())


# Resuming


@pytest.mark.parametrize("case", ["running", "consensus", "projections"])
def test_a_run_goes_on_where_it_was(case: str, stand_in: torch.device, tmp_path: Path) -> None:
    run(case, stand_in, tmp_path, epochs=1)
    resumed = run(case, stand_in, tmp_path, resume=True, evaluate_every=1)
    assert_same_networks(resumed, run(case, "cpu", evaluate_every=1), tolerance=0)


@pytest.mark.parametrize("devices", [("cpu", STAND_IN), (STAND_IN, "cpu")])
def test_a_run_goes_on_elsewhere(
    devices: tuple[str, str], stand_in: torch.device, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(nn.Dropout, "forward", lambda self, x: x)  # streams do not move
    whole = run("running", "cpu", evaluate_every=1)
    first, second = devices
    run("running", first, tmp_path, epochs=1)
    resumed = run("running", second, tmp_path, resume=True, evaluate_every=1)
    assert_same_networks(resumed, whole, tolerance=0)


def test_files_are_those_of_the_cpu(stand_in: torch.device, tmp_path: Path) -> None:
    """All but the random streams: dropout draws from that of the device."""
    files = {}
    for name in ("cpu", STAND_IN):
        run("strict", name, tmp_path / name)
        tensors, _ = flatten(load_checkpoint(tmp_path / name / "last.safetensors"))
        assert any("device_rng_state" in key for key in tensors) == (name == STAND_IN)
        files[name] = {k: v for k, v in tensors.items() if "rng_state" not in k}
    assert_same(files[STAND_IN], files["cpu"], tolerance=0)
    metrics = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in files]
    assert metrics[0] == metrics[1]


# After training


@pytest.mark.parametrize("case", ["running", "alone"])
def test_a_network_is_loaded_and_deployed_elsewhere(
    case: str, stand_in: torch.device, tmp_path: Path
) -> None:
    trained = run(case, "cpu", tmp_path)
    loaded = sheafed.load(tmp_path, agents=team(stand_in, case), pilots=pilots())
    assert loaded.agents["ada"].device == stand_in
    latents, path = torch.randn(6, 5), ["ada", "bob", "cyd"]
    expected = trained.send(latents, "ada", "cyd", path)
    assert_same(loaded.send(latents, "ada", "cyd", path), expected, tolerance=0)
    link, pipeline = loaded.link("ada", "cyd", path), loaded.pipeline("ada", "cyd", path)
    torch.testing.assert_close(link(latents), expected, atol=1e-4, rtol=1e-4)
    assert {p.device.type for p in pipeline.parameters()} == {"cpu"}


# Joining, leaving, attacks


def test_agents_come_and_go(device: torch.device) -> None:
    def network(place: torch.device | str) -> Network:
        found = run("running", place)
        found.join(member("dee", 6, place, dropout=0.0), ["bob", "cyd"], epochs=1)
        found.leave("ada")
        return found

    here, there = network("cpu"), network(device)
    assert_same_networks(there, here, tolerance_on(device))
    assert there.agents["dee"].device.type == device.type


def test_attacks_read_what_leaves_a_device(stand_in: torch.device) -> None:
    here, there = run("alone", "cpu"), run("alone", stand_in)

    def figures(network: Network) -> list[float]:
        ada = network.nodes["ada"]
        found = membership_from_latents(ada, "bob"), membership_from_probabilities(ada)
        return [attack.auc for attack in found]

    assert figures(here) == figures(there)


# Random streams


def test_the_stream_of_a_device_is_given_back(stand_in: torch.device) -> None:
    module = torch.get_device_module(stand_in)
    before = module.get_rng_state()
    run("alone", stand_in, epochs=1)
    assert torch.equal(module.get_rng_state(), before)


# Agents


def test_an_agent_is_where_its_encoder_is(stand_in: torch.device) -> None:
    encoder = nn.Linear(2, 3).to(stand_in)
    head = nn.Linear(3, 2)
    found = Agent("ada", encoder, head, data=(torch.zeros(4, 2), torch.zeros(4).long()))
    assert found.device == head.weight.device == stand_in
    assert found.encode(torch.zeros(1, 2)).device == stand_in


def test_data_and_pilots_may_be_on_the_device(stand_in: torch.device) -> None:
    def network(place: torch.device | str) -> Network:
        agents = []
        for name in ("ada", "bob"):
            x, y = images(18, seed=len(name))
            encoder = seeded(1, lambda: nn.Sequential(nn.Flatten(), nn.Linear(SIDE**2, 3)))
            head = seeded(2, lambda: nn.Linear(3, CLASSES))
            data = {"train": (x.to(place), y.to(place)), "test": (x.to(place), y.to(place))}
            agents.append(Agent(name, encoder, head, data=data, batch_size=8, device=place))
        return train(agents, [("ada", "bob")], SheafFRL(), pilots().to(place), epochs=1)

    assert_same_networks(network(stand_in), network("cpu"), tolerance=0)


def test_a_ready_optimizer_follows_its_parameters(
    stand_in: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As for CUDA, where parameters stay the same objects.
    monkeypatch.setattr(torch.__future__, "_swap_module_params_on_conversion", True)
    encoder, data = nn.Linear(2, 3), (torch.randn(4, 2), torch.tensor([0, 1, 0, 1]))
    head = nn.Linear(3, 2)
    optimizer = Adam([*encoder.parameters(), *head.parameters()], amsgrad=True)
    head(encoder(data[0])).sum().backward()
    optimizer.step()
    agent = Agent("ada", encoder, head, data=data, optimizer=optimizer, device=stand_in)
    agent.optimizer_step(agent.objective(agent, agent.next_batch()))
    assert {state["exp_avg"].device for state in optimizer.state.values()} == {stand_in}


@pytest.mark.parametrize("device", ["cuda:99", "gpu", "meta"])
def test_a_device_that_is_not_there(device: str) -> None:
    with pytest.raises(InputError, match=rf"agent 'ada': device '{device}' cannot be used .*cpu"):
        member("ada", 3, device)
