import hashlib
import itertools
import json
import warnings
from functools import partial

import networkx as nx
import numpy as np
import pytest
import safetensors.torch
import scipy.linalg
import torch

import sheafed
from sheafed import graphs
from sheafed.errors import (
    AlignmentFormatError,
    DisconnectedGraphError,
    DtypeError,
    EmptyInputError,
    GraphError,
    InputError,
    NonFiniteError,
    ShapeError,
    SingularCovarianceError,
    UndeterminedMapWarning,
    UnknownAgentError,
)


def planted(sizes, pilots=200, seed=0, anisotropy=3.0):
    """Latents that are exact isometric images of a common source, each with its own geometry."""
    rng = np.random.default_rng(seed)
    source = rng.standard_normal((pilots, min(sizes.values())))
    source = (source - source.mean(0)) @ scipy.linalg.inv(
        scipy.linalg.sqrtm(np.cov(source.T, bias=True))
    )
    latents = {}
    for name, d in sizes.items():
        q, _ = np.linalg.qr(rng.standard_normal((d, source.shape[1])))
        latents[name] = source @ q.T
        if d == source.shape[1]:
            stretch = np.diag(rng.uniform(1, anisotropy, d))
            latents[name] = latents[name] @ stretch + rng.standard_normal(d)
    return latents


def test_same_size_spaces_with_different_geometry_are_glued_exactly():
    latents = planted({"a": 6, "b": 6, "c": 6})
    alignment = sheafed.align(latents, shrinkage=0.0)
    for sender in latents:
        for receiver in latents:
            received = alignment.send(latents[sender], sender, receiver)
            np.testing.assert_allclose(received, latents[receiver], atol=1e-8)
    report = alignment.report()
    assert max(fit.misalignment for fit in report.edges) < 1e-12
    assert [set(c.cycle) for c in report.cycles] == [{"a", "b", "c"}]
    assert report.cycles[0].deviation < 1e-6


def test_send_is_whiten_map_colour_computed_by_hand():
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((80, 5)) @ rng.standard_normal((5, 5)), rng.standard_normal((80, 3))
    x[:, :3] += y
    alignment = sheafed.align({"big": x, "small": y}, shrinkage=0.0, maps="procrustes")

    def zca(v):
        covariance = np.cov(v.T, bias=True)
        return v.mean(0), scipy.linalg.fractional_matrix_power(covariance, -0.5)

    (mean_x, white_x), (mean_y, white_y) = zca(x), zca(y)
    m = ((x - mean_x) @ white_x).T @ ((y - mean_y) @ white_y)
    u, _, wt = np.linalg.svd(m, full_matrices=False)
    v = u @ wt
    z = rng.standard_normal((7, 3))
    up = (z - mean_y) @ white_y @ v.T @ np.linalg.inv(white_x) + mean_x
    np.testing.assert_allclose(alignment.send(z, "small", "big"), up, atol=1e-9)
    z = rng.standard_normal((7, 5))
    down = (z - mean_x) @ white_x @ v @ np.linalg.inv(white_y) + mean_y
    np.testing.assert_allclose(alignment.send(z, "big", "small"), down, atol=1e-9)
    np.testing.assert_allclose(alignment.send(z, "big", "big"), z, atol=1e-9)
    (fit,) = alignment.report().edges
    a, b = (x - mean_x) @ white_x, (y - mean_y) @ white_y
    expected = np.linalg.norm(a - b @ v.T) ** 2 / (np.linalg.norm(a) ** 2 + np.linalg.norm(b) ** 2)
    assert fit.misalignment == pytest.approx(expected)
    assert (fit.head, fit.tail, fit.rank) == ("big", "small", 3)


def test_private_whitening_uses_the_private_moments():
    rng = np.random.default_rng(2)
    pilots = {"a": rng.standard_normal((50, 4)), "b": rng.standard_normal((50, 4))}
    private = {n: 5 + 3 * rng.standard_normal((90, 4)) for n in pilots}
    alignment = sheafed.align(pilots, whitening="private", private=private, shrinkage=0.0)
    white = alignment.whitenings["a"].whiten(torch.as_tensor(private["a"])).numpy()
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(4), atol=1e-9)
    np.testing.assert_allclose(white.mean(0), 0, atol=1e-9)


