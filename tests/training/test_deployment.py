"""Links and pipelines compute what the network does, as modules and as files."""

import json
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from sklearn.decomposition import PCA
from torch import Tensor, nn

from sheafed.agents import TensorSamples, objectives
from sheafed.agents.agent import Agent
from sheafed.errors import (
    DtypeError,
    ExportError,
    FixedSizeWarning,
    InputCastWarning,
    InputError,
    LatentSizeError,
    MissingDependencyError,
    OutputError,
    ShapeError,
    UnknownAgentError,
)
from sheafed.evaluation import evaluate_locally
from sheafed.methods import NonCooperative, SheafFRL
from sheafed.metrics import Metric
from sheafed.models.adapters import ScikitEncoder
from sheafed.pilots import PilotSet
from sheafed.training import Network, train
from tests.helpers import federations
from tests.helpers.federations import (
    CLASSES,
    METHODS,
    normal_latents,
    pilots,
    samples,
    seeded,
    simple_agent,
    start,
)

EXACT = [case for case in METHODS if case not in ("noisy", "compressed")]
"""The methods whose links have no noisy channel."""


@pytest.fixture(scope="module")
def network() -> Network:
    return start("distillation", epochs=1)


def relative(found: Any, expected: Any) -> float:
    found, expected = (torch.as_tensor(value).double() for value in (found, expected))
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("case", EXACT)
def test_a_link_is_what_send_does(case: str) -> None:
    network = start(case, epochs=1)
    for path in (["ada", "bob"], ["bob", "ada"], ["ada", "bob", "cyd"]):
        ends = path[0], path[-1]
        latents = 3 + normal_latents(network.agents[path[0]].dimension)
        link = network.link(*ends, path)
        assert type(link) is nn.Linear
        assert relative(link(latents), network.send(latents, *ends, path)) < 1e-5


def test_sending_is_affine(network: Network) -> None:
    """What makes the fold possible, on latents that do not span the space by basis vectors."""
    one, other = normal_latents(5), 2 - normal_latents(5).flip(0)
    sent = [network.send(z, "ada", "bob") for z in (one, other, 0.3 * one + 0.7 * other)]
    assert relative(0.3 * sent[0] + 0.7 * sent[1], sent[2]) < 1e-5


def test_a_link_leaves_the_noise_out() -> None:
    network = start("noisy", epochs=1)
    latents = normal_latents(5)
    exact = network.nodes["ada"].link_to("bob", channel=False)(latents)
    expected = network.nodes["bob"].link_from("ada")(exact)
    assert relative(network.link("ada", "bob")(latents), expected) < 1e-5
    assert relative(network.send(latents, "ada", "bob"), expected) > 0.05


def test_a_link_is_a_copy(network: Network) -> None:
    latents = normal_latents(5)
    before = network.send(latents, "ada", "bob")
    link = network.link("ada", "bob")
    link.weight.fill_(0)
    assert torch.equal(network.send(latents, "ada", "bob"), before)
    assert not any(parameter.requires_grad for parameter in link.parameters())


def test_a_pipeline_is_encoder_link_and_head(network: Network) -> None:
    inputs = samples(8, 5)[0]
    for agent in network.agents.values():
        agent.encoder.train()  # dropout and batch norm must not show in a copy
    pipeline = network.pipeline("ada", "bob")
    expected = network.outputs(network.encode(inputs, "ada"), "ada", "bob")
    assert relative(pipeline(inputs), expected) < 1e-5
    assert network.agents["ada"].encoder.training
    network.agents["ada"].encoder.eval()
    shared = {p.data_ptr() for agent in network.agents.values() for p in agent.parameters}
    assert not shared & {p.data_ptr() for p in pipeline.parameters()}


