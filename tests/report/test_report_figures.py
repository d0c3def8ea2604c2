import json
import math
from dataclasses import asdict, replace

import pytest

from sheafed.report import RunDirectory, read_run
from sheafed.report.agent_curves import agent_curves
from sheafed.report.curves import curves, panels
from sheafed.report.graph_figure import graph_figure, layout
from sheafed.report.heatmap import accuracy_range, gap_limit, heatmap
from sheafed.report.style import format_bytes, format_duration, format_mebibytes, format_number
from sheafed.report.traffic import traffic_by_edge, traffic_by_round
from tests.helpers.run_directories import HOSTILE, NAMES, write_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "r"
    write_run(path)
    return read_run(path)


def cells(figure):
    """The numbers of a heat map, whose dark and pale cells are two layers."""
    layers = [trace.z for trace in figure.data]
    return [
        [next((v for v in both if v is not None), None) for both in zip(*rows, strict=True)]
        for rows in zip(*layers, strict=True)
    ]


@pytest.mark.parametrize(
    ("quantity", "key"),
    [("communication", "communication_accuracy"), ("oracle", "oracle_accuracy")],
)
def test_the_heat_map_has_senders_in_rows(run, quantity, key):
    table = cells(heatmap(run, quantity, accuracy_range([run]), gap_limit([run])))
    by_pair = {(edge["sender"], edge["receiver"]): edge[key] for edge in run.edges}
    for i, sender in enumerate(NAMES):
        for j, receiver in enumerate(NAMES):
            own = run.agents[sender]["private_accuracy"]
            assert table[i][j] == (own if i == j else by_pair.get((sender, receiver)))


def test_the_gap_is_oracle_minus_communication(run):
    figure = heatmap(run, "gap", accuracy_range([run]), gap_limit([run]))
    edge = run.edge("bo", "ada")
    assert cells(figure)[1][0] == edge["oracle_accuracy"] - edge["communication_accuracy"]
    assert [cells(figure)[k][k] for k in range(4)] == [None] * 4
    assert figure.data[0].zmin == -figure.data[0].zmax


def test_edges_tell_their_figures_and_nodes_their_accuracy(run):
    figure = graph_figure(run, accuracy_range([run]), 0.5)
    agents = next(trace for trace in figure.data if trace.name == "agents")
    assert list(agents.marker.color) == [a["private_accuracy"] for a in run.agents.values()]
    edges = next(trace for trace in figure.data if trace.name == "edges")
    edge = run.edge("ada", "bo")
    assert f"misalignment {edge['misalignment']:.3f}" in edges.hovertext[0]
    assert f"ada → bo: communication {edge['communication_accuracy']:.3f}" in edges.hovertext[0]
    colours = {trace.line.color for trace in figure.data if trace.mode == "lines"}
    assert len(colours) == 1 + len(run.links)


@pytest.mark.parametrize("count", [2, 15, 30])
def test_every_agent_has_a_place_of_its_own(tmp_path, count):
    names = [f"agent-{k}" for k in range(count)]
    write_run(tmp_path / "r", names)
    run = read_run(tmp_path / "r")
    places = layout(run)
    assert places == layout(run)
    spots = list(places.values())
    assert min(math.dist(a, b) for k, a in enumerate(spots) for b in spots[:k]) > 0.05


def test_one_run_has_its_accuracies_together_and_several_apart(run):
    assert panels([run])[0][1] == METRICS
    assert [keys for _, keys in panels([run, run])][:3] == [(key,) for key in METRICS]
    assert {key for _, keys in panels([run]) for key in keys} >= {"misalignment", "loss", "penalty"}


METRICS = ("private_accuracy", "communication_accuracy", "oracle_accuracy")


def test_curves_over_epochs_and_over_bytes(run):
    over_epochs = curves([run], ["misalignment"], "epochs").data[0]
    over_bytes = curves([run], ["misalignment"], "bytes").data[0]
    assert over_epochs.y == over_bytes.y == tuple(r["misalignment"] for r in run.records)
    assert over_epochs.x == tuple(range(1, 7))
    assert over_bytes.x == tuple(r["bytes_sent"] / 2**20 for r in run.records)


@pytest.mark.parametrize(
    ("keys", "label"),
    [(("private_accuracy", "oracle_accuracy"), "accuracy"), (("loss",), "loss")],
)
def test_curves_name_what_is_drawn(run, keys, label):
    assert curves([run], keys, "epochs").layout.yaxis.title.text == label


