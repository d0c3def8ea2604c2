import numpy as np
import pytest

import sheafed
from sheafed.alignment import affine_map
from sheafed.cli.align import _shown


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    source = rng.standard_normal((50, 3))
    for name, d in {"anna": 3, "bert": 5, "cleo": 4}.items():
        latents = source @ rng.standard_normal((3, d)) + 0.1 * rng.standard_normal((50, d))
        np.save(tmp_path / f"{name}.npy", latents)
    return tmp_path


def test_align_then_send_as_the_library_does(files, run):
    named = [f"{n}={files / n}.npy" for n in ("anna", "bert", "cleo")]
    edges = ["--edge", "anna:bert", "--edge", "bert:cleo"]
    options = ["--out", files / "alignment", "--shrinkage", "0.2"]
    code, printed, _ = run("align", *named, *edges, *options)
    assert code == 0
    latents = {n: np.load(files / f"{n}.npy") for n in ("anna", "bert", "cleo")}
    expected = sheafed.align(latents, [("anna", "bert"), ("bert", "cleo")], shrinkage=0.2)
    for fit in expected.report().edges:
        assert f"{fit.misalignment:.3f}" in printed
    for pair in expected.report().pairs:
        assert f"{pair.residual:.3f}" in printed
    arguments = ["--alignment", files / "alignment", "--from", "anna", "--to", "cleo"]
    out = files / "new" / "out.npy"
    code, printed, _ = run("send", *arguments, files / "anna.npy", "--out", out)
    assert code == 0
    assert "anna -> bert -> cleo" in printed
    np.testing.assert_array_equal(np.load(out), expected.send(latents["anna"], "anna", "cleo"))


@pytest.mark.parametrize("kind", ["float16", "float32"])
def test_a_file_is_sent_part_by_part(files, run, monkeypatch, kind):
    monkeypatch.setattr(affine_map, "CHUNK", 7)
    named = [f"{n}={files / n}.npy" for n in ("anna", "bert")]
    run("align", *named, "--out", files / "alignment")
    z = np.load(files / "anna.npy").astype(kind)
    np.save(files / "z.npy", z)
    arguments = ["--alignment", files / "alignment", "--from", "anna", "--to", "bert"]
    code, printed, _ = run("send", *arguments, files / "z.npy", "--out", files / "out.npy")
    assert code == 0
    assert "(50, 5)" in printed
    expected = sheafed.Alignment.load(files / "alignment").send(z, "anna", "bert")
    received = np.load(files / "out.npy")
    assert received.dtype == kind
    np.testing.assert_array_equal(received, expected)


@pytest.mark.parametrize("bad_row", [3, 40])
def test_a_file_that_cannot_be_sent_leaves_no_output(files, run, monkeypatch, bad_row):
    monkeypatch.setattr(affine_map, "CHUNK", 8)
    named = [f"{n}={files / n}.npy" for n in ("anna", "bert")]
    run("align", *named, "--out", files / "alignment")
    z = np.load(files / "anna.npy")
    z[bad_row, 1] = np.nan
    np.save(files / "z.npy", z)
    arguments = ["--alignment", files / "alignment", "--from", "anna", "--to", "bert"]
    code, _, complaint = run("send", *arguments, files / "z.npy", "--out", files / "out.npy")
    assert code == 2
    first = bad_row // 8 * 8
    assert f"the first at ({bad_row}, 1): nan" in complaint
    assert f"rows {first} to {first + 7} of the latents holds 1 non-finite" in complaint
    assert not list(files.glob("out.npy*"))


def test_cycles_and_private_whitening_are_shown(files, run):
    named = [f"{n}={files / n}.npy" for n in ("anna", "bert", "cleo")]
    private = [x for n in named for x in ("--private", n)]
    options = ["--whitening", "private", *private, "--out", files / "x"]
    code, printed, _ = run("align", *named, *options)
    assert code == 0
    assert "anna -> " in printed
    assert "holonomy" in printed


