"""What a network and its history look like, in a terminal, in a notebook and as a figure."""

import math
from copy import copy
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sheafed.evaluation import Evaluation
from sheafed.methods import NonCooperative
from sheafed.training import Network, train
from sheafed.transport import LocalTransport
from tests.helpers.federations import pilots, regressor, simple_agent, start

HOSTILE = "<script>window.broken=1<script>"


@pytest.fixture(scope="module")
def network() -> Network:
    return start("distillation", epochs=2)


def test_a_network_fits_on_a_screen(network: Network) -> None:
    last, found = network.history.last, network.history.evaluation
    assert last is not None
    assert found is not None
    values = [f"{kind} {last[f'{kind}_accuracy']:.3f}" for kind in ("private", "communication")]
    sent = network.history.ledger.bytes_sent() / 2**20
    lines = repr(network).splitlines()
    assert lines[0] == f"Network of 3 agents and 2 edges, {network.pilots.total} pilots"
    assert lines[1] == f"Sheaf-FRL with distillation, seed 7, epoch 2 of 2, {sent:.1f} MiB sent"
    assert lines[2] == f"accuracy: {', '.join(values)}, oracle {last['oracle_accuracy']:.3f}"
    (bob,) = (line.split() for line in lines if line.startswith("bob "))
    communication = found.communication_of("bob")
    assert bob[1:] == [
        *("4", "41", "ada,", "cyd"),
        f"{found.private['bob']:.3f}",
        f"{communication:.3f}",
    ]
    assert max(map(len, lines)) <= 100


def test_many_agents_are_counted() -> None:
    agents = [simple_agent(f"agent{k:02}", seed=k) for k in range(17)]
    star = [("agent00", agent.name) for agent in agents[1:]]
    network = train(agents, star, NonCooperative(), pilots(), epochs=1, oracle=False)
    lines = repr(network).splitlines()
    assert len(lines) <= 24
    assert lines[-1] == "and 2 more agents"
    assert "agent14 " in repr(network)
    assert "agent15" not in repr(network)
    assert max(map(len, lines)) <= 100
    assert lines[2].endswith("oracle -")


def test_what_an_agent_lacks_is_said() -> None:
    network = train([simple_agent("a")], [], NonCooperative(), pilots(), epochs=1)
    *_, values, _, _, row = repr(network).splitlines()
    assert "communication -, oracle -" in values
    assert row.split()[3:] == ["none", row.split()[4], "-"]


def test_a_loaded_network_shows_the_values_of_its_run(tmp_path: Path) -> None:
    run = start("distillation", epochs=1, out=tmp_path)
    run.history.records[-1]["bytes_sent"] = 3 * 2**20
    assert run.history.evaluation is not None
    text = repr(run)
    run.history.evaluation, run.history.ledger = None, LocalTransport([]).ledger
    assert repr(run).splitlines()[2:] == text.splitlines()[2:]
    assert repr(run).splitlines()[1].endswith("3.0 MiB sent")


def test_a_value_of_another_metric_has_its_name() -> None:
    ada, bob = simple_agent("ada"), simple_agent("bob", 4, metric="macro_f1")
    network = train([ada, bob], [("ada", "bob")], NonCooperative(), pilots(), epochs=1)
    found = network.history.evaluation
    assert found is not None
    rows = {line.split()[0]: line for line in repr(network).splitlines()[-2:]}
    assert rows["bob"].endswith(f"  accuracy {found.communication['ada', 'bob']:.3f}")
    assert rows["ada"].endswith(f"  macro_f1 {found.communication['bob', 'ada']:.3f}")


def test_the_history_is_a_line(network: Network) -> None:
    text = repr(network.history)
    assert text.startswith("RunHistory(epoch 2 of 2, ")
    assert "accuracy: private 0." in text
    assert "\n" not in text


class Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_notebook_gets_a_small_escaped_table() -> None:
    agents = [simple_agent(HOSTILE), simple_agent("b", seed=1)]
    network = train(agents, [(HOSTILE, "b")], NonCooperative(), pilots(), epochs=1)
    page = network._repr_html_()
    cells = Cells()
    cells.feed(page)
    assert set(cells.tags) == {"div", "br", "table", "thead", "tbody", "tr", "th", "td"}
    assert cells.tags.count("tr") == 3
    assert any(text.startswith("<script>window.broken=") for text in cells.texts)
    assert len(page) < 4000


def test_the_figure_has_curves_and_who_understands_whom(network: Network) -> None:
    figure = network.plot()
    curves, heatmap, _ = figure.axes
    drawn = {line.get_label(): list(line.get_ydata()) for line in curves.lines}
    records = network.history.records
    assert drawn == {
        kind: [record[f"{kind}_accuracy"] for record in records]
        for kind in ("private", "communication", "oracle")
    }
    assert (curves.get_xlabel(), curves.get_ylabel()) == ("epoch", "accuracy")
    assert all(tick == int(tick) for tick in curves.get_xticks())
    found = network.history.evaluation
    assert found is not None
    values = heatmap.images[0].get_array().filled(math.nan).tolist()
    assert [label.get_text() for label in heatmap.get_yticklabels()] == ["ada", "bob", "cyd"]
    assert values[0][1] == found.communication["ada", "bob"]  # senders in rows
    assert values[2][2] == found.private["cyd"]
    assert math.isnan(values[0][2])
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_bright_is_good_and_metrics_have_their_own_colours(network: Network) -> None:
    history = copy(network.history)
    history.evaluation = Evaluation(
        private={"a": 0.5, "b": 0.1, "c": 0.9},
        communication={("b", "a"): 30.0, ("a", "b"): 0.25},
        metrics={"a": "accuracy", "b": "mae", "c": "mae"},
    )
    history.errors = frozenset({"mae"})
    figure = history.plot()
    curves, heatmap, *bars = figure.axes
    labels = [bar.get_ylabel() for bar in bars]
    assert labels == ["accuracy", "mae, smaller is better"]
    accuracy, error = heatmap.images
    assert accuracy.get_clim() == (0, 1)
    assert error.get_clim() == (0.1, 30)
    assert accuracy.get_array().count() == 2
    assert error.get_array().count() == 3
    for image, good, bad in ((accuracy, 1.0, 0.0), (error, 0.1, 30.0)):
        assert sum(image.cmap(image.norm(good))) > sum(image.cmap(image.norm(bad)))
    figure.draw_without_rendering()
    legend = curves.get_legend().get_window_extent()
    assert legend.y1 < curves.get_window_extent().y0


def test_errors_are_known_from_the_agents() -> None:
    agents = [simple_agent("a"), regressor("b", metric="mae")]
    assert train(agents, [("a", "b")], NonCooperative(), pilots(), epochs=1).history.errors == {
        "mae"
    }


def test_figures_share_no_state(network: Network) -> None:
    from matplotlib import pyplot

    before = pyplot.get_fignums()
    one, other = network.plot(), network.history.plot()
    assert one is not other
    assert pyplot.get_fignums() == before


def test_a_history_without_evaluations_is_drawn_empty() -> None:
    network = start("alone", epochs=1)
    network.history.records, network.history.evaluation = [], None
    curves, _ = network.plot().axes
    assert curves.get_ylabel() == "no evaluation yet"
    assert "accuracy" not in repr(network)