def test_without_whitening_only_a_rotation_is_applied():
    rng = np.random.default_rng(3)
    q = scipy.stats.ortho_group.rvs(4, random_state=3)
    x = rng.standard_normal((60, 4))
    alignment = sheafed.align({"a": x, "b": x @ q}, whitening=None)
    np.testing.assert_allclose(alignment.send(x, "a", "b"), x @ q, atol=1e-10)


def test_a_message_takes_the_path_that_keeps_most():
    rng = np.random.default_rng(4)
    source = rng.standard_normal((300, 4))
    noisy = {"a": 0.0, "clear": 0.01, "murky": 3.0, "z": 0.0}
    latents = {n: source + s * rng.standard_normal(source.shape) for n, s in noisy.items()}
    diamond = [("a", "clear"), ("clear", "z"), ("a", "murky"), ("murky", "z")]
    alignment = sheafed.align(latents, graph=diamond, shrinkage=0.0)
    assert alignment.path("a", "z") == ["a", "clear", "z"]
    two_hops = alignment.send(latents["a"], "a", "z")
    np.testing.assert_allclose(two_hops, latents["z"], atol=0.1)


def test_neighbours_use_their_own_map_even_if_a_detour_promises_more():
    rng = np.random.default_rng(9)
    source = rng.standard_normal((300, 8))
    parts = {"a": [0, 1, 2, 3], "b": [3, 4, 5, 6], "wide": list(range(8))}
    latents = {n: source[:, part] for n, part in parts.items()}
    alignment = sheafed.align(latents, shrinkage=0.0)
    quality = {(p.sender, p.receiver): p.quality("read") for p in alignment.pairs}
    assert quality["a", "wide"] * quality["wide", "b"] > quality["a", "b"]
    for sender, receiver in itertools.permutations(latents, 2):
        assert alignment.path(sender, receiver) == [sender, receiver]


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_the_rank_is_judged_by_the_precision_of_the_latents(kind, offset):
    """Of latents, whatever the kind of the maps."""
    generator = torch.Generator().manual_seed(0)
    align = partial(sheafed.align, maps="procrustes")

    def draw(*shape):
        return torch.randn(*shape, generator=generator).to(kind)

    flat = draw(100, 5) @ draw(5, 10) + offset
    full = draw(100, 12)
    for shrinkage in (0.0, 0.1, "auto"):
        with pytest.warns(UndeterminedMapWarning, match="flat -> full on 5 of 10 dimensions"):
            alignment = align({"full": full, "flat": flat}, shrinkage=shrinkage)
        assert alignment.fits[0].rank == 5
    assert alignment.send(flat, "flat", "full").dtype == kind
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert align({"full": full, "small": draw(100, 10)}).fits[0].rank == 10
    mixed = {"double": full.double(), "flat": flat}
    with pytest.warns(UndeterminedMapWarning, match="5 of 10"):
        align(mixed)


