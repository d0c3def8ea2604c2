from dataclasses import replace

import pytest

from sheafed.alignment import PairFit

FIT = PairFit(
    sender="paris",
    receiver="oslo",
    kind="ridge",
    strength={},
    pilots=100,
    residual=0.4,
    residual_spread=0.1,
    top1=0.5,
    reciprocal_rank=0.6,
    first_of_ten=0.9,
    neighbour_reciprocal_rank=0.3,
    fold_size=20,
)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [(0.97, "good"), (0.969, "usable"), (0.8, "usable"), (0.799, "poor"), (None, "undetermined")],
)
def test_the_verdict_is_a_word_for_how_often_the_right_of_ten_pilots_is_the_nearest(found, verdict):
    assert replace(FIT, first_of_ten=found).verdict == verdict


def test_fewer_than_ten_to_search_decide_nothing():
    assert replace(FIT, first_of_ten=1.0, fold_size=9).verdict == "undetermined"


def test_the_quality_is_that_of_the_goal():
    assert [FIT.quality(goal) for goal in ("read", "match", "search")] == [0.9, 0.6, 0.3]
