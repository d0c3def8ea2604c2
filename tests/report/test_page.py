import json
import re
from html import unescape

import pytest
from plotly.offline import get_plotlyjs

from sheafed.errors import ReportError
from sheafed.report import page, read_run, read_runs, write_report
from tests.helpers.run_directories import HOSTILE, METRICS, write_run


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    top = tmp_path_factory.mktemp("runs")
    summaries = [write_run(top / name, seed=k) for k, name in enumerate(("one", "two"))]
    return [top / "one", top / "two"], summaries


def own(content):
    """The page without plotly."""
    return content.replace(get_plotlyjs(), "")


@pytest.fixture(scope="module")
def both(directories):
    """The page about both runs."""
    return page(read_runs(directories[0]))


def test_the_page_is_one_file_that_loads_nothing(both):
    assert both.count(get_plotlyjs()) == 1
    assert not re.search(r"\b(src=|href=|url\(|@import|https?:)", own(both))
    assert "default-src 'none'" in both
    assert 4e6 < len(both.encode()) < 6e6


def test_metrics_are_those_of_the_summary(directories, both):
    summaries, content = directories[1], own(both)
    for key in (*METRICS, "bytes_sent", "epochs", "seconds"):
        found = re.findall(rf'<data data-key="{key}" value="([^"]*)"', content)
        expected = [summary[key] for summary in summaries]
        assert [json.loads(value) for value in found] == [*expected, *expected]


def test_equal_runs_give_equal_pages(directories, both):
    assert page(read_runs(directories[0])) == both


def test_settings_that_differ_are_shown(directories, both):
    content = own(both)
    rows = re.findall(r"<tr><th>([a-z.]+)</th><td>([^<]*)</td><td>([^<]*)</td></tr>", content)
    assert rows == [("method.penalty", "0.1", "0.2"), ("seed", "0", "1")]
    assert "Settings that differ" not in own(page(read_runs(directories[0][:1])))


def test_the_verdict_is_above_the_figures(directories, both):
    content = own(both)
    found = re.findall(r'<p class="verdict">([^<]*)</p>', content)
    assert len(found) == 2
    assert all(text.startswith("Communication reaches accuracy") for text in found)
    assert content.index('class="verdict"') < content.index('class="cards"')


def test_runs_from_python_are_compared_by_their_summaries(tmp_path):
    settings = {
        "method": {"name": "sheaf-frl", "penalty": 0.1, "channel": None},
        "agents": {"ada": {"encoder": "Linear, 6 parameters", "learning_rate": 0.01}},
    }
    for name, rate in (("one", 0.01), ("two", 0.1)):
        summary = write_run(tmp_path / name, config=False)
        settings["agents"]["ada"]["learning_rate"] = rate
        summary["settings"] = settings
        (tmp_path / name / "summary.json").write_text(json.dumps(summary))
    content = own(page(read_runs([tmp_path / "one", tmp_path / "two"])))
    rows = re.findall(r"<tr><th>([\w.]+)</th><td>([^<]*)</td><td>([^<]*)</td></tr>", content)
    assert rows == [("agents.ada.learning_rate", "0.01", "0.1")]
    assert "<dt>ada.encoder</dt><dd>Linear, 6 parameters</dd>" in content
    assert "started from Python." in content
    assert "channel" not in content


def test_names_stay_text(tmp_path):
    write_run(tmp_path / "<b>r", HOSTILE)
    content = own(page([read_run(tmp_path / "<b>r")]))
    for name in (*HOSTILE, "<b>r"):
        assert name not in content
        assert name in unescape(content)
    assert content.count("<script") == 3


def test_an_unfinished_run_is_marked(tmp_path):
    write_run(tmp_path / "r", finished=False)
    assert "unfinished: 6 of 12 epochs" in own(page([read_run(tmp_path / "r")]))
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "metrics.jsonl").touch()
    assert "unfinished: 0 epochs" in own(page([read_run(tmp_path / "new")]))


def test_a_number_that_is_none_is_shown_as_such(tmp_path):
    summary = write_run(tmp_path / "r")
    summary |= {"private_accuracy": float("nan"), "oracle_accuracy": None}
    for edge in summary["edges"]:
        edge["oracle_accuracy"] = None
        edge["misalignment"] = float("nan")
    (tmp_path / "r" / "summary.json").write_text(json.dumps(summary))
    content = own(page([read_run(tmp_path / "r")]))
    assert '<data data-key="private_accuracy" value="NaN" title="NaN">nan</data>' in content
    figures = re.search(r'id="figures">(.*?)</script>', content, re.DOTALL)[1]
    json.loads(figures, parse_constant=pytest.fail)


def test_a_place_that_cannot_be_written(tmp_path, directories):
    (tmp_path / "file").touch()
    with pytest.raises(ReportError, match="cannot write the report"):
        write_report(read_runs(directories[0][:1]), tmp_path / "file" / "report.html")


def test_an_agent_without_neighbours(tmp_path):
    summary = write_run(tmp_path / "r")
    summary["agents"] = {"ada": summary["agents"]["ada"] | {"neighbours": []}}
    (tmp_path / "r" / "summary.json").write_text(json.dumps(summary | {"edges": []}))
    (tmp_path / "r" / "checkpoint.safetensors").unlink()
    assert "1 agents, 0 edges" in own(page([read_run(tmp_path / "r")]))
