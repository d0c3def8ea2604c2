"""What exists when many agents begin to train is not searched for garbage, until they end."""

import gc
import weakref

import pytest

from sheafed.training.garbage import MANY, existing_objects_kept


class Loop:
    """Refers to itself, so that only the collector can end it."""

    def __init__(self) -> None:
        self.itself = self


def test_many_agents_are_left_out_and_what_comes_later_is_not() -> None:
    before = Loop()
    old = weakref.ref(before)
    with existing_objects_kept(MANY):
        assert gc.get_freeze_count() > 0
        new = weakref.ref(Loop())
        del before
        gc.collect()
        assert new() is None
        assert old() is not None
    assert gc.get_freeze_count() == 0
    gc.collect()
    assert old() is None


def test_few_agents_change_nothing() -> None:
    with existing_objects_kept(MANY - 1):
        assert gc.get_freeze_count() == 0


def test_what_the_program_has_frozen_itself_stays_so() -> None:
    gc.freeze()
    try:
        with pytest.raises(KeyError), existing_objects_kept(MANY):
            raise KeyError
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()


def test_an_error_ends_it_too() -> None:
    with pytest.raises(KeyError), existing_objects_kept(MANY):
        raise KeyError
    assert gc.get_freeze_count() == 0
