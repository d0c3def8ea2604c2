import json

from sheafed.config.reading import parse_experiment
from sheafed.report import page, read_run
from sheafed.report.config_summary import config_differences, config_tables, describe_config
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
    return json.loads(parse_experiment(tables).model_dump_json())


def test_plain_runs_have_no_notable_options():
    assert describe_config(kept({})) == []
    assert describe_config(kept({"method": {"name": "comfed"}})) == []
    assert describe_config(kept({"method": {"channel": {}}})) == []
    assert describe_config({}) == []


def test_options_of_a_method():
    method = {"privacy": "strict", "distillation": {}, "edge_dim": 32, "noise": {"epsilon": 16.0}}
    assert describe_config(kept({"method": method})) == [
        "strict protocol",
        "distillation",
        "edge stalks of at most 32 dimensions",
        "Gaussian noise on pilots, ε = 16 and δ = 1e-05 per release",
    ]


def test_options_of_a_channel():
    channel = {"snr_db": 10, "erasure": 0.1, "bits": 4, "when": "inference"}
    for name in ("sheaf-frl", "non-cooperative"):
        assert describe_config(kept({"method": {"name": name, "channel": channel}})) == [
            "channel with an SNR of 10 dB, 10 % erasures, 4 bits per number, at inference only"
        ]


def test_objectives_modalities_and_labels():
    texts = [{"name": name, "widths": [8], "pretrained": "glove-50d"} for name in "ab"]
    assert describe_config(kept({"model": {"agents": texts}})) == [
        "pretrained encoder glove-50d for a, b"
    ]
    assert describe_config(kept({"model": {"agents": AGENTS}})) == [
        "objective autoencoding for cy",
        "modality fourier for bo, cy",
        "no labels for cy",
    ]
    names = parse_experiment({}).model.agent_names()
    objectives = {names[0]: "autoencoding"}
    family = {"objective": "vicreg", "objectives": objectives, "unlabelled": [names[1]]}
    assert describe_config(kept({"model": family})) == [
        "objective vicreg",
        f"objective autoencoding for {names[0]}",
        f"no labels for {names[1]}",
    ]


def test_the_page_shows_the_options(tmp_path):
    write_run(tmp_path / "r")
    assert 'class="options"' not in page([read_run(tmp_path / "r")])
    config = kept({"method": {"edge_dim": 8}, "model": {"agents": AGENTS}})
    (tmp_path / "r" / "config.json").write_text(json.dumps(config))
    assert (
        "With edge stalks of at most 8 dimensions; objective autoencoding for cy; "
        "modality fourier for bo, cy; no labels for cy.</p>" in page([read_run(tmp_path / "r")])
    )


def test_settings_by_table_and_differences():
    one = {"seed": 0, "data": {"split": [0.8, 0.2]}, "method": {"name": "a", "maps": {"every": 1}}}
    other = {
        "seed": 1,
        "data": {"split": [0.8, 0.2]},
        "method": {"name": "a", "noise": {"epsilon": 4}},
    }
    assert config_tables(one) == {
        "": {"seed": "0"},
        "data": {"split": "[0.8, 0.2]"},
        "method": {"name": "a", "maps.every": "1"},
    }
    assert config_differences([one, other]) == {
        "seed": ["0", "1"],
        "method.maps.every": ["1", None],
        "method.noise.epsilon": [None, "4"],
    }
    assert config_differences([one]) == config_differences([one, one]) == {}
