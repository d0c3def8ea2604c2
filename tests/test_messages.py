"""Mistakes that users make: each is an error of ours, before training, that says what to do."""

from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch
from torch import nn

from sheafed import Agent, NonCooperative, SheafFRL, align, errors, train
from sheafed.agents.checks import check_agent
from sheafed.methods import ZCA
from sheafed.training import Callback

X = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))
Y = torch.arange(32) % 3
ONE_HOT = nn.functional.one_hot(Y, 3)
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
        "'ada' pilots (2, 7) (2, 4)",
    ),
    "test of another width": (
        lambda: trained(**with_split("test", torch.randn(32, 7), Y)),
        "InputError",
        "'ada' test inputs (2, 7) (2, 4)",
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
    "NaN in test": (
        lambda: trained(**with_split("test", X.clone().fill_(torch.nan), Y), rounds=True),
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