def test_every_agent_has_curves_with_the_same_axes(run):
    figures = agent_curves(run, "epochs")
    assert [figure.layout.title.text for figure in figures] == list(NAMES)
    for name, figure in zip(NAMES, figures, strict=True):
        private, communication = figure.data
        agents = [record["agents"][name] for record in run.records]
        assert private.y == tuple(agent["private_accuracy"] for agent in agents)
        assert communication.y == tuple(agent["communication_accuracy"] for agent in agents)
        assert private.x == tuple(range(1, 7))
    assert len({figure.layout.yaxis.range for figure in figures}) == 1
    assert len({figure.layout.xaxis.range for figure in figures}) == 1


def test_figures_of_another_metric(run):
    """The same run, judged by an error: no figure asks for accuracy."""
    text = json.dumps(asdict(replace(run, ledger=None)))
    found = RunDirectory(**json.loads(text.replace("_accuracy", "_mse").replace("0.", "3.")))
    assert panels([found])[0] == (
        "Mse on test data",
        ("private_mse", "communication_mse", "oracle_mse"),
    )
    low, high = accuracy_range([found])
    assert 3 <= low < high < 4
    table = cells(heatmap(found, "communication", (low, high), 1.0))
    assert table[0][0] == found.agents["ada"]["private_mse"]
    assert table[1][0] == found.edge("bo", "ada")["communication_mse"]
    agents = next(t for t in graph_figure(found, (low, high), 4.0).data if t.name == "agents")
    assert list(agents.marker.color) == [a["private_mse"] for a in found.agents.values()]
    assert agents.marker.colorbar.title.text == "agents: private mse"


def test_bright_is_good_of_errors_too(run):
    text = json.dumps(asdict(replace(run, ledger=None))).replace("_accuracy", "_mse")
    found = RunDirectory(**json.loads(text))
    found.summary["metrics"] = {"mse": {"greater_is_better": False}}

    def colours(one):
        agents = next(t for t in graph_figure(one, (0, 1), 1.0).data if t.name == "agents")
        cells = heatmap(one, "communication", (0, 1), 1.0).data[0]
        return [[colour for _, colour in of] for of in (agents.marker.colorscale, cells.colorscale)]

    assert colours(found) == [scale[::-1] for scale in colours(run)]


def test_bars_add_up_to_the_ledger(run):
    for figure, axis in ((traffic_by_edge(run.ledger), "x"), (traffic_by_round(run.ledger), "y")):
        payload, headers = (sum(trace[axis]) * 2**20 for trace in figure.data)
        assert payload == pytest.approx(run.ledger.payload_bytes())
        assert payload + headers == pytest.approx(run.ledger.bytes_sent())


def test_a_long_run_has_few_bars(tmp_path):
    write_run(tmp_path / "r", ["a", "b"], epochs=100, rounds_per_epoch=7)
    run = read_run(tmp_path / "r")
    payload = traffic_by_round(run.ledger).data[0]
    assert len(payload.x) <= 240
    means = sum(y * width for y, width in zip(payload.y, payload.width, strict=True))
    assert means * 2**20 == pytest.approx(run.ledger.payload_bytes())
    assert payload.hovertext[0].startswith("<b>rounds 1 to 3</b>")


def test_names_are_no_markup(tmp_path):
    write_run(tmp_path / "r", HOSTILE)
    run = read_run(tmp_path / "r")
    ranges = accuracy_range([run]), gap_limit([run])
    for figure in (graph_figure(run, ranges[0], 0.5), heatmap(run, "oracle", *ranges)):
        text = figure.to_json()
        assert "\\u003cscript" not in text
        assert "\\u003cimg" not in text
        assert "<script" not in text
        assert "<img" not in text


def test_numbers_are_written_as_people_do():
    assert [format_number(v) for v in (None, 0.12345, -0.1)] == ["—", "0.123", "−0.100"]  # noqa: RUF001
    assert [format_bytes(v) for v in (12, 2048, 150 * 1024, 12.34 * 2**20)] == [
        "12 B",
        "2.00 KiB",
        "150 KiB",
        "12.3 MiB",
    ]
    assert [format_mebibytes(v * 2**20) for v in (0.0123, 1.234, 12.34, 12345)] == [
        "0.0123",
        "1.23",
        "12.3",
        "12,345",
    ]
    assert [format_duration(v) for v in (1.25, 61, 3600, 5400)] == [
        "1.2 s",
        "1 min 01 s",
        "1 h 00 min",
        "1 h 30 min",
    ]
