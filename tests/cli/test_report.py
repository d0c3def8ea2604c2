import json


def test_a_run_is_reported(run, tmp_path):
    short = ["--set", "training.epochs=1", "--set", "training.evaluate_every=1"]
    assert run("run", "digits", "--out", "r", *short)[0] == 0
    code, printed, _ = run("report", "r", "--out", "pages/r.html")
    assert code == 0
    assert "pages/r.html" in printed
    content = (tmp_path / "pages" / "r.html").read_text()
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    for key in ("private_accuracy", "communication_accuracy", "misalignment", "bytes_sent"):
        assert f'<data data-key="{key}" value="{json.dumps(summary[key])}"' in content
    for edge in summary["edges"]:
        assert f'<data data-key="edge" value="{edge["bytes_sent"]}"' in content


def test_bad_input_writes_nothing(run, tmp_path):
    (tmp_path / "empty").mkdir()
    code, _, complaint = run("report", "empty")
    assert code == 2
    assert complaint.startswith("error: empty is not a run directory")
    code, _, complaint = run("report", "empty", "--out", "empty")
    assert code == 2
    assert "--out is a directory" in complaint
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]
