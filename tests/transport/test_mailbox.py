import logging
import threading

import pytest

from sheafed.transport import Mailbox, Message, encode
from tests.helpers.messages import message, same_message


def test_a_full_mailbox_drops_the_oldest_message_of_that_sender() -> None:
    box = Mailbox("b", "abc", capacity=2)
    for sender, round in [("c", 0), ("a", 3), ("a", 1), ("a", 2), ("a", 0)]:
        box.put(encode(message(round, sender=sender)).data)
    assert box.rejected == {"overflow": 2}
    assert list(box.take(0, "latents", "ac")) == ["c"]
    assert [list(box.take(round, "latents", "ac")) for round in (1, 2, 3)] == [[], ["a"], ["a"]]


def test_messages_over_the_size_limit_are_rejected() -> None:
    box = Mailbox("b", "ab", limit=100)
    box.put(bytes(101))
    assert box.rejected == {"size": 1}


def test_only_the_first_drop_for_a_reason_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    box = Mailbox("b", "ab")
    with caplog.at_level(logging.DEBUG, logger="sheafed.transport"):
        for data in (b"", b"", b"no message at all"):
            box.put(data)
    assert [record.levelname for record in caplog.records] == ["WARNING", "DEBUG", "WARNING"]


def test_a_log_line_of_a_hostile_message_is_short(caplog: pytest.LogCaptureFixture) -> None:
    box = Mailbox("b", "ab")
    for hostile in (
        Message("k", 0, "a", "x\n" * 20_000),
        Message("k", 0, "x\n" * 20_000, "b"),
    ):
        box.put(encode(hostile).data)
    assert len(caplog.records) == 2
    for record in caplog.records:
        assert len(record.getMessage()) < 300
        assert "\n" not in record.getMessage()


def test_threads_may_put_while_another_takes() -> None:
    box = Mailbox("b", [*"abcdefgh"], capacity=200)
    start = threading.Barrier(5)

    def work(sender: str) -> None:
        start.wait()
        for round in range(100):
            box.put(encode(message(round, sender=sender)).data)

    threads = [threading.Thread(target=work, args=(sender,)) for sender in "acde"]
    for thread in threads:
        thread.start()
    start.wait()
    early = sum(len(box.take(0, "latents", "acde")) for _ in range(50))
    for thread in threads:
        thread.join()
    late = sum(len(box.take(round, "latents", "acde")) for round in range(100))
    assert early + late == 400
    assert not box.rejected


# Late messages


def mailbox_in_round_5(*rounds: int, staleness: int = 2) -> Mailbox:
    box = Mailbox("b", "ab", staleness=staleness)
    box.take(5, "latents", "a")
    for round in rounds:
        box.put(encode(message(round, seed=round)).data)
    return box


def test_the_newest_late_message_is_taken_once() -> None:
    box = mailbox_in_round_5(3, 4, 5)
    stale = box.take_stale("latents", "a")
    assert same_message(stale["a"], message(4, seed=4))
    assert box.take_stale("latents", "a") == {}
    assert same_message(box.take(5, "latents", "a")["a"], message(5, seed=5))
    assert not box.rejected


def test_beyond_the_staleness_bound_messages_are_late() -> None:
    box = mailbox_in_round_5(2, 3)
    assert box.rejected == {"late": 1}
    box.take(6, "latents", "a")
    assert box.take_stale("latents", "a") == {}
    assert box.rejected == {"late": 2}


def test_a_replayed_message_is_not_stale() -> None:
    box = mailbox_in_round_5(5)
    assert box.take(5, "latents", "a")
    box.take(6, "latents", "a")
    box.put(encode(message(5, seed=5)).data)
    assert box.take_stale("latents", "a") == {}
    assert box.rejected == {"duplicate": 1}


def test_without_staleness_no_late_message_is_kept() -> None:
    box = mailbox_in_round_5(4, staleness=0)
    assert box.take_stale("latents", "a") == {}
    assert box.rejected == {"late": 1}


def test_the_sender_must_be_the_authenticated_one() -> None:
    box = Mailbox("b", "abc")
    box.put(encode(message(0)).data, sender="c")
    box.put(encode(message(0)).data, sender="a")
    assert box.rejected == {"sender": 1}
    assert list(box.take(0, "latents", "ac")) == ["a"]