def test_tables_fit_into_80_columns(files, run, monkeypatch):
    names = {"anna": "efficientnet-lite0", "bert": "paraphrase-minilm-l3", "cleo": "mobilenet-v2"}
    named = [f"{long}={files / short}.npy" for short, long in names.items()]
    monkeypatch.setenv("COLUMNS", "80")
    code, printed, _ = run("align", *named, "--out", files / "x")
    assert code == 0
    assert max(map(len, printed.splitlines()[:-1])) <= 80
    assert "…" not in printed
    report = sheafed.Alignment.load(files / "x").report()
    assert str(report) in printed
    assert "rescaled-ridge" in printed
    short = [f"{n}={files / f}.npy" for n, f in (("budapest", "anna"), ("brussels", "bert"))]
    assert "brussels" in run("align", *short, "--out", files / "y")[1]
    for pair in report.pairs:
        assert all(f"{f:.3f}" in str(report) for f in (pair.top1, pair.reciprocal_rank))
        assert pair.verdict in str(report)


def test_undetermined_maps_are_warned_of(files, run):
    for name in ("cleo", "bert"):
        np.save(files / f"{name}.npy", np.load(files / f"{name}.npy")[:4])
    named = [f"{n}={files / n}.npy" for n in ("cleo", "bert")]
    code, _, complaint = run("align", *named, "--out", files / "x")
    assert code == 0
    assert "warning: 4 pilots leave the isometries of 1 of 1 edges undetermined" in complaint


@pytest.mark.parametrize("goal", ["read", "match", "search"])
def test_the_gate_names_the_pairs_below_it_and_writes_nothing(files, run, goal):
    rng = np.random.default_rng(1)
    np.save(files / "odd.npy", rng.standard_normal((50, 4)))
    named = [f"{n}={files / n}.npy" for n in ("anna", "bert", "odd")]
    out = files / "gated"
    options = ["--goal", goal, "--maps", "ridge", "--out", out]
    code, printed, complaint = run("align", *named, *options, "--gate", "0.4")
    assert code == 2
    assert "residual" in printed
    assert "4 of 6 pairs is below --gate 0.4" in complaint
    assert all(pair in complaint for pair in ("anna -> odd", "odd -> bert"))
    assert "anna -> bert" not in complaint
    assert not out.exists()
    code, _, _ = run("align", *named[:2], *options, "--gate", "0.4")
    assert code == 0
    assert sheafed.Alignment.load(out).goal == goal


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["anna"], "expected NAME=FILE.npy, got 'anna'"),
        (["anna=anna.npy", "anna=bert.npy"], "given twice"),
        (["anna=anna.npy", "bert=none.npy"], "cannot read none.npy"),
        (["anna=anna.npy", "bert=text.npy"], "text.npy as a NumPy array (it is no .npy file"),
        (["anna=anna.npy", "bert=objects.npy"], "cannot read objects.npy"),
        (
            ["anna=anna.npy", "bert=many.npz"],
            "archive of arrays, ['a', 'b']; write one of them with numpy.save",
        ),
        (["anna=anna.npy", "bert=bert.npy", "--edge", "annabert"], "--edge A:B"),
        (["anna=anna.npy", "bert=bert.npy", "--whitening", "pca"], "'pca'"),
        (["anna=anna.npy", "bert=bert.npy", "--shrinkage", "much"], "'much'"),
        (["anna=anna.npy", "bert=bert.npy", "--maps", "spline"], "'joint'], got 'spline'"),
        (["anna=anna.npy", "bert=bert.npy", "--goal", "win"], "'win'"),
        (["anna=anna.npy", "bert=bert.npy", "--gate", "1.5"], "--gate must lie in [0, 1], got 1.5"),
    ],
)
def test_bad_input_is_one_line_and_writes_nothing(files, run, monkeypatch, arguments, text):
    monkeypatch.chdir(files)
    (files / "text.npy").write_text("not an array")
    np.save(files / "objects.npy", np.array([{}], dtype=object))
    np.savez(files / "many.npz", a=np.zeros(3), b=np.zeros(3))
    code, _, complaint = run("align", *arguments, "--out", "out")
    assert code == 2
    assert complaint.startswith("error: ")
    assert text in complaint
    assert len(complaint.splitlines()) == 1
    assert not (files / "out").exists()


def test_send_from_a_directory_without_alignment(files, run):
    arguments = ["--alignment", files, "--from", "anna", "--to", "bert"]
    code, _, complaint = run("send", *arguments, files / "anna.npy", "--out", files / "out.npy")
    assert code == 2
    assert "sheafed align --out" in complaint
    assert not (files / "out.npy").exists()


