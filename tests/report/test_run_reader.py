import json

import pytest

from sheafed.errors import InputError, ReportError
from sheafed.report import read_run, read_runs
from tests.helpers.run_directories import NAMES, write_run


def test_a_finished_run_is_its_summary(tmp_path):
    summary = write_run(tmp_path / "r")
    run = read_run(tmp_path / "r")
    assert run.finished
    assert run.summary == summary
    assert (run.agents, run.edges) == (summary["agents"], summary["edges"])
    assert run.ledger.bytes_sent() == summary["bytes_sent"]
    assert run.notes == ()
    assert run.links == [("ada", "bo"), ("ada", "dee"), ("bo", "cy"), ("cy", "dee")]


def test_a_run_under_way_is_what_is_there(tmp_path):
    write_run(tmp_path / "r", finished=False)
    with (tmp_path / "r" / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 7, "priv')  # the crash came here
    run = read_run(tmp_path / "r")
    assert not run.finished
    assert "has not finished" in run.notes[0]
    last = run.records[-1]
    assert (last["epoch"], run.summary["epochs"]) == (6, 6)
    assert run.summary["private_accuracy"] == last["private_accuracy"]
    assert run.summary["bytes_sent"] == last["bytes_sent"]
    assert run.summary["method"] == "sheaf-frl"
    assert list(run.agents) == list(NAMES)
    assert len(run.links) == 4


def test_a_run_that_has_only_begun(tmp_path):
    (tmp_path / "metrics.jsonl").touch()
    run = read_run(tmp_path)
    assert (run.finished, run.records, run.agents, run.ledger) == (False, [], {}, None)


def test_the_summary_of_a_run_that_went_on_is_out_of_date(tmp_path):
    write_run(tmp_path / "r", epochs=6)
    old = write_run(tmp_path / "old", epochs=3)
    (tmp_path / "r" / "summary.json").write_text(json.dumps(old))
    run = read_run(tmp_path / "r")
    assert not run.finished
    assert run.summary["epochs"] == 6


@pytest.mark.parametrize("content", [None, b"nonsense"])
def test_without_a_usable_checkpoint_only_the_ledger_is_missing(tmp_path, content):
    summary = write_run(tmp_path / "r")
    checkpoint = tmp_path / "r" / "checkpoint.safetensors"
    checkpoint.unlink()
    if content is not None:
        checkpoint.write_bytes(content)
    run = read_run(tmp_path / "r")
    assert run.finished
    assert run.summary == summary
    assert run.ledger is None
    assert "ledger" in run.notes[0]


def test_a_directory_that_is_no_run(tmp_path):
    with pytest.raises(ReportError, match="is not a run directory: it has neither"):
        read_run(tmp_path)
    with pytest.raises(ReportError, match="is not a run directory"):
        read_run(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("summary.json", "{", "summary.json is damaged"),
        ("summary.json", "[1]", "must be a JSON object"),
        ("summary.json", '{"rounds": 1000}', "method, epochs, agents, edges missing"),
        ("metrics.jsonl", "{}\nx\n{}\n", "line 2 of"),
    ],
)
def test_damaged_files_are_named(tmp_path, name, content, text):
    write_run(tmp_path / "r")
    (tmp_path / "r" / name).write_text(content)
    with pytest.raises(ReportError, match=text):
        read_run(tmp_path / "r")


def test_labels_tell_runs_apart(tmp_path):
    for path in ("a/run", "b/run", "c/other"):
        write_run(tmp_path / path)
    runs = read_runs([tmp_path / path for path in ("a/run", "b/run", "c/other")])
    assert [run.label for run in runs] == [
        str(tmp_path / "a/run"),
        str(tmp_path / "b/run"),
        "other",
    ]
    with pytest.raises(InputError, match="given twice"):
        read_runs([tmp_path / "a/run", tmp_path / "a/../a/run"])
    with pytest.raises(InputError, match="at least one run directory"):
        read_runs([])


@pytest.mark.parametrize("given", ["net", "net/ada"])
def test_a_network_of_peers_is_named_with_what_shows_it(tmp_path, given):
    """It has a summary of its own kind; a page of it had wrong counts, or was a traceback."""
    write_run(tmp_path / "net" / "ada")
    (tmp_path / "net" / "ada" / "status.json").touch()
    (tmp_path / "net" / "summary.json").write_text('{"agents": {}, "edges": []}')
    with pytest.raises(ReportError, match="of a network of peers") as error:
        read_run(tmp_path / given)
    assert f"sheafed network status {tmp_path / 'net'}`" in str(error.value)
    assert str(tmp_path / given / "summary.json") in str(error.value)
