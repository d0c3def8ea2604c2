"""Mistakes that users make: each is an error of ours, before training, that says what to do."""

from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from sheafed import Agent, ConsensusDistillation, NonCooperative, SheafFRL, align, errors, train
from sheafed.agents.checks import check_agent
from sheafed.agents.objectives import mean_squared_error
from sheafed.methods import ZCA
from sheafed.training import Callback

X = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
Y = torch.arange(32) % 3
ONE_HOT = nn.functional.one_hot(Y, 3)
NAN = torch.where(torch.arange(32)[:, None] == 3, torch.nan, X)
EDGE = [("ada", "bo")]


def agent(name="ada", **given):
    parts = {"encoder": nn.Linear(4, 5), "head": nn.Linear(5, 3), "data": (X, Y), "batch_size": 16}
    return Agent(name, **(parts | given))


class NoRounds(Callback):
    """Fails if a round is taken."""

    def on_round(self, network, log):
        raise AssertionError("a round was taken")


def trained(*, pilots=X, edges=EDGE, method=None, rounds=False, **given):
    """Train an agent of these parts and another one; a mistake must be found before a round."""
    method = SheafFRL() if method is None else method
    callbacks = [] if rounds else [NoRounds()]
    train([agent(**given), agent("bo")], edges, method, pilots, epochs=2, callbacks=callbacks)


def with_split(split, inputs, labels):
    return {"data": {"train": (X, Y), split: (inputs, labels)}}


def runaway(parameters):
    return torch.optim.SGD(parameters, lr=1e30)


def shared_encoder():
    encoder = nn.Linear(4, 5)
    train([agent(encoder=encoder), agent("bo", encoder=encoder)], EDGE, SheafFRL(), X, epochs=1)