class Reader(nn.Module):
    """An encoder of tokens with an `encode` of two arguments, given by name."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 4)

    def encode(self, tokens: Tensor, mask: Tensor) -> Tensor:
        weights = mask[..., None].float()
        return (weights * self.embedding(tokens)).sum(1) / weights.sum(1)


class Whole(nn.Linear):
    """An encoder whose input has a name."""

    def __init__(self) -> None:
        super().__init__(federations.FEATURES, 3)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


def session(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def test_onnx_runtime_gives_the_same_numbers(network: Network, tmp_path: Path) -> None:
    network.export("ada", "bob", tmp_path / "new" / "pipeline.onnx")
    network.export("ada", "bob", tmp_path / "link.onnx", link_only=True)
    pipeline, link = session(tmp_path / "new" / "pipeline.onnx"), session(tmp_path / "link.onnx")
    assert pipeline.get_inputs()[0].shape == ["batch", 6]
    for rows in (1, 7):
        inputs = samples(rows, 5)[0]
        latents = network.encode(inputs, "ada")
        (found,) = pipeline.run(None, {"inputs": inputs.numpy()})
        assert relative(found, network.outputs(latents, "ada", "bob")) < 1e-5
        (found,) = link.run(["outputs"], {"inputs": latents.numpy()})
        assert relative(found, network.send(latents, "ada", "bob")) < 1e-5


def test_torch_export_gives_the_same_numbers(network: Network, tmp_path: Path) -> None:
    network.agents["bob"].classes = ("x", "y", "z")
    network.export("ada", "bob", tmp_path / "pipeline.pt2")
    extra = {"sheafed.json": ""}
    program = torch.export.load(tmp_path / "pipeline.pt2", extra_files=extra)
    inputs = samples(5, 5)[0]
    expected = network.outputs(network.encode(inputs, "ada"), "ada", "bob")
    assert relative(program.module()(inputs), expected) < 1e-5
    known = {"sender": "ada", "receiver": "bob", "path": ["ada", "bob"], "classes": ["x", "y", "z"]}
    assert json.loads(extra["sheafed.json"]) == known


def test_inputs_of_several_tensors(tmp_path: Path) -> None:
    stream = torch.Generator().manual_seed(0)
    data = {
        "tokens": torch.randint(11, (12, 5), generator=stream),
        "mask": torch.ones(12, 5, dtype=torch.long),
    }
    team = [
        Agent(n, Reader(), nn.Linear(4, 3), data=(data, torch.arange(12) % 3), classes=list("xyz"))
        for n in "ab"
    ]
    network = train(team, [("a", "b")], NonCooperative(), data, epochs=1)
    network.export("a", "b", tmp_path / "texts.onnx")
    texts = session(tmp_path / "texts.onnx")
    (found,) = texts.run(None, {key: part.numpy() for key, part in data.items()})
    assert relative(found, network.outputs(network.encode(data, "a"), "a", "b")) < 1e-5
    assert json.loads(texts.get_modelmeta().custom_metadata_map["classes"]) == ["x", "y", "z"]


class Recurrent(Reader):
    """One that reads token by token, whose length torch fixes when it exports it."""

    def encode(self, tokens: Tensor, mask: Tensor) -> Tensor:
        state = torch.zeros(tokens.shape[0], 4)
        for k in range(tokens.shape[1]):
            read = torch.tanh(state + self.embedding(tokens[:, k]))
            state = torch.where(mask[:, k : k + 1] > 0, read, state)
        return state


def padded(rows: list[Any]) -> Any:
    tokens = nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids, _ in rows], batch_first=True)
    return {"tokens": tokens, "mask": (tokens > 0).long()}, torch.tensor([y for _, y in rows])


def readers(encoder: type[Reader]) -> Network:
    """Return agents of texts of 3 to 6 tokens, shuffled."""
    rows = [([1 + k % 9] * (3 + 5 * k % 4), k % 3) for k in range(80)]
    team = [
        Agent(n, seeded(ord(n), encoder), nn.Linear(4, 3), data=rows[:60], collate_fn=padded)
        for n in "ab"
    ]
    return train(team, [("a", "b")], NonCooperative(), padded(rows[60:])[0], epochs=1)


def test_sizes_that_vary_in_the_data_may_be_any_in_the_file(tmp_path: Path) -> None:
    network = readers(Reader)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FixedSizeWarning)
        network.export("a", "b", tmp_path / "texts.onnx")
        network.export("a", "b", tmp_path / "texts.pt2")
    texts = session(tmp_path / "texts.onnx")
    program = torch.export.load(tmp_path / "texts.pt2").module()
    for rows, width in ((1, 1), (2, 2), (7, 11)):
        given = padded([([1 + (k + j) % 9 for j in range(width)], 0) for k in range(rows)])[0]
        expected = network.outputs(network.encode(given, "a"), "a", "b")
        (found,) = texts.run(None, {key: part.numpy() for key, part in given.items()})
        assert relative(found, expected) < 1e-5
        assert relative(program(given), expected) < 1e-5


@pytest.mark.parametrize("suffix", ["onnx", "pt2"])
def test_sizes_that_torch_fixes_are_named(tmp_path: Path, suffix: str) -> None:
    network = readers(Recurrent)
    named = r"from 'a' to 'b' for inputs of any size .* takes tokens with 6 in dimension 1, mask w"
    with pytest.warns(FixedSizeWarning, match=named):
        network.export("a", "b", tmp_path / f"texts.{suffix}")
    given = padded([([4, 5, 6, 7, 8, 9], 0)])[0]
    expected = network.outputs(network.encode(given, "a"), "a", "b")
    if suffix == "onnx":
        inputs = {key: part.numpy() for key, part in given.items()}
        (found,) = session(tmp_path / "texts.onnx").run(None, inputs)
    else:
        found = torch.export.load(tmp_path / "texts.pt2").module()(given)
    assert relative(found, expected) < 1e-5


@pytest.mark.parametrize("double", [False, True])
def test_a_pipeline_casts_inputs_as_encode_does(tmp_path: Path, double: bool) -> None:
    inputs, targets = samples(20, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputCastWarning)
        data = (inputs.double() if double else inputs, targets)
        team = [simple_agent("a", data=data), simple_agent("b")]
        network = train(team, [("a", "b")], NonCooperative(), pilots(), epochs=1)
    expected = network.outputs(network.encode(inputs, "a"), "a", "b")
    assert relative(network.pipeline("a", "b")(inputs.double()), expected) < 1e-5
    network.export("a", "b", tmp_path / "pipeline.onnx")
    (found,) = session(tmp_path / "pipeline.onnx").run(None, {"inputs": inputs.numpy()})
    assert relative(found, expected) < 1e-5
    in_double = network.pipeline("a", "b").double()
    assert in_double(inputs.double()).dtype == torch.float64


def test_encoders_that_cannot_be_copied(tmp_path: Path) -> None:
    team = [simple_agent("a"), simple_agent("b")]
    team[0].encoder.lock = threading.Lock()
    network = train(team, [("a", "b")], NonCooperative(), pilots(), epochs=1)
    for use in (
        lambda: network.pipeline("a", "b"),
        lambda: network.export("a", "b", tmp_path / "pipeline.onnx"),
    ):
        with pytest.raises(
            ExportError, match=r"agent 'a'.* cannot be copied .*lock.*; export the link"
        ):
            use()
    network.export("a", "b", tmp_path / "link.onnx", link_only=True)


def test_encoders_that_are_no_torch_code(tmp_path: Path) -> None:
    encoder = ScikitEncoder(PCA(3).fit(samples(40, 1)[0].numpy()))
    bare = Agent("a", encoder, nn.Linear(3, CLASSES), data=samples(20, 1), batch_size=5)
    method = SheafFRL(pilots_per_round=12)
    network = train([bare, simple_agent("b", 3)], [("a", "b")], method, pilots(), epochs=1)
    with pytest.raises(ExportError, match=r"pipeline from 'a' to 'b' .*link alone, link_only=True"):
        network.export("a", "b", tmp_path / "pipeline.pt2")
    assert list(tmp_path.iterdir()) == []
    network.export("a", "b", tmp_path / "link.pt2", link_only=True)
    latents = normal_latents(3)
    found = torch.export.load(tmp_path / "link.pt2").module()(latents)
    assert relative(found, network.send(latents, "a", "b")) < 1e-5


def test_what_is_refused(network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"must end in \.onnx or \.pt2, got .*weights\.pt"):
        network.export("ada", "bob", tmp_path / "weights.pt")
    monkeypatch.setitem(__import__("sys").modules, "onnxscript", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'sheafed\[export\]'"):
        network.export("ada", "bob", tmp_path / "pipeline.onnx")
    headless = simple_agent("mute", head=None, objective=lambda a, b: a.encode(b.inputs).sum())
    pair = train(
        [headless, simple_agent("b")], [("mute", "b")], NonCooperative(), pilots(), epochs=1
    )
    with pytest.raises(InputError, match="agent 'mute' has no head to end a pipeline with"):
        pair.pipeline("b", "mute")


@pytest.mark.parametrize("name", ["file/link.pt2", "folder.pt2", f"{'n' * 300}.pt2", "folder.onnx"])
def test_places_that_cannot_be_written(network: Network, tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder.pt2").mkdir()
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(OutputError, match=r"cannot write .*; choose another"):
        network.export("ada", "bob", tmp_path / name, link_only=True)


# Classes


def test_heads_that_give_numbers_or_several_labels_have_no_classes() -> None:
    inputs, numbers = samples(30, 1)[0], samples(30, 2, 3)[0]

    def each_label(agent: Agent, batch: Any) -> Tensor:
        scores = agent.apply_head(agent.encode(batch.inputs))
        return nn.functional.binary_cross_entropy_with_logits(scores, batch.targets.float())

    hits = Metric("hits", lambda scores, y: ((scores > 0) == (y > 0)).float().mean(), True)
    for options in (
        {"data": (inputs, numbers), "objective": objectives.mean_squared_error},
        {"data": (inputs, (numbers > 0).long()), "objective": each_label, "metric": hits},
    ):
        team = [simple_agent(name, 3, **options) for name in "ab"]
        pair = train(team, [("a", "b")], NonCooperative(), pilots(), epochs=1)
        latents = pair.encode(inputs, "a")
        with pytest.raises(ShapeError, match=r"head of agent 'b' .*; take network\.outputs"):
            pair.classify(latents, "a", "b")
        assert pair.outputs(latents, "a", "b").shape == (30, CLASSES)


# Forms of arrays


@pytest.mark.filterwarnings("error")
def test_arrays_that_torch_does_not_take_as_they_are(network: Network) -> None:
    inputs = samples(8, 5)[0].numpy()
    read_only = inputs.copy()
    read_only.flags.writeable = False
    expected = network.encode(inputs, "ada")
    assert np.array_equal(
        network.encode(inputs[::-1], "ada"), network.encode(inputs[::-1].copy(), "ada")
    )
    assert np.array_equal(network.encode(inputs.astype(">f4"), "ada"), expected)
    assert np.array_equal(network.encode(read_only, "ada"), expected)


def test_latents_in_lists(network: Network) -> None:
    latents = normal_latents(5)
    for use in (network.send, network.outputs, network.classify):
        found, expected = use(latents.tolist(), "ada", "bob"), use(latents, "ada", "bob")
        assert isinstance(found, np.ndarray)
        assert relative(found, expected) < 1e-5
    with pytest.raises(DtypeError, match="latents must be an array of numbers"):
        network.send([[1.0, 2.0], [3.0]], "ada", "bob")  # type: ignore[type-var]


def test_bytes_where_fractions_are_expected(network: Network) -> None:
    inputs = (255 * samples(4, 321)[0].clamp(0, 1)).byte()
    remedy = (
        r"ByteSamples\(images, labels\).* divided by 255; .*in the range of the training inputs"
    )
    with pytest.raises(InputError, match=remedy):
        network.encode(inputs, "ada")
    with pytest.raises(InputError, match=remedy) as caught:
        network.evaluate(data=(inputs, torch.zeros(4).long()))
    assert "astype" not in str(caught.value)


# Other data


@pytest.mark.parametrize("split", ["train", "tset", None])
def test_unknown_splits(network: Network, split: Any) -> None:
    with pytest.raises(InputError, match=f"on the split 'validation' or 'test', got {split!r}"):
        network.evaluate(split)
    with pytest.raises(InputError, match="on the split 'validation' or 'test'"):
        network.evaluate(split, data=samples(4, 321))
    with pytest.raises(InputError, match="on the split 'validation' or 'test'"):
        evaluate_locally(network.nodes, split)


def test_inputs_that_do_not_fit_an_encoder(network: Network) -> None:
    inputs, targets = samples(4, 321)
    takes = r"and takes inputs like its training inputs, torch.float32 of shape \(\d\d, 6\)"
    with pytest.raises(InputError, match=rf"agent 'ada': its encoder fails on .*\(4, 5\).*{takes}"):
        network.encode(inputs[:, :5], "ada")
    given = ({"x": inputs, "mask": inputs}, targets)
    with pytest.raises(InputError, match=rf"agent 'bob': its encoder fails on .*mask.*{takes}"):
        network.evaluate(data={"bob": given})
    with pytest.raises(LatentSizeError, match=r"'cyd'.*a dimension is missing.* as x\[None\]"):
        network.encode(inputs[0], "cyd")


def test_other_data_that_nothing_can_be_measured_on(network: Network) -> None:
    inputs, targets = samples(8, 321)
    with pytest.raises(UnknownAgentError, match=r"data of \['paris'\], none of which.*'ada'"):
        network.evaluate(data={"paris": (inputs, targets)})
    for data in (inputs, {"bob": inputs}):
        with pytest.raises(InputError, match=r"agent '.*': .* no labels; give \(inputs, labels\)"):
            network.evaluate(data=data)
    with pytest.raises(InputError, match=r"agent 'ada': labels must lie in 0 to 2"):
        network.evaluate(data=(inputs, targets + CLASSES))
    with pytest.raises(DtypeError, match=r"'accuracy' is of classes"):
        network.evaluate(data=(inputs, targets + 0.5))
    columns = network.evaluate(data={"bob": {"input": inputs, "labels": targets}})
    assert columns.private.keys() == {"bob"}


def test_other_data_are_read_by_each_agent_as_its_own() -> None:
    network = readers(Reader)
    rows = [([1 + k % 7] * (2 + k % 5), k % 3) for k in range(30)]
    whole = TensorSamples(*padded(rows))
    found = network.evaluate(data=rows)
    assert found.private == network.evaluate(data=whole).private
    assert found == network.evaluate(data={"a": rows, "b": rows})
    assert relative(network.encode(rows, "a"), network.encode(whole, "a")) < 1e-6
    columns = {"x": samples(30, 1)[0], "kind": samples(30, 1)[1]}
    team = [
        Agent(n, Whole(), nn.Linear(3, CLASSES), data={"train": columns}, target="kind")
        for n in "ab"
    ]
    shared = {"x": pilots().inputs}
    pair = train(team, [("a", "b")], NonCooperative(), PilotSet(shared, shared=True), epochs=1)
    expected = pair.evaluate(data=({"x": columns["x"]}, columns["kind"]))
    assert sorted(expected.private) == ["a", "b"]
    assert (
        pair.evaluate(data=columns) == pair.evaluate(data=dict.fromkeys("ab", columns)) == expected
    )
    with pytest.raises(UnknownAgentError, match=r"or a column 'kind' or 'labels' or 'label'; give"):
        pair.evaluate(data=shared)
    with pytest.raises(
        InputError, match=r"no labels; give \(inputs, labels\), or rows with .*'kind"
    ):
        pair.evaluate(data={"a": shared})


def test_arguments_in_another_order(network: Network) -> None:
    inputs, targets = samples(500, 321)
    latents = network.encode(inputs, "ada")
    for use in (
        lambda: network.encode("ada", inputs),
        lambda: network.classify("ada", latents, "bob"),
        lambda: network.send("ada", "bob", latents.numpy()),
    ):
        with pytest.raises(UnknownAgentError, match=r"given by its name, got (Tensor|ndarray)"):
            use()
    for split in (inputs, inputs.numpy(), (inputs, targets)):
        with pytest.raises(InputError, match=r"to evaluate on other data give them as") as caught:
            network.evaluate(split)
        assert len(str(caught.value)) < 300


def test_other_data(network: Network) -> None:
    inputs, targets = samples(40, 321)
    found = network.evaluate(data=(inputs.numpy(), targets.numpy()))
    classes = network.classify(network.encode(inputs, "ada"), "ada", "bob")
    assert found.communication["ada", "bob"] == float((classes == targets).double().mean())
    assert found.oracle["ada", "bob"] == found.private["bob"]
    assert network.evaluate() == network.history.evaluation
    one = network.evaluate(data={"ada": (inputs, targets)})
    assert sorted(one.private) == ["ada"]
    assert list(one.communication) == [("ada", "bob")]
    with pytest.raises(InputError, match=r"data of unknown agents \['dee'\]"):
        network.evaluate(data={"ada": (inputs, targets), "dee": (inputs, targets)})
    assert np.isfinite(one.private["ada"])
