"""The progress bar: where it is shown, and what it shows."""

import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from sheafed.methods import NonCooperative
from sheafed.training import Callback, Network, ProgressBar, train
from sheafed.training.callbacks import progress_bar
from sheafed.training.process_group import SingleProcess
from tests.helpers.federations import pilots, samples, simple_agent, start


def screen(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=150)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_it_shows_the_state_of_the_training(terminal: bool) -> None:
    console = screen(terminal=terminal)
    run = start("distillation", epochs=2, callbacks=[ProgressBar(console)])
    last = run.history.last
    assert last is not None
    for text in (
        "Sheaf-FRL with distillation",
        "epoch 2/2",
        f"private {last['private_accuracy']:.3f}",
        f"communicated {last['communication_accuracy']:.3f}",
        f"{run.history.ledger.bytes_sent() / 2**20:.1f} MiB",
    ):
        assert text in shown(console)


def test_what_is_not_measured_is_a_dash() -> None:
    console, agent = screen(terminal=False), simple_agent("a", data=samples(20, 0))
    train([agent], [], NonCooperative(), pilots(), epochs=1, callbacks=[ProgressBar(console)])
    assert "private - communicated -" in shown(console)


def test_it_goes_on_where_the_run_does(tmp_path: Path) -> None:
    start("alone", tmp_path, epochs=1)
    bar = ProgressBar(screen(terminal=False))
    start("alone", tmp_path, epochs=2, resume=True, callbacks=[bar])
    (task,) = bar._bar.tasks
    assert (task.completed, task.total) == (10, 10)


def test_it_is_put_away_after_an_error() -> None:
    class Fail(Callback):
        def on_round(self, run: Network, log: object) -> None:
            raise RuntimeError("failed")

    bar = ProgressBar(screen(terminal=True))
    with pytest.raises(RuntimeError, match="failed"):
        start("alone", epochs=1, callbacks=[bar, Fail()])
    assert not bar._bar.live.is_started


def test_files_and_pipes_get_none(capfd: pytest.CaptureFixture[str]) -> None:
    start("alone", epochs=1)
    assert capfd.readouterr() == ("", "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Terminal]:
    """Makes standard error a terminal; in the test, as pytest sets it anew after fixtures."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)

    def make() -> Terminal:
        monkeypatch.setattr(sys, "stderr", stream := Terminal())
        return stream

    return make


class Talk(Callback):
    def on_evaluation(self, run: Network, record: object) -> bool:
        print("evaluated")
        return False


def test_a_terminal_gets_one(
    terminal: Callable[[], Terminal], capsys: pytest.CaptureFixture[str]
) -> None:
    screen = terminal()
    start("alone", epochs=1, callbacks=[Talk()])
    assert "epoch 1/1" in screen.getvalue()
    assert capsys.readouterr().out == "evaluated\n"


def test_a_terminal_gets_none_on_request_and_never_two(terminal: Callable[[], Terminal]) -> None:
    screen = terminal()
    start("alone", epochs=1, progress=False)
    console = Console(file=io.StringIO())
    start("alone", epochs=1, callbacks=[ProgressBar(console)])
    assert screen.getvalue() == ""


def test_of_several_processes_only_the_first_shows_one(terminal: Callable[[], Terminal]) -> None:
    class Second(SingleProcess):
        rank = 1

    screen = terminal()
    start("alone", epochs=1, group=Second())
    assert screen.getvalue() == ""


def test_a_notebook_gets_a_line_below_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what IPython offers for it: `display` with an id, whose content is replaced."""
    contents: list[str] = []

    class Handle:
        def update(self, content: str) -> None:
            contents.append(content)

    def display(content: str, display_id: bool) -> Handle:
        assert display_id
        assert contents == []
        contents.append(content)
        return Handle()

    module: Any = ModuleType("IPython.display")
    module.HTML, module.display = str, display
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr(progress_bar, "NOTEBOOK_SECONDS", 0.0)
    start("alone", epochs=2)
    values = [int(re.findall(r'value="(\d+)" max="10"', content)[0]) for content in contents]
    assert values[0] == 0
    assert sorted(set(values)) == list(range(11))
    assert "epoch 2/2 private" in contents[-1]


def test_a_line_below_a_cell_is_escaped_and_tells_the_time_left() -> None:
    bar = ProgressBar(screen(terminal=False))._bar
    number = bar.add_task("<b>own</b>", total=10, completed=0, state="a & b")
    named = "&lt;b&gt;own&lt;/b&gt; · a &amp; b"
    assert progress_bar._as_html(bar.tasks[0]) == (
        f'<div><progress value="0" max="10"></progress> {named}</div>'
    )
    now = 0.0
    bar.get_time = bar.tasks[0]._get_time = lambda: now
    for done in range(1, 6):
        now = 2.0 * done
        bar.update(number, completed=done)
    assert progress_bar._as_html(bar.tasks[0]).endswith(f"{named} · 10 s left</div>")