MISTAKES = {
    "label in training": (lambda: trained(data=(X, Y + 1)), "InputError", "'ada' 0 to 2 got 3"),
    "label in test": (
        lambda: trained(**with_split("test", X, Y + 1)),
        "InputError",
        "'ada' 0 to 2 got 3 test data",
    ),
    "label in validation": (
        lambda: trained(**with_split("validation", X, Y - 1)),
        "InputError",
        "'ada' got -1 validation data",
    ),
    "one-hot": (lambda: trained(data=(X, ONE_HOT)), "ShapeError", "'ada' one-hot argmax"),
    "one-hot in test": (
        lambda: trained(**with_split("test", X, ONE_HOT)),
        "ShapeError",
        "'ada' test one-hot argmax",
    ),
    "column of labels": (lambda: trained(data=(X, Y[:, None])), "ShapeError", "(32,) flatten"),
    "names as labels": (
        lambda: agent(data=(X, np.array(["cat", "dog"] * 16))),
        "DtypeError",
        "'ada' whole numbers return_inverse classes=",
    ),
    "bytes as labels": (lambda: agent(data=(X, [b"a"] * 32)), "DtypeError", "'ada' whole numbers"),
    "pilots of another width": (
        lambda: trained(pilots=torch.randn(32, 7)),
        "InputError",
        "'ada' pilots (32, 7) (32, 4)",
    ),
    "test of another width": (
        lambda: trained(**with_split("test", torch.randn(32, 7), Y)),
        "InputError",
        "'ada' test inputs (32, 7) (32, 4)",
    ),
    "pilots of another type": (
        lambda: trained(pilots=(10 * X).long()),
        "InputError",
        "'ada' pilots int64 (32, 4) x.astype('float32') x.to(torch.float32)",
    ),
    "one column of pilots": (
        lambda: trained(pilots=X[:, 0]),
        "InputError",
        "'ada' pilots (32,) (32, 4) dimension missing",
    ),
    "pilots that are alike": (
        lambda: trained(pilots=X[:1].repeat(32, 1)),
        "InputError",
        "'ada' 32 pilots alike different",
    ),
    "too few class names": (
        lambda: trained(classes=["x", "y"]),
        "ShapeError",
        "'ada' 2 classes ['x', 'y'] 3",
    ),
    "too many class names": (
        lambda: trained(classes=list("vwxyz")),
        "ShapeError",
        "'ada' 5 classes 3",
    ),
    "NaN in training": (
        lambda: agent(data=(NAN, Y)),
        "NonFiniteError",
        "'ada' training NaN row 3 clean",
    ),
    "NaN in the first row": (
        lambda: agent(data=(NAN[3:], Y[3:])),
        "NonFiniteError",
        "'ada' training NaN row 0 clean",
    ),
    "NaN in test": (
        lambda: agent(**with_split("test", NAN, Y)),
        "NonFiniteError",
        "'ada' test NaN row 3 clean",
    ),
    "infinity in validation": (
        lambda: agent(**with_split("validation", NAN.nan_to_num(nan=torch.inf), Y)),
        "NonFiniteError",
        "'ada' validation infinity row 3 clean",
    ),
    "a list as a pair": (
        lambda: agent(data=[X, Y]),
        "InputError",
        "'ada' list tuple (inputs, targets)",
    ),
    "seed": (
        lambda: train([agent()], [], SheafFRL(), X, epochs=1, seed=1.5),
        "InputError",
        "seed whole 1.5",
    ),
    "head of another size": (
        lambda: trained(head=nn.Linear(7, 3)),
        "InputError",
        "'ada' head d = 5 takes 7",
    ),
    "head without classes": (
        lambda: trained(head=nn.Sequential(nn.Linear(5, 1), nn.Flatten(0))),
        "ShapeError",
        "'ada' head gives (2,) classes",
    ),
    "head is no module": (lambda: agent(head="linear"), "InputError", "'ada' head torch module"),
    "encoder is no module": (
        lambda: agent(encoder=lambda x: x),
        "InputError",
        "'ada' encoder torch module",
    ),
    "optimiser by name": (lambda: agent(optimizer="adam"), "InputError", "'ada' torch.optim.Adam"),
    "objective by name": (lambda: agent(objective="simclr"), "InputError", "'ada' function"),
    "batch size": (lambda: agent(batch_size=16.0), "InputError", "'ada' batch_size whole 16.0"),
    "loss per sample": (
        lambda: trained(objective=lambda a, batch: a.encode(batch.inputs), rounds=True),
        "ShapeError",
        "'ada' scalar mean",
    ),
    "divergence": (
        lambda: trained(optimizer=runaway, rounds=True),
        "NonFiniteError",
        "'ada' round learning rate max_grad_norm",
    ),
    "divergence of a baseline": (
        lambda: trained(optimizer=runaway, method=NonCooperative(), rounds=True),
        "NonFiniteError",
        "'ada' round learning rate",
    ),
    "NaN in a test Dataset": (
        lambda: trained(
            data={"train": (X, Y), "test": TensorDataset(X + torch.nan, Y)}, rounds=True
        ),
        "NonFiniteError",
        "'ada' 32 of 32 clean",
    ),
    "distillation=True": (
        lambda: SheafFRL(distillation=True),
        "InputError",
        "distillation Distillation() got True",
    ),
    "a class for options": (lambda: SheafFRL(whitening=ZCA), "InputError", "instance, ZCA()"),
    "number as text": (lambda: SheafFRL(penalty="0.1"), "InputError", "penalty number '0.1'"),
    "class as method": (lambda: trained(method=SheafFRL), "InputError", "instance SheafFRL()"),
    "name as method": (lambda: trained(method="sheaf-frl"), "InputError", "like SheafFRL()"),
    "empty training": (lambda: agent(data=(X[:0], Y[:0])), "EmptyInputError", "'ada' no samples"),
    "empty test": (
        lambda: agent(**with_split("test", X[:0], Y[:0])),
        "EmptyInputError",
        "'ada' test no samples",
    ),
    "same names": (
        lambda: train([agent(), agent()], EDGE, SheafFRL(), X, epochs=1),
        "InputError",
        "different names 'ada' more than once",
    ),
    "same modules": (shared_encoder, "InputError", "'ada' 'bo' same parameter deepcopy"),
    "agents by name": (
        lambda: train({"ada": agent()}, EDGE, SheafFRL(), X, epochs=1),
        "InputError",
        "list(agents.values())",
    ),
    "one agent": (
        lambda: train(agent(), EDGE, SheafFRL(), X, epochs=1),
        "InputError",
        "single Agent list",
    ),
    "module as agent": (
        lambda: train([nn.Linear(1, 1)], EDGE, SheafFRL(), X, epochs=1),
        "InputError",
        "sheafed.Agent got a Linear",
    ),
    "unknown agent": (lambda: trained(edges=[("ada", "zoe")]), "UnknownAgentError", "'zoe' 'bo'"),
    "numbers for names": (lambda: trained(edges=nx.path_graph(2)), "GraphError", "string names"),
    "graph by name": (lambda: trained(edges="ring"), "GraphError", "pairs 'ring' sheafed.graphs"),
    "no graph": (lambda: trained(edges=None), "GraphError", "pairs None"),
    "one callback": (
        lambda: train([agent()], [], SheafFRL(), X, epochs=1, callbacks=NoRounds()),
        "InputError",
        "list single NoRounds",
    ),
    "function as callback": (
        lambda: train([agent()], [], SheafFRL(), X, epochs=1, callbacks=[print]),
        "InputError",
        "sheafed.training.Callback",
    ),
    "list to align": (lambda: align([X, X]), "InputError", "mapping list"),
    "texts to align": (lambda: align({"a": ["x"], "b": ["y"]}), "DtypeError", "'a' numbers"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_said_in_our_words(mistake):
    make, error, words = MISTAKES[mistake]
    with pytest.raises(getattr(errors, error)) as caught:
        make()
    assert type(caught.value).__name__ == error
    missing = [word for word in words.split() if word not in str(caught.value)]
    assert not missing, str(caught.value)


def test_class_names_that_differ_are_shown():
    def named(*classes):
        return [agent(classes=["x", "y", "z"]), agent("bo", classes=classes)]

    with pytest.raises(errors.HandshakeError, match=r"'ada' and 'bo' .*class 1 is 'y' against 'z'"):
        train(named("x", "z", "y"), EDGE, SheafFRL(), X, epochs=1)
    train(named("x", "y", "z"), EDGE, SheafFRL(), X, epochs=1)


def test_an_encoder_may_know_what_to_do_with_nan():
    class Imputing(nn.Linear):
        def forward(self, x):
            return super().forward(x.nan_to_num())

    assert agent(encoder=Imputing(4, 5), data=(NAN, Y)).dimension == 5


def test_whole_numbers_of_numpy_are_whole_numbers(tmp_path):
    def run(number, out=None):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            team = [agent(batch_size=number(16)), agent("bo")]
        counts = {"epochs": 2, "seed": 7, "rounds_per_epoch": 3, "checkpoint_every": 2}
        given = {name: number(count) for name, count in counts.items()}
        return train(team, EDGE, SheafFRL(), X, out=out, **given)

    for number in (np.int64, torch.tensor):
        assert run(number, tmp_path / str(number)).history.records == run(int).history.records
    for wrong in (True, np.float64(2.0)):
        with pytest.raises(errors.InputError, match=r"epochs must be a whole number"):
            train([agent()], [], SheafFRL(), X, epochs=wrong)


def test_agents_without_classes_are_named(caplog):
    one = {"head": nn.Linear(5, 1), "data": (X, X[:, 0]), "objective": mean_squared_error}
    train([agent(**one), agent("bo")], EDGE, ConsensusDistillation(), X, epochs=1)
    assert "agents 'ada' have no head of two or more classes" in caplog.text
    caplog.clear()
    train([agent(), agent("bo")], EDGE, ConsensusDistillation(), X, epochs=1)
    assert not caplog.records


def test_a_run_directory_must_be_writable(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("")
    for out in (file, file / "below"):
        with pytest.raises(errors.OutputError, match=r"file is a file; choose another"):
            train([agent()], [], SheafFRL(), X, epochs=1, out=out)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(errors.OutputError, match="no permission to write"):
        train([agent()], [], SheafFRL(), X, epochs=1, out=tmp_path / "new" / "run")
    monkeypatch.undo()

    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(errors.OutputError, match="Read-only file system"):
        train([agent()], [], SheafFRL(), X, epochs=1, out=tmp_path / "new" / "run")


def test_a_generator_of_agents_is_as_good_as_a_list():
    names = ("ada", "bo")
    network = train((agent(name) for name in names), EDGE, SheafFRL(), X, epochs=1)
    assert set(network.agents) == set(names)


def test_agents_that_were_trained_before_are_named(caplog):
    again = [agent(), agent("bo")]
    train(again, EDGE, SheafFRL(), X, epochs=1)
    assert not caplog.records
    train(again, EDGE, SheafFRL(), X, epochs=1)
    assert "'ada', 'bo' were trained before" in caplog.text


def test_agents_may_share_what_is_frozen():
    encoder = nn.Linear(4, 5)
    both = [agent(name, encoder=encoder, frozen=True) for name in ("ada", "bo")]
    network = train(both, EDGE, SheafFRL(), X, epochs=1)
    assert network.history.rounds > 0


def test_trying_the_modules_draws_no_random_numbers():
    drawing = agent(encoder=nn.Sequential(nn.Linear(4, 5), Drawing()))
    before = torch.get_rng_state()
    check_agent(drawing, X)
    assert torch.equal(torch.get_rng_state(), before)


class Drawing(nn.Module):
    """Draws noise in evaluation mode too."""

    def forward(self, z):
        return z + 0 * torch.randn_like(z)
