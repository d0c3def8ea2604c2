"""A mailbox that keeps late messages for a while."""

from sheafed.transport import Mailbox, encode
from tests.helpers.messages import message, same_message


def box_with(*rounds: int, now: int = 5, staleness: int = 2) -> Mailbox:
    box = Mailbox("b", "ab", staleness=staleness)
    box.take(now, "latents", "a")
    for round in rounds:
        box.put(encode(message(round, seed=round)).data)
    return box


def test_the_newest_of_the_late_ones_is_taken_once() -> None:
    box = box_with(3, 4, 5)
    stale = box.take_stale("latents", "a")
    assert same_message(stale["a"], message(4, seed=4))
    assert box.take_stale("latents", "a") == {}
    assert same_message(box.take(5, "latents", "a")["a"], message(5, seed=5))
    assert not box.rejected


def test_beyond_the_bound_they_are_late() -> None:
    box = box_with(2, 3)
    assert box.rejected == {"late": 1}
    box.take(6, "latents", "a")
    assert box.take_stale("latents", "a") == {}
    assert box.rejected == {"late": 2}


def test_what_was_read_in_time_is_not_stale_when_replayed() -> None:
    box = box_with(5)
    assert box.take(5, "latents", "a")
    box.take(6, "latents", "a")
    box.put(encode(message(5, seed=5)).data)
    assert box.take_stale("latents", "a") == {}
    assert box.rejected == {"duplicate": 1}


def test_without_a_bound_nothing_is_kept() -> None:
    box = box_with(4, staleness=0)
    assert box.take_stale("latents", "a") == {}
    assert box.rejected == {"late": 1}


def test_a_message_must_come_from_who_has_proved_to_be_its_sender() -> None:
    box = Mailbox("b", "abc")
    box.put(encode(message(0)).data, sender="c")
    box.put(encode(message(0)).data, sender="a")
    assert box.rejected == {"sender": 1}
    assert list(box.take(0, "latents", "ac")) == ["a"]
