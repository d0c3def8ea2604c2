"""`sheafed evaluate` and `sheafed export`: a finished run from its directory alone."""

import json
import re
import shutil

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

import sheafed
from sheafed.config import read_experiment, run_experiment
from sheafed.errors import ConfigError, InputError


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of three agents, and its summary."""
    out = tmp_path_factory.mktemp("runs") / "three"
    small = ['model.members=["bo", "dee", "eli"]', "graph.kind=line", "training.epochs=2"]
    network = run_experiment(read_experiment("digits", [*small, "data.train_fraction=0.5"]), out)
    return out, network


def contents(directory):
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in directory.iterdir()}


def test_the_directory_suffices(finished):
    out, network = finished
    before = contents(out)
    loaded = sheafed.load(out)
    assert loaded.evaluate() == network.history.evaluation
    loaded.train(epochs=1)
    assert loaded.history.epoch == 3
    assert contents(out) == before


def test_a_run_is_used_on_another_device(run, finished, tmp_path):
    out, network = finished
    copy = shutil.copytree(out, tmp_path / "elsewhere")
    config = json.loads((copy / "config.json").read_text())
    config["training"]["device"] = "cuda:99"
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match="device 'cuda:99' cannot be used"):
        sheafed.load(copy)
    assert sheafed.load(copy, device="cpu").evaluate() == network.history.evaluation
    with pytest.raises(InputError, match="have a device"):
        sheafed.load(copy, list(network.agents.values()), device="cpu")
    assert "cannot be used" in run("evaluate", copy)[2]
    assert run("evaluate", copy, "--device", "cpu")[0] == 0
    exported = ("--from", "bo", "--to", "dee", "--out", "bo-dee.pt2", "--link-only")
    assert run("export", copy, *exported)[0] == 0


def test_evaluate_repeats_the_figures_of_the_run(run, finished, tmp_path):
    out, _ = finished
    before = contents(out)
    code, printed, _ = run("evaluate", out, "--out", "new/values.json")
    assert code == 0
    summary = json.loads((out / "summary.json").read_text())
    values = json.loads((tmp_path / "new" / "values.json").read_text())
    keys = ["private_accuracy", "communication_accuracy", "oracle_accuracy", "misalignment"]
    assert {k: values[k] for k in keys} == {k: summary[k] for k in keys}
    assert f"private_accuracy {summary['private_accuracy']:.3f}" in printed
    edges = [{k: edge[k] for k in values["edges"][0]} for edge in summary["edges"]]
    assert sorted(values["edges"], key=str) == sorted(edges, key=str)
    assert run("evaluate", out, "--split", "validation", "--which", "best", "--no-oracle")[0] == 0
    assert contents(out) == before


def test_evaluate_on_other_data(run, finished, tmp_path):
    out, network = finished
    digits = load_digits()
    images = (digits.images[:60] / 16).astype(np.float32)
    labels = digits.target[:60]
    np.savez(tmp_path / "digits.npz", x=images, y=labels)
    for image, (k, label) in zip(images, enumerate(labels), strict=True):
        folder = tmp_path / "folder" / str(label)
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.uint8(image * 255)).save(folder / f"{k}.png")
    found = {}
    for data in ("digits.npz", "folder"):
        assert run("evaluate", out, "--data", data, "--out", f"{data}.json")[0] == 0
        found[data] = json.loads((tmp_path / f"{data}.json").read_text())
    inputs, targets = torch.as_tensor(images)[:, None], torch.as_tensor(labels)
    expected = network.evaluate(data=(inputs, targets)).summary()
    assert {key: found["digits.npz"][key] for key in expected} == expected
    assert found["folder"]["private_accuracy"] == pytest.approx(
        expected["private_accuracy"],
        abs=0.1,  # pixels of 8 bits
    )


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((3, 8, 8)), "y": [0, 1, 12]}, "labels up to 12, the run has 10 classes"),
        ({"x": np.zeros((3, 9, 8)), "y": [0, 1, 2]}, "inputs of shape (1, 8, 8), those of"),
        (
            {"x": np.zeros((2, 8, 8)), "y": [0, 1], "classes": ["0", "cat"]},
            "has classes ['cat'] that the run does not know",
        ),
        ({"inputs": np.zeros((3, 8, 8))}, "needs the arrays x and y, it holds ['inputs']"),
    ],
)
def test_data_that_do_not_fit(run, finished, tmp_path, arrays, message):
    np.savez(tmp_path / "other.npz", **arrays)
    code, _, complaint = run("evaluate", finished[0], "--data", "other.npz")
    assert code == 2
    assert message in complaint


def test_names_decide_the_order_of_classes(run, finished, tmp_path):
    digits = load_digits()
    x, y = (digits.images[:40] / 16).astype(np.float32), digits.target[:40]
    names = [str(k) for k in reversed(range(10))]
    np.savez(tmp_path / "a.npz", x=x, y=y)
    np.savez(tmp_path / "b.npz", x=x, y=9 - y, classes=names)
    for name in "ab":
        assert (
            run("evaluate", finished[0], "--data", f"{name}.npz", "--out", f"{name}.json")[0] == 0
        )
    assert (tmp_path / "a.json").read_text() == (tmp_path / "b.json").read_text()


def test_export(run, finished, tmp_path):
    out, network = finished
    before = contents(out)
    code, printed, _ = run("export", out, "--from", "bo", "--to", "dee", "--out", "bo-dee.onnx")
    assert (code, printed[:17]) == (0, "wrote bo-dee.onnx")
    inputs = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    session = onnxruntime.InferenceSession(tmp_path / "bo-dee.onnx")
    (found,) = session.run(None, {"inputs": inputs.numpy()})
    expected = network.outputs(network.encode(inputs, "bo"), "bo", "dee").numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    assert contents(out) == before
    assert run("export", out, "--from", "bo", "--to", "zoe", "--out", "x.onnx")[0] == 2


def test_a_run_without_a_config(run, tmp_path):
    (tmp_path / "empty").mkdir()
    for command in (["evaluate", "empty"], ["export", "empty", "--from", "a", "--to", "b"]):
        more = ["--out", "x.onnx"] if command[0] == "export" else []
        code, _, complaint = run(*command, *more)
        assert code == 2
        assert "has no config.json to rebuild the agents from" in complaint
    assert "there is no run directory nope" in run("evaluate", "nope")[2]


def test_a_config_of_another_version(tmp_path):
    (tmp_path / "config.json").write_text('{"data": {"colour": "red"}}')
    with pytest.raises(ConfigError, match=r"config\.json cannot be used, .* another version"):
        sheafed.load(tmp_path)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("status.json", "one agent of a network of peers: every agent has its own weights alone"),
        ("alignment.json", "is an alignment, not a run: .*use `sheafed send`"),
    ],
)
def test_other_directories_are_named_with_what_can_be_done(run, tmp_path, file, said):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / file).touch()
    for command in (["evaluate", "other"], ["export", "other", "--from", "a", "--to", "b"]):
        code, _, complaint = run(*command, *(["--out", "a.pt2"] if "export" in command else []))
        assert code == 2
        assert re.search(said, complaint)
    for agents in (None, []):
        with pytest.raises(ConfigError, match=said):
            sheafed.load(tmp_path / "other", agents)
