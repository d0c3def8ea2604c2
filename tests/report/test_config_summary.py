import json

from sheafed.config.experiment import parse
from sheafed.report import page, read_run
from sheafed.report.config_summary import particulars
from tests.helpers.run_directories import write_run

AGENTS = [
    {"name": "ada", "widths": [8]},
    {"name": "bo", "widths": [8], "modality": "fourier"},
    {
        "name": "cy",
        "widths": [8],
        "modality": "fourier",
        "objective": "autoencoding",
        "labels": False,
    },
]


def kept(tables):
    """Return a config as the directory of a run keeps it."""
    return json.loads(parse(tables).model_dump_json())


def test_plain_runs_have_none():
    assert particulars(kept({})) == []
    assert particulars(kept({"method": {"name": "comfed"}})) == []
    assert particulars(kept({"method": {"channel": {}}})) == []
    assert particulars({}) == []


def test_what_a_method_does_beyond_the_plain():
    method = {"privacy": "strict", "distillation": {}, "edge_dim": 32, "noise": {"epsilon": 16.0}}
    assert particulars(kept({"method": method})) == [
        "strict protocol",
        "distillation",
        "edge stalks of at most 32",
        "Gaussian noise on pilots, ε = 16 and δ = 1e-05 per release",
    ]


def test_what_a_channel_does():
    channel = {"snr_db": 10, "erasure": 0.1, "bits": 4, "when": "inference"}
    for name in ("sheaf-frl", "non-cooperative"):
        assert particulars(kept({"method": {"name": name, "channel": channel}})) == [
            "channel with an SNR of 10 dB, 10 % erasures, 4 bits per number, at inference only"
        ]


def test_who_learns_by_what_and_sees_what():
    assert particulars(kept({"model": {"agents": AGENTS}})) == [
        "objective autoencoding for cy",
        "modality fourier for bo, cy",
        "no labels for cy",
    ]
    names = parse({}).model.names()
    objectives = {names[0]: "autoencoding"}
    family = {"objective": "vicreg", "objectives": objectives, "unlabelled": [names[1]]}
    assert particulars(kept({"model": family})) == [
        "objective vicreg",
        f"objective autoencoding for {names[0]}",
        f"no labels for {names[1]}",
    ]


def test_the_page_tells(tmp_path):
    write_run(tmp_path / "r")
    assert 'class="particulars"' not in page([read_run(tmp_path / "r")])
    config = kept({"method": {"edge_dim": 8}, "model": {"agents": AGENTS}})
    (tmp_path / "r" / "config.json").write_text(json.dumps(config))
    assert (
        "With edge stalks of at most 8; objective autoencoding for cy; modality fourier for bo, cy; "
        "no labels for cy.</p>" in page([read_run(tmp_path / "r")])
    )
