"""The sentence above a report."""

from dataclasses import replace

import pytest

from sheafed.report.run_reader import RunDirectory
from sheafed.report.verdict import advice, verdict, worst_edge

DISTILLED = {"name": "sheaf-frl", "distillation": {"weight": 1.0}}
PLAIN = {"name": "sheaf-frl", "distillation": None}


def run(
    private=0.9,
    communication=0.8,
    oracle=0.85,
    *,
    method=PLAIN,
    metric="accuracy",
    pilots=500,
    **more,
):
    summary = {
        f"private_{metric}": private,
        f"communication_{metric}": communication,
        f"oracle_{metric}": oracle,
        "settings": {"method": method, "pilots": {"samples": pilots}},
        **more,
    }
    edges = [
        {"sender": "ada", "receiver": "bo", f"communication_{metric}": 0.9},
        {"sender": "bo", "receiver": "ada", f"communication_{metric}": 0.7},
        {"sender": "cy", "receiver": "ada", f"communication_{metric}": None},
    ]
    agents = {"ada": {"dimension": 64}, "bo": {"dimension": 16}}
    return RunDirectory("r", True, summary, [], agents, edges)


def test_the_whole_sentence():
    assert verdict(run()) == (
        "Communication reaches accuracy 0.800, 0.100 below private and 0.050 below the oracle "
        "encoder; the worst pair is bo → ada (0.700); latents lose on their way: try "
        "distillation, more pilots or more epochs."
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((0.9, 0.95, 0.9), "0.050 above private and 0.050 above the oracle encoder"),
        ((0.9, 0.9, None), "equal to private;"),
        ((None, 0.9, 0.9), "accuracy 0.900, equal to the oracle encoder;"),
        ((None, 0.9, float("nan")), "accuracy 0.900;"),
    ],
)
def test_the_references(values, said):
    assert said in verdict(run(*values))


def test_nothing_communicated():
    assert verdict(run(communication=None)) is None
    assert verdict(RunDirectory("r", False, {}, [], {}, [])) is None


def test_an_unfinished_run_has_no_worst_pair():
    unfinished = RunDirectory("r", False, run().summary, [], {}, [{"sender": "a", "receiver": "b"}])
    assert worst_edge(unfinished) is None
    assert "worst" not in verdict(unfinished)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"oracle": 0.9, "pilots": 40}, "latents lose on their way: try at least 64 pilots"),
        ({"oracle": 0.9, "method": DISTILLED}, "try more pilots or more epochs"),
        ({"oracle": 0.9, "method": {"name": "comfed"}}, "try Sheaf-FRL with distillation, more"),
        ({"oracle": 0.9, "method": {}}, "try more pilots or more epochs"),
        ({"oracle": 0.8}, "heads know their neighbours' data too little: try distillation, pilots"),
        ({"oracle": 0.8, "method": DISTILLED}, "too little: try pilots of all classes or"),
        ({"oracle": 0.81, "private": 0.81}, "nothing notable is lost on the edges"),
        ({"oracle": None, "private": None}, "what is lost on the way was not measured"),
        ({"oracle": None, "private": 0.8}, "not measured (it needs training.oracle = true"),
        ({"oracle": None}, "latents lose on their way or heads know their neighbours' data too"),
    ],
)
def test_what_to_try(given, said):
    assert said in advice(run(**given))


def by_pair(*pairs, private=0.9):
    """A run whose agents all have one private value, of the pairs (communication, oracle)."""
    found = run(private, *(sum(each) / len(pairs) for each in zip(*pairs, strict=True)))
    agents = {name: {"private_accuracy": private, "dimension": 8} for name in "abcd"}
    edges = [
        {"sender": s, "receiver": "d", "communication_accuracy": c, "oracle_accuracy": o}
        for s, (c, o) in zip("abc", pairs, strict=True)
    ]
    return replace(found, agents=agents, edges=edges)


def test_each_pair_is_judged_by_itself():
    """The means of the first run say that nothing is lost on the way."""
    lost, unknown, fine = (0.300, 0.617), (0.7, 0.7), (0.9, 0.6)
    assert advice(by_pair(lost, unknown, fine)) == (
        "latents lose on their way on 1 of 3 pairs, a → d (0.300, oracle encoder 0.617): try "
        "distillation, more pilots or more epochs; heads know their neighbours' data too little "
        "on 1 of 3 pairs, b → d (0.700, private 0.900): try distillation, pilots of all classes "
        "or more epochs"
    )
    twice = advice(by_pair(lost, (0.5, 0.6), fine))
    assert "on 2 of 3 pairs, most on a → d (0.300, oracle encoder 0.617)" in twice
    assert "heads" not in twice
    assert advice(by_pair(fine, fine, fine)) == "nothing notable is lost on the edges"
    # Every pair loses too little to be named, but all of them do.
    assert advice(by_pair(*[(0.86, 0.9)] * 3)).startswith("latents lose on their way: try")


def test_an_error_is_worse_where_it_is_greater():
    directions = {"metrics": {"mse": {"greater_is_better": False}}}
    regression = run(0.2, 0.5, 0.2, metric="mse", **directions)
    assert worst_edge(regression)["receiver"] == "bo"
    assert verdict(regression) == (
        "Communication reaches mse 0.500, 0.300 worse than private and 0.300 worse than the oracle "
        "encoder; the worst pair is ada → bo (0.900); latents lose on their way: try more pilots "
        "or more epochs."
    )
    better = run(0.5, 0.2, 0.5, metric="mse", **directions)
    assert advice(better) == "nothing notable is lost on the edges"
    assert "mse 0.200, 0.300 better than private" in verdict(better)


def test_other_metrics_are_judged_by_shares():
    directions = {"metrics": {"mse": {"greater_is_better": False}}}
    assert "nothing" in advice(run(100.0, 101.0, 100.0, metric="mse", **directions))
    assert "latents lose" in advice(run(1e-3, 1.1e-3, 1e-3, metric="mse", **directions))