def test_latents_of_another_encoder_are_refused_unless_told_otherwise(files, run):
    named = [f"{n}={files / n}.npy" for n in ("anna", "bert")]
    run("align", *named, "--out", files / "alignment", "--maps", "ridge")
    np.save(files / "z.npy", 100 * np.load(files / "anna.npy"))
    arguments = ["--alignment", files / "alignment", "--from", "anna", "--to", "bert"]
    arguments += [files / "z.npy", "--out", files / "out.npy"]
    code, _, complaint = run("send", *arguments)
    assert code == 2
    assert "no latents of the encoder 'anna'" in complaint
    assert not (files / "out.npy").exists()
    assert run("send", *arguments, "--no-check")[0] == 0


def test_missing_pilots_and_joint_maps(files, run):
    for name, rows in {"anna": slice(25), "bert": slice(25, None)}.items():
        z = np.load(files / f"{name}.npy")
        z[rows] = np.nan
        np.save(files / f"{name}.npy", z)
    named = [f"{n}={files / n}.npy" for n in ("anna", "bert", "cleo")]
    options = ["--maps", "joint", "--out", files / "alignment"]
    code, printed, _ = run("align", *named, *options)
    assert code == 0
    assert printed.count("not judged") == 2
    code, _, complaint = run("align", *named, *options, "--gate", "0.1")
    assert code == 2
    assert "anna -> bert not judged" in complaint
    code, printed, complaint = run("align", *named, "--out", files / "apart")
    assert code == 0
    assert "warning: too few common pilots" in complaint
    assert "anna and bert (0)" in complaint
    assert "anna -> bert" not in printed


@pytest.fixture
def sent(files, run):
    """The arguments of `sheafed send`, but for the files."""
    run("align", *[f"{n}={files / n}.npy" for n in ("anna", "bert")], "--out", files / "alignment")
    return ["send", "--alignment", files / "alignment", "--from", "anna", "--to", "bert"]


@pytest.mark.parametrize("link", ["same", "symbolic", "hard", "target"])
def test_the_latents_that_are_sent_are_not_overwritten(files, run, sent, link):
    given, out = files / "anna.npy", files / "out.npy"
    before = given.read_bytes()
    match link:
        case "same":
            out = files / "." / "anna.npy"
        case "symbolic":
            out.symlink_to(given)
        case "hard":
            out.hardlink_to(given)
        case "target":
            out.symlink_to(given)
            given, out = out, given
    code, _, complaint = run(*sent, given, "--out", out)
    assert code == 2
    assert "is the file of the latents themselves" in complaint
    assert given.read_bytes() == before


@pytest.mark.parametrize("kind", [">f4", ">f8"])
def test_latents_of_another_byte_order_are_sent(files, run, sent, kind):
    z = np.load(files / "anna.npy")
    np.save(files / "z.npy", z.astype(kind))
    assert run(*sent, files / "z.npy", "--out", files / "out.npy")[0] == 0
    expected = sheafed.Alignment.load(files / "alignment").send(z, "anna", "bert")
    np.testing.assert_allclose(np.load(files / "out.npy"), expected, atol=1e-5)
    big = z.astype(kind)
    assert sheafed.align({"a": big, "b": big[:, ::-1]}).send(big, "a", "b").dtype == kind


def test_pilots_in_another_order_are_asked_about(files, run):
    np.save(files / "mixed.npy", np.random.default_rng(1).permutation(np.load(files / "bert.npy")))
    named = [f"{n}={files / n}.npy" for n in ("anna", "mixed")]
    code, printed, _ = run("align", *named, "--out", files / "x")
    assert code == 0
    assert "next:" not in printed
    asked = "anna -> mixed, mixed -> anna at chance: are the rows of both files the same inputs in"
    assert f"{asked} the same order?" in printed.splitlines()[-1]
    assert "at chance" in str(sheafed.Alignment.load(files / "x").report())
    code, printed, _ = run("align", named[0], f"bert={files / 'bert'}.npy", "--out", files / "x")
    assert "chance" not in printed
    assert "next: sheafed send" in printed


def test_copies_of_pilots_are_warned_of(files, run):
    for name in ("anna", "bert"):
        np.save(files / f"{name}.npy", np.tile(np.load(files / f"{name}.npy"), (2, 1)))
    named = [f"{n}={files / n}.npy" for n in ("anna", "bert")]
    assert (
        "warning: 50 of 100 pilots repeat others" in run("align", *named, "--out", files / "x")[2]
    )


def test_a_quality_below_the_gate_is_printed_below_it():
    assert _shown(0.89996, 0.9) == "0.89996"
    assert _shown(0.5, 0.9) == "0.500"
    assert _shown(None, 0.9) == "not judged"