@pytest.mark.parametrize(("kind", "offset"), [("float16", 0), ("float16", 200), ("float32", 4e5)])
def test_coarse_latents_are_aligned_as_what_they_hold(kind, offset):
    """Whatever large coordinates or offsets stand beside what varies."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((120, 6))
    large = 3000 + 60 * rng.standard_normal(120)
    coarse = (np.c_[x, large] + offset).astype(kind)
    y = x @ rng.standard_normal((6, 4))
    expected = sheafed.align({"a": coarse.astype("float64"), "b": y}).report()
    found = sheafed.align({"a": coarse, "b": y}).report()
    for one, other in zip(found.pairs, expected.pairs, strict=True):
        assert one.residual == pytest.approx(other.residual, rel=1e-6)
    assert [fit.rank for fit in found.edges] == [fit.rank for fit in expected.edges] == [4]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("options", [{}, {"whitening": None}, {"shrinkage": 0.0}])
def test_latents_of_any_scale_are_aligned(options):
    latents = {n: x.astype(np.float32) for n, x in planted({"a": 6, "b": 6}).items()}
    expected = sheafed.align(latents, **options)
    for scale in (np.float32(1e-23), np.float32(1e18)):
        scaled = {n: scale * x for n, x in latents.items()}
        found = sheafed.align(scaled, **options)
        assert found.fits[0].misalignment == pytest.approx(expected.fits[0].misalignment, abs=1e-6)
        np.testing.assert_allclose(
            found.send(scaled["a"], "a", "b") / scale,
            expected.send(latents["a"], "a", "b"),
            rtol=1e-3,
            atol=1e-3,
        )


def test_the_order_of_the_agents_changes_nothing():
    rng = np.random.default_rng(5)
    sizes = {"a": 5, "b": 3, "c": 5, "d": 4}
    latents = {n: rng.standard_normal((40, d)) for n, d in sizes.items()}
    reference = sheafed.align(latents)
    z = latents["a"]
    for order in ("dcba", "cadb"):
        shuffled = sheafed.align({n: latents[n] for n in order})
        assert shuffled.report().edges == reference.report().edges
        np.testing.assert_array_equal(shuffled.send(z, "a", "b"), reference.send(z, "a", "b"))


@pytest.mark.parametrize("make", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_the_result_is_of_the_kind_and_precision_of_the_input(make, kind):
    latents = planted({"a": 4, "b": 6})
    given = {n: make(x.astype(kind)) for n, x in latents.items()}
    alignment = sheafed.align(given, maps="procrustes")
    z = make(latents["a"].astype(kind))
    received = alignment.send(z, "a", "b")
    assert type(received) is type(z)
    assert received.dtype == z.dtype
    single = alignment.send(z[0], "a", "b")
    assert single.shape == (6,)
    np.testing.assert_allclose(
        np.asarray(single),
        np.asarray(received[0]),
        rtol=1e-2 if kind == "float16" else 1e-4,
        atol=1e-5,
    )


def test_a_saved_alignment_sends_the_same(tmp_path):
    rng = np.random.default_rng(6)
    latents = {n: rng.standard_normal((30, d)) for n, d in {"a": 5, "b/c": 3, "d": 4}.items()}
    alignment = sheafed.align(latents, graph=graphs.line(["a", "b/c", "d"]))
    loaded = sheafed.Alignment.load(alignment.save(tmp_path / "deep" / "er"))
    assert loaded.report().edges == alignment.report().edges
    assert loaded.report().pairs == alignment.report().pairs
    z = latents["a"]
    np.testing.assert_array_equal(loaded.send(z, "a", "d"), alignment.send(z, "a", "d"))
    assert {p.name for p in (tmp_path / "deep" / "er").iterdir()} == {
        "alignment.json",
        "alignment.safetensors",
    }


class TestBadFiles:
    @pytest.fixture
    def saved(self, tmp_path):
        return sheafed.align(planted({"a": 3, "b": 3}), maps="procrustes").save(tmp_path)

    def edit(self, saved, **changes):
        path = saved / "alignment.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    def test_nothing_there(self, tmp_path):
        with pytest.raises(AlignmentFormatError, match="No such file"):
            sheafed.Alignment.load(tmp_path / "nowhere")

    def test_changed_tensors(self, saved):
        payload = bytearray((saved / "alignment.safetensors").read_bytes())
        payload[-1] ^= 1
        (saved / "alignment.safetensors").write_bytes(payload)
        with pytest.raises(AlignmentFormatError, match="changed"):
            sheafed.Alignment.load(saved)

    def test_other_version(self, saved):
        self.edit(saved, version=99)
        with pytest.raises(AlignmentFormatError, match="version 99"):
            sheafed.Alignment.load(saved)

    def test_malformed_document(self, saved):
        (saved / "alignment.json").write_text("{")
        with pytest.raises(AlignmentFormatError, match="cannot be read"):
            sheafed.Alignment.load(saved)

    def test_dimensions_that_do_not_fit_the_maps(self, saved):
        self.edit(saved, dims={"a": 3, "b": 2})
        with pytest.raises(AlignmentFormatError, match="no usable alignment"):
            sheafed.Alignment.load(saved)

    def test_pairs_that_do_not_fit_the_maps(self, tmp_path):
        saved = sheafed.align(planted({"a": 3, "b": 4})).save(tmp_path)
        pairs = json.loads((saved / "alignment.json").read_text())["pairs"]
        self.edit(saved, pairs=pairs[::-1])
        with pytest.raises(AlignmentFormatError, match="from 'b' to 'a' must be"):
            sheafed.Alignment.load(saved)

    @pytest.mark.parametrize(
        "key",
        ["mean", "whitener", "colourer", *(f"fingerprint/{p}" for p in ("mean", "variances"))],
    )
    def test_tensors_of_other_shapes_and_kinds(self, saved, key):
        path, name = saved / "alignment.safetensors", f"{key}/a"
        whole = safetensors.torch.load(path.read_bytes())
        spoilt = {
            "must have the shape": torch.ones(2, 7),
            "must be floating-point": torch.zeros(whole[name].shape, dtype=torch.int64),
            "non-finite": torch.full_like(whole[name], float("nan")),
        }
        for text, tensor in spoilt.items():
            payload = safetensors.torch.save({**whole, name: tensor})
            path.write_bytes(payload)
            self.edit(saved, sha256=hashlib.sha256(payload).hexdigest())
            with pytest.raises(AlignmentFormatError, match=f"no usable alignment: {key}.*{text}"):
                sheafed.Alignment.load(saved)

    def test_missing_agent(self, saved):
        self.edit(saved, dims={"a": 3, "b": 3, "c": 3})
        with pytest.raises(AlignmentFormatError, match="basis/c"):
            sheafed.Alignment.load(saved)


class TestBadInput:
    x = np.random.default_rng(7).standard_normal((40, 4))

    def test_too_few_pilots_are_named_with_their_edge(self):
        rng = np.random.default_rng(8)
        few = {"a": rng.standard_normal((6, 12)), "b": rng.standard_normal((6, 10))}
        with pytest.warns(UndeterminedMapWarning, match="b -> a on 5 of 10 dimensions") as caught:
            alignment = sheafed.align(few)
        assert len(caught) == 1
        assert alignment.report().edges[0].undetermined_dimension == 5

    def test_enough_pilots_give_no_warning(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            sheafed.align({"a": self.x, "b": self.x})

    @pytest.mark.parametrize(
        ("latents", "error", "text"),
        [
            ({"a": x}, EmptyInputError, "at least two"),
            ({"a": x, "b": x[:30]}, ShapeError, "'b': 30"),
            ({"a": x, "b": x.astype(int)}, DtypeError, "int64"),
            ({"a": x, "b": np.where(x > 2, np.nan, x)}, NonFiniteError, "'b'"),
            ({"a": x, "b": x[None]}, ShapeError, r"\(1, 40, 4\)"),
            ({"a": x, "b": x[0]}, ShapeError, r"\(4,\)"),
            ({"a": x[:3], "b": x[:3]}, EmptyInputError, "at least 4 pilots.* got 3"),
        ],
    )
    def test_latents(self, latents, error, text):
        with pytest.raises(error, match=text):
            sheafed.align(latents)

    @pytest.mark.parametrize(
        ("options", "error", "text"),
        [
            ({"whitening": "private"}, InputError, "no private"),
            ({"private": {"a": x}}, InputError, "go with"),
            ({"whitening": "pca"}, InputError, "'pca'"),
            ({"whitening": "private", "private": {"a": x}}, GraphError, r"\['a'\]"),
            (
                {"whitening": "private", "private": {"a": x, "b": x[:, :2]}},
                ShapeError,
                r"\(n, 4\)",
            ),
            ({"shrinkage": 2.0}, InputError, "2.0"),
            ({"shrinkage": "much"}, InputError, "'much'"),
            ({"maps": "spline"}, InputError, "'spline'"),
            ({"goal": "win"}, InputError, "'win'"),
            ({"graph": [("a", "c")]}, GraphError, "c"),
            ({"graph": nx.empty_graph(["a", "b"])}, DisconnectedGraphError, "a"),
        ],
    )
    def test_options(self, options, error, text):
        with pytest.raises(error, match=text):
            sheafed.align({"a": self.x, "b": self.x}, **options)

    @pytest.mark.parametrize("shrinkage", [0.0, 0.1, "auto"])
    def test_dead_units_are_warned_of(self, shrinkage):
        dead = self.x * [1, 1, 1, 0]
        with pytest.warns(UndeterminedMapWarning, match="b -> a on 1 of 4 dimensions"):
            sheafed.align({"a": self.x, "b": dead}, shrinkage=shrinkage)

    @pytest.mark.parametrize(
        "options", [{"shrinkage": 0.0}, {"shrinkage": 0.5}, {}, {"whitening": None}]
    )
    def test_an_encoder_that_is_constant_is_named(self, options):
        with pytest.raises(SingularCovarianceError, match=r"'b': .*none of its 3.*check the enc"):
            sheafed.align({"a": self.x, "b": np.full((40, 3), 0.1)}, **options)

    def test_sending(self):
        alignment = sheafed.align({"a": self.x, "b": self.x})
        with pytest.raises(UnknownAgentError, match=r"'c'.*'a', 'b'"):
            alignment.send(self.x, "a", "c")
        with pytest.raises(ShapeError, match="size 4"):
            alignment.send(self.x[:, :3], "a", "b")
        with pytest.raises(DtypeError, match="int64"):
            alignment.send(self.x.astype(int), "a", "b")


def test_lists_and_reversed_arrays_are_sent():
    latents = planted({"a": 4, "b": 6})
    alignment = sheafed.align(latents)
    z = latents["a"]
    expected = alignment.send(z, "a", "b")
    np.testing.assert_array_equal(alignment.send(z.tolist(), "a", "b"), expected)
    np.testing.assert_allclose(alignment.send(z[::-1], "a", "b"), expected[::-1])
    np.testing.assert_allclose(alignment.send(z[0].tolist(), "a", "b"), expected[0])
    with pytest.raises(DtypeError, match="array of numbers"):
        alignment.send([[1.0], [1.0, 2.0]], "a", "b")
    with pytest.raises(DtypeError, match="longdouble"):
        alignment.send(z.astype(np.longdouble), "a", "b")


def test_the_representation_is_a_line():
    alignment = sheafed.align(planted({"a": 4, "b": 6}))
    assert repr(alignment) == "Alignment({'a': 4, 'b': 6}, 2 maps, goal='read')"


def test_an_agent_needs_a_name():
    x = planted({"a": 4, "b": 6})
    for name in ("", 3):
        with pytest.raises(InputError, match=f"non-empty string, got {name!r}"):
            sheafed.align({"a": x["a"], name: x["b"]})


def test_single_numbers_are_told_how_to_be_pilots():
    with pytest.raises(ShapeError, match=r"\(K, d\), got \(30,\); .*reshape\(-1, 1\)"):
        sheafed.align({"a": np.arange(30.0), "b": np.ones((30, 2))})


def test_a_file_that_does_not_know_the_dimension_of_receivers_is_read(tmp_path):
    alignment = sheafed.align(planted({"a": 4, "b": 6}))
    document = alignment.save(tmp_path) / "alignment.json"
    content = json.loads(document.read_text())
    assert [pair.pop("d_receiver") for pair in content["pairs"]] == [6, 4]
    document.write_text(json.dumps(content))
    verdicts = [pair.verdict for pair in sheafed.Alignment.load(tmp_path).pairs]
    assert verdicts == [pair.verdict for pair in alignment.pairs]


def test_an_agent_that_joins_leaves_the_maps_of_the_others():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((60, 8))
    latents = {n: x @ rng.standard_normal((8, d)) for n, d in {"a": 5, "c": 6, "d": 4}.items()}
    before = sheafed.align(latents)
    after = sheafed.align(latents | {"b": x + rng.standard_normal((60, 8))})
    for pair, found in before.maps.items():
        for part, tensor in vars(found).items():
            assert torch.equal(tensor, getattr(after.maps[pair], part))
