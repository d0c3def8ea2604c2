"""Ctrl-C: the round ends, the checkpoint holds it, and the message says how to go on."""

import os
import signal
import threading

import pytest

from sheafed.errors import Interrupted
from sheafed.training import Callback, train
from sheafed.training.interruption import Interruption
from tests.helpers.federations import EDGES, METHODS, agents, pilots, results

pytestmark = pytest.mark.usefixtures("default_ctrl_c")


def begin(out, *callbacks, **given):
    options = {"epochs": 2, "rounds_per_epoch": 4, "callbacks": callbacks, **given}
    return train(agents(), EDGES, METHODS["alone"](), pilots(), out=out, **options)


class PressCtrlC(Callback):
    """Ctrl-C, so many times, when a round has ended and is not yet evaluated."""

    def __init__(self, round, times=1):
        self.round, self.times = round, times

    def on_round(self, network, log):
        if network.history.rounds == self.round:
            for _ in range(self.times):
                os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("round", [3, 4])
def test_a_training_that_ctrl_c_ended_goes_on_to_the_same_bytes(tmp_path, capsys, round):
    with pytest.raises(Interrupted) as caught:
        begin(tmp_path / "parts", PressCtrlC(round))
    assert caught.value.checkpoint == round
    said = f"after round {round} of 8; {tmp_path / 'parts'} holds the checkpoint of round {round}; "
    assert f"{said}go on with resume=True" in str(caught.value)
    assert "Ctrl-C again ends at once" in capsys.readouterr().err
    begin(tmp_path / "parts", resume=True)
    begin(tmp_path / "whole")
    assert results(tmp_path / "parts") == results(tmp_path / "whole")


def test_a_second_ctrl_c_ends_at_once_and_says_what_is_saved(tmp_path):
    with pytest.raises(Interrupted, match="after round 3 of 8, before the first checkpoint"):
        begin(tmp_path, PressCtrlC(3, times=2))
    with pytest.raises(Interrupted, match=r"round 6 of 8; .* the checkpoint of round 4; go on"):
        begin(tmp_path, PressCtrlC(6, times=2), resume=True)


def test_without_a_directory_nothing_is_said_to_be_saved():
    with pytest.raises(Interrupted, match=r"nothing was saved.*out=") as caught:
        begin(None, PressCtrlC(2))
    assert caught.value.checkpoint is None


def test_the_handlers_of_others_stay():
    theirs, usual = lambda *_: None, signal.getsignal(signal.SIGINT)
    try:
        signal.signal(signal.SIGINT, theirs)
        with Interruption():
            assert signal.getsignal(signal.SIGINT) is theirs
    finally:
        signal.signal(signal.SIGINT, usual)
    with Interruption(enabled=False):
        assert signal.getsignal(signal.SIGINT) is usual


def test_a_thread_trains_without_handlers(tmp_path):
    thread = threading.Thread(target=begin, args=(tmp_path,))
    thread.start()
    thread.join()
    assert (tmp_path / "last.safetensors").exists()
