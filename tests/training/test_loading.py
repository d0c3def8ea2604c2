"""A network loaded from its files is the one that was trained, and can train on."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from torch import nn
from torch.optim import SGD

import sheafed
from sheafed.agents.agent import Agent
from sheafed.agents.data_forms import as_local_data
from sheafed.agents.objectives import cross_entropy
from sheafed.checkpointing.checkpoint import load_checkpoint, save_checkpoint
from sheafed.checkpointing.run_directory import LAST
from sheafed.errors import (
    CheckpointError,
    InputError,
    NetworkMismatchError,
    RunExistsError,
    ShapeError,
    UncheckedEncoderWarning,
)
from sheafed.methods import FedProto, NonCooperative, SheafFRL
from sheafed.methods.method_table import METHODS as TABLES
from sheafed.methods.method_table import method_from_table, method_table
from sheafed.models.adapters import ScikitEncoder
from sheafed.pilots import UniformPilots
from sheafed.training import Network, train
from sheafed.training.encoder_check import layers_of
from tests.helpers import federations, warm_processes
from tests.helpers.federations import (
    CLASSES,
    EDGES,
    FEATURES,
    METHODS,
    agents,
    normal_latents,
    pilots,
    same,
    samples,
    simple_agent,
    start,
    weights,
)
from tests.helpers.loaded_networks import findings, load_all, reborn

Runs = tuple[Path, dict[str, Network]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """A finished run of two epochs by every method."""
    directory = tmp_path_factory.mktemp("runs")
    return directory, {case: start(case, directory / case, epochs=2) for case in METHODS}


@pytest.fixture
def run(runs: Runs) -> Path:
    return runs[0] / "distillation"


def contents(directory: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and times of all files."""
    found = (path for path in directory.rglob("*") if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


# The same network


def test_another_process_finds_the_same_to_the_bit(runs: Runs) -> None:
    directory, trained = runs
    before = contents(directory)
    found = warm_processes.call(load_all, directory)
    for case, network in trained.items():
        assert found[case] == findings(network), case
        assert found[case][0] == network.history.evaluation, case
    assert contents(directory) == before


@pytest.mark.parametrize("case", METHODS)
def test_agents_that_are_given_one_unlabelled_input_do_as_in_the_run(
    case: str, runs: Runs, tmp_path: Path
) -> None:
    directory, trained = runs
    new = samples(40, seed=7)
    served = sheafed.load(directory / case, [for_use(a) for a in reborn()], pilots=pilots())
    assert served.evaluate(data=new) == trained[case].evaluate(data=new)
    served.save(tmp_path)
    again = sheafed.load(tmp_path, reborn(), pilots=pilots())
    assert again.evaluate(data=new) == trained[case].evaluate(data=new)


def for_use(agent: Agent) -> Agent:
    """Return an agent that is not going to be trained."""
    agent.encoder.requires_grad_(False)
    return Agent(agent.name, agent.encoder, agent.head, data=torch.zeros(1, FEATURES))


@pytest.mark.parametrize("method", [FedProto(penalty=0.2), SheafFRL(edge_dim=2, privacy="strict")])
def test_agents_of_one_latent_size(method: Any, tmp_path: Path) -> None:
    def team() -> list[Agent]:
        return [simple_agent(n, 3, seed=k) for k, n in enumerate("abc")]

    edges = [("a", "b"), ("b", "c")]
    trained = train(team(), edges, method, pilots(), epochs=1, out=tmp_path)
    loaded = sheafed.load(tmp_path, team(), pilots=pilots())
    assert loaded.evaluate() == trained.history.evaluation
    assert loaded.method == method


def test_best_and_last(tmp_path: Path) -> None:
    def forget(agent: Agent, batch: Any) -> torch.Tensor:
        """Learn for two epochs, and forget from then on."""
        loss = cross_entropy(agent, batch)
        return loss * (1 if agent.steps < 8 else -5)

    def team() -> list[Agent]:
        return [simple_agent(n, 3 + k, objective=forget) for k, n in enumerate("ab")]

    method = SheafFRL(pilots_per_round=12)
    trained = train(team(), [("a", "b")], method, pilots(), epochs=5, out=tmp_path)
    best = trained.history.best
    assert best["epoch"] < 5
    for which, record in (("best", best), ("last", trained.history.last)):
        loaded = sheafed.load(tmp_path, team(), which=which, pilots=pilots())
        assert loaded.history.epoch == record["epoch"]
        assert loaded.history.last == record
        found = loaded.evaluate().summary()
        assert found == {key: record[key] for key in found}


def test_classes_come_from_the_file(tmp_path: Path) -> None:
    def team(classes: Any) -> list[Agent]:
        return [simple_agent(n, 3, seed=k, classes=classes) for k, n in enumerate("ab")]

    train(team(["x", "y", "z"]), [("a", "b")], NonCooperative(), pilots(), epochs=1, out=tmp_path)
    loaded = sheafed.load(tmp_path, team(None))
    assert loaded.agents["a"].classes == ("x", "y", "z")
    with pytest.raises(NetworkMismatchError, match=r"classes of agent 'a': \['x', 'y', 'z'\] in"):
        sheafed.load(tmp_path, team(["x", "z", "y"]))


# Without pilots


def test_sending_and_classifying_need_no_pilots(runs: Runs) -> None:
    directory, trained = runs
    loaded, network = sheafed.load(directory / "strict", reborn()), trained["strict"]
    z = normal_latents(5)
    assert torch.equal(loaded.send(z, "ada", "bob"), network.send(z, "ada", "bob"))
    assert torch.equal(loaded.classify(z, "ada", "ada"), network.classify(z, "ada", "ada"))
    way = ["ada", "bob", "cyd"]
    assert torch.equal(loaded.send(z, "ada", "cyd", way), network.send(z, "ada", "cyd", way))
    found, expected = loaded.evaluate(), network.history.evaluation
    assert (found.private, found.communication) == (expected.private, expected.communication)
    assert found.oracle == expected.oracle
    assert found.misalignment == {}


def test_what_needs_pilots_says_so(run: Path) -> None:
    loaded = sheafed.load(run, reborn())
    for use in (
        lambda: loaded.train(epochs=1),
        lambda: loaded.join(simple_agent("n", 4), ["ada"]),
        lambda: loaded.save(run / "elsewhere"),
    ):
        with pytest.raises(InputError, match="24 pilots of this network were not given; give pil"):
            use()
    with pytest.raises(InputError, match=r"without its pilots.*give pilots= to sheafed.load, or a"):
        loaded.send(normal_latents(5), "ada", "cyd")


# Contradictions


def other_size() -> list[Agent]:
    return [*reborn()[:2], simple_agent("cyd", 4)]


def other_head() -> list[Agent]:
    return [*reborn()[:2], simple_agent("cyd", 3, head=None, objective=lambda a, b: 0)]


def other_width() -> list[Agent]:
    ada = reborn()[0]
    ada.encoder[0] = nn.Linear(federations.FEATURES, 9)
    return [ada, *reborn()[1:]]


@pytest.mark.parametrize(
    ("team", "options", "message"),
    [
        (
            lambda: reborn()[:2],
            {},
            r"network; agents: \['ada', 'bob', 'cyd'\] in the file, \['ada', ",
        ),
        (other_size, {}, "latent size of agent 'cyd': 3 in the file, 4 given; give"),
        (other_head, {}, "head of agent 'cyd': 'Linear' in the file, None given"),
        (other_width, {}, r"other weights for agent 'ada' \(.*0\.weight.*build its encoder"),
        (reborn, {"pilots": samples(24, 78)[0]}, "other pilots than those given, 24 too; give"),
        (reborn, {"pilots": samples(20, 78)[0]}, "number of pilots: 24 in the file, 20 given"),
        (reborn, {"method": NonCooperative()}, "method: 'sheaf-frl' in the file, 'non-cooperat"),
    ],
)
def test_contradictions(
    run: Path, team: Callable[[], list[Agent]], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(NetworkMismatchError, match=message):
        sheafed.load(run, team(), **options)


def test_pilots_of_another_dtype_are_named_by_it(run: Path) -> None:
    other = r"\(dtype\); given: torch.float64 of shape \(24"
    with pytest.raises(NetworkMismatchError, match=other):
        sheafed.load(run, reborn(), pilots=pilots().inputs.double())


def test_two_agents_of_one_name(run: Path) -> None:
    with pytest.raises(InputError, match="different names"):
        sheafed.load(run, [*reborn(), reborn()[0]])


def test_an_encoder_that_was_fitted_again(tmp_path: Path) -> None:
    def team(fitted_to: int) -> list[Agent]:
        encoder = ScikitEncoder(PCA(3).fit(samples(40, fitted_to)[0].numpy()))
        bare = Agent("a", encoder, nn.Linear(3, CLASSES), data=samples(20, 1), batch_size=5)
        return [bare, simple_agent("b", 3)]

    def go(fitted_to: int, epochs: int = 2) -> Network:
        edges, method = [("a", "b")], NonCooperative()
        options = {"epochs": epochs, "out": tmp_path, "resume": True}
        return train(team(fitted_to), edges, method, pilots(), **options)

    go(1, epochs=1)
    before = contents(tmp_path)
    with pytest.raises(NetworkMismatchError, match=r"'a' encodes the pilots otherwise.* by \d+%"):
        go(2)
    assert contents(tmp_path) == before
    assert go(1).history.epoch == 2
    sheafed.load(tmp_path, team(1), pilots=pilots())
    with pytest.raises(NetworkMismatchError, match=r"'a' encodes the pilots otherwise.* by \d+%"):
        sheafed.load(tmp_path, team(2), pilots=pilots())
    with pytest.warns(UncheckedEncoderWarning, match="agent 'a' has no weights.*pilots= to"):
        sheafed.load(tmp_path, team(2))


def test_other_layers_are_warned_of(tmp_path: Path) -> None:
    """Weights do not tell one activation from another."""

    def team(kind: type[nn.Module], reading: type[nn.Module] = nn.ReLU) -> list[Agent]:
        encoder = nn.Sequential(nn.Linear(FEATURES, 4), kind(), nn.Linear(4, 3))
        head = nn.Sequential(nn.Linear(3, 4), reading(), nn.Linear(4, CLASSES))
        ada = Agent("a", encoder, head, data=samples(20, 3), batch_size=5)
        return [ada, simple_agent("b", 3)]

    train(team(nn.ReLU), [("a", "b")], NonCooperative(), pilots(), epochs=1, out=tmp_path)
    sheafed.load(tmp_path, team(nn.ReLU))  # any warning would be an error
    sheafed.load(tmp_path, team(nn.ReLU), pilots=pilots())
    encoder = r"encoder of agent 'a' has other layers.*ReLU\(\) in the run, .*Sigmoid.*pilots="
    with pytest.warns(UncheckedEncoderWarning, match=encoder):
        sheafed.load(tmp_path, team(nn.Sigmoid))
    for given in (None, pilots()):  # which say nothing of heads
        with pytest.warns(UncheckedEncoderWarning, match=r"head of agent 'a'.*ReLU.*Tanh"):
            sheafed.load(tmp_path, team(nn.ReLU, nn.Tanh), pilots=given)
    state = load_checkpoint(tmp_path / LAST)
    for saved in state["agents"].values():
        del saved["layers"]  # as in files of earlier versions
    save_checkpoint(tmp_path / LAST, state)
    sheafed.load(tmp_path, team(nn.Sigmoid))


def test_layers_are_printed_without_addresses() -> None:
    class Applies(nn.Linear):
        def extra_repr(self) -> str:
            return repr(lambda x: x)

    one, other = (simple_agent("a", head=Applies(3, CLASSES)) for _ in range(2))
    assert layers_of(one) == layers_of(other)


def test_missing_files(run: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no network; give the out="):
        sheafed.load(tmp_path, reborn())
    sheafed.load(run, reborn(), pilots=pilots()).save(tmp_path / "saved")
    with pytest.raises(CheckpointError, match="in the directory of an earlier training"):
        sheafed.load(tmp_path / "saved", reborn(), which="best")
    blind = [simple_agent(n, data=samples(20, seed=0)) for n in "ab"]
    train(blind, [("a", "b")], NonCooperative(), pilots(), epochs=1, out=tmp_path / "blind")
    with pytest.raises(CheckpointError, match="no best network without validation data"):
        sheafed.load(tmp_path / "blind", blind, which="best")
    shutil.copy(run / "last.safetensors", tmp_path)
    (tmp_path / "last.safetensors").rename(tmp_path / "best.safetensors")
    with pytest.raises(CheckpointError, match="has not ended; resume it, or load which='best'"):
        sheafed.load(tmp_path, reborn())
    with pytest.raises(InputError, match="which must be 'last' or 'best', got 'first'"):
        sheafed.load(tmp_path, reborn(), which="first")
    with pytest.raises(InputError, match=r"has no config\.json.*sheafed\.load\(run, agents\)"):
        sheafed.load(tmp_path)


def test_files_of_other_origin(tmp_path: Path) -> None:
    path, (ada, *_) = tmp_path / "last.safetensors", agents()
    save_checkpoint(path, {"ada": ada.weights()})
    with pytest.raises(CheckpointError, match=r"holds \['ada'\].*earlier version: train again"):
        sheafed.load(tmp_path, agents())
    save_checkpoint(path, ada.weights())
    with pytest.raises(CheckpointError, match=r"a single agent.*network of peers"):
        sheafed.load(tmp_path, agents())


def test_a_file_of_a_version_without_an_option(run: Path, tmp_path: Path) -> None:
    """What the network is does not depend on it, so it stands at its default."""
    state = load_checkpoint(run / LAST)
    known = method_from_table(state["method"])
    assert state["method"].pop("edge_dim") == known.edge_dim
    save_checkpoint(tmp_path / LAST, state)
    for method in (None, known):
        assert sheafed.load(tmp_path, reborn(), method=method).method == known
    with pytest.raises(NetworkMismatchError, match=r"option .* of the method: .* in the file, "):
        sheafed.load(tmp_path, reborn(), method=SheafFRL(penalty=0.7))


def test_a_method_that_no_file_can_describe(tmp_path: Path) -> None:
    def method() -> SheafFRL:
        return SheafFRL(pilots_per_round=UniformPilots(total=24, count=8, seed=0))

    trained = train(agents(), EDGES, method(), pilots(), epochs=1, out=tmp_path)
    with pytest.raises(InputError, match=r"only code can describe, SheafFRL\(.*method="):
        sheafed.load(tmp_path, reborn())
    loaded = sheafed.load(tmp_path, reborn(), method=method(), pilots=pilots())
    assert loaded.evaluate() == trained.history.evaluation


@pytest.mark.parametrize("case", METHODS)
def test_methods_as_tables(case: str) -> None:
    method = METHODS[case]()
    table = method_table(method)
    assert table is not None
    assert method_from_table(table) == method
    assert repr(method_from_table(table)) == repr(method)


def test_unknown_methods() -> None:
    assert len(TABLES) == 7
    with pytest.raises(InputError, match="unknown method 'gossip'; this version knows sheaf-frl"):
        method_from_table({"name": "gossip"})


# Training on


@pytest.mark.parametrize("case", METHODS)
def test_training_on_is_one_longer_training(case: str, runs: Runs, tmp_path: Path) -> None:
    directory, _ = runs
    before = contents(directory)
    loaded = sheafed.load(directory / case, reborn(), pilots=pilots())
    loaded.train(epochs=1, out=tmp_path / "more", checkpoint_every=3)
    whole = start(case, epochs=3)
    assert same(weights(loaded), weights(whole))
    assert loaded.history.evaluation == whole.history.evaluation
    assert [record["epoch"] for record in loaded.history.records] == [1, 2, 3]
    assert contents(directory) == before
    again = sheafed.load(tmp_path / "more", reborn(), pilots=pilots())
    assert again.evaluate() == whole.history.evaluation


def test_a_live_network_trains_on_where_it_is(tmp_path: Path) -> None:
    network = start("strict", tmp_path / "run", epochs=1)
    network.train(epochs=1)
    start("strict", tmp_path / "whole", epochs=2)
    for name in ("metrics.jsonl", "last.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    with pytest.raises(RunExistsError):
        network.train(epochs=1, out=tmp_path / "whole")
    with pytest.raises(InputError, match="epochs must be a whole number of at least 1, got 0"):
        network.train(epochs=0)


def test_other_data_cannot_train_on_but_be_used(runs: Runs, tmp_path: Path) -> None:
    directory, trained = runs
    team = [*reborn()[:2], simple_agent("cyd", 3)]
    loaded = sheafed.load(directory / "alone", team, pilots=pilots())
    z = normal_latents(5)
    assert torch.equal(loaded.send(z, "ada", "bob"), trained["alone"].send(z, "ada", "bob"))
    with pytest.raises(InputError, match="batch size of agent 'cyd' is 5 and was 6; load it with"):
        loaded.train(epochs=1)
    faster = [simple_agent(n, 3, optimizer=lambda p: SGD(p, 0.2)) for n in ("ada", "bob")]
    alone = train(faster, [("ada", "bob")], NonCooperative(), pilots(), epochs=1)
    alone.save(tmp_path)
    slower = [simple_agent(n, 3, optimizer=lambda p: SGD(p, 0.1)) for n in ("ada", "bob")]
    loaded = sheafed.load(tmp_path, slower, pilots=pilots())
    with pytest.raises(InputError, match=r"optimiser's lr of agent 'ada' is 0\.1 and was 0\.2"):
        loaded.train(epochs=1)
    others = [simple_agent(n, 3, optimizer=lambda p: SGD(p, 0.2)) for n in ("ada", "bob")]
    others[1].data = simple_agent("bob", 3, seed=5).data
    loaded = sheafed.load(tmp_path, others, pilots=pilots())
    with pytest.raises(InputError, match="the digest of the training data of agent 'bob' is"):
        loaded.train(epochs=1)


def test_a_loaded_network_takes_newcomers_and_is_saved(run: Path, tmp_path: Path) -> None:
    before = contents(run)
    loaded = sheafed.load(run, reborn(), pilots=pilots())
    loaded.join(simple_agent("n", 4), ["ada"])
    loaded.save(tmp_path / "larger")
    assert contents(run) == before
    again = sheafed.load(tmp_path / "larger", [*reborn(), simple_agent("n", 4)], pilots=pilots())
    assert again.evaluate() == loaded.evaluate()
    for taken in (run, tmp_path / "larger"):
        with pytest.raises(RunExistsError):
            loaded.save(taken)


def test_edges_of_two_protocols_are_not_written(tmp_path: Path) -> None:
    team = [simple_agent(n, 3, seed=k) for k, n in enumerate("ab")]
    network = train(team, [("a", "b")], SheafFRL(pilots_per_round=12), pilots(), epochs=1)
    network.join(simple_agent("n", 4), ["a"])
    with pytest.raises(InputError, match="PlainEndpoint, TransportEndpoint"):
        network.save(tmp_path)


# Kinds of arrays


def test_arrays_in_arrays_out(runs: Runs) -> None:
    network = runs[1]["alone"]
    x, z = samples(7, 3)[0], normal_latents(5)
    latents = network.encode(x.numpy(), "ada")
    assert isinstance(latents, np.ndarray)
    np.testing.assert_array_equal(latents, network.encode(x, "ada"))
    for dtype in (np.float32, np.float64):
        given = z.numpy().astype(dtype)
        sent, classes = network.send(given, "ada", "bob"), network.classify(given, "ada", "bob")
        assert sent.dtype == dtype
        assert classes.dtype == np.int64
        np.testing.assert_array_equal(sent, network.send(z, "ada", "bob"))
        np.testing.assert_array_equal(classes, network.classify(z, "ada", "bob"))


def test_outputs_are_those_of_the_receivers_head(runs: Runs) -> None:
    network = runs[1]["alone"]
    z, head = normal_latents(5), network.agents["bob"].head
    expected = head.eval()(network.send(z, "ada", "bob")).detach()
    assert torch.equal(network.outputs(z, "ada", "bob"), expected)
    assert torch.equal(network.classify(z, "ada", "bob"), expected.argmax(1))
    own = network.agents["ada"].head.eval()(z).argmax(1)
    assert torch.equal(network.classify(z, "ada", "ada"), own)


def test_what_cannot_be_sent_or_classified(runs: Runs) -> None:
    network = runs[1]["alone"]
    with pytest.raises(ShapeError, match=r"'ada' must have the shape \(n, 5\), got \(9, 4\)"):
        network.send(normal_latents(4), "ada", "bob")
    mute, single = (
        simple_agent(name, head=head, objective=lambda a, b: a.encode(b.inputs).sum())
        for name, head in (("mute", None), ("single", nn.Linear(3, 1)))
    )
    for agent in (mute, single):
        agent.data = as_local_data(samples(20, 0))
    network = train([mute, single], [("mute", "single")], NonCooperative(), pilots(), epochs=1)
    with pytest.raises(InputError, match="agent 'mute' has no head to classify with"):
        network.classify(normal_latents(3), "single", "mute")
    with pytest.raises(ShapeError, match=r"'single' gives no scores \(n, classes\), but \(9, 1\)"):
        network.classify(normal_latents(3), "mute", "single")
