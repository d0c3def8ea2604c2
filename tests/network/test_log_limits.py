"""What a neighbour sends, and how often, must not fill the disk of the agent that logs it."""

import logging
import os
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sheafed.methods.handshake import hello_messages
from sheafed.methods.node import NodeContext
from sheafed.network.log_limits import (
    LOGGERS,
    MAX_LINE,
    MAX_LINES,
    PERIOD_SECONDS,
    LogLimit,
    limited_logs,
    output_into,
)
from sheafed.network.neighbourhood import Neighbourhood
from tests.helpers import warm_processes
from tests.helpers.federations import METHODS, agents, pilots
from tests.helpers.zenoh_peers import await_that

LIMIT = 20_000


def neighbourhood_of_ada(hello: SimpleNamespace) -> tuple[Neighbourhood, dict[str, str]]:
    """Return the neighbourhood of ada, to which bob greets with what `hello.latest` is."""
    ada, bob = (
        METHODS["distillation"]().node(NodeContext(agent, (other,), pilots(), 7, 3, 4, False))
        for agent, other in zip(agents()[:2], ("bob", "ada"), strict=True)
    )
    transport = SimpleNamespace(
        instance="1",
        revoked=frozenset(),
        appearances=Counter(),
        renewal_due=lambda: False,
        instances=lambda neighbour: frozenset({"2"}),
        present=frozenset({"bob"}),
        announcements=lambda: {"bob": hello.latest},
        announce=list,
        send=list,
    )
    hello.latest = next(hello_messages(bob))
    return Neighbourhood(ada, transport, 8), dict(bob.shared_settings())


def test_greetings_of_a_hostile_neighbour_are_logged_briefly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hello = SimpleNamespace()
    hood, shared = neighbourhood_of_ada(hello)
    valid, setting = hello.latest, next(iter(shared))
    with limited_logs():
        for k in range(300):  # each another reason, of 60,000 characters
            fields = {**valid.fields, setting: f"{k}" * 20_000}
            hello.latest = replace(valid, fields=fields)
            hood.process_hellos()
    assert f"do not agree on the {setting}" in caplog.text
    assert len(caplog.text) < 300 * MAX_LINES
    assert len(hood.refused["bob"]) < MAX_LINE


def test_too_many_lines_of_a_kind_are_counted_and_other_kinds_logged() -> None:
    now, limit = [0.0], LogLimit(lambda: now[0])
    passed: list[str] = []

    def log(text: str, *arguments: object) -> None:
        record = logging.LogRecord("x", logging.INFO, "", 0, text, arguments, None)
        if limit.filter(record):
            passed.append(record.getMessage())

    for k in range(3 * MAX_LINES):
        log("line %d", k)
    log("other %s", "x" * 10 * MAX_LINE)
    assert passed[:-1] == [f"line {k}" for k in range(MAX_LINES)]
    assert passed[-1] == "other " + "x" * (MAX_LINE - 6) + f"... ({10 * MAX_LINE + 6} characters)"
    now[0] += PERIOD_SECONDS
    log("line %d", 0)
    log("line %d", 1)
    assert passed[-2:] == [f"line 0 ({2 * MAX_LINES} similar lines left out)", "line 1"]


def test_limits_end_with_the_run() -> None:
    with limited_logs():
        assert all(logging.getLogger(name).filters for name in LOGGERS)
    assert not any(logging.getLogger(name).filters for name in LOGGERS)


def test_all_output_goes_into_a_file_of_bounded_size(tmp_path: Path) -> None:
    log = tmp_path / "ada" / "log.txt"
    process = warm_processes.start(_write_much, log)
    process.join(60)
    assert process.exitcode == 0
    assert log.read_text().endswith("the end\n")
    older = log.with_name("log.txt.1")
    assert "line 0" in older.read_text()
    assert older.stat().st_size > LIMIT
    assert log.stat().st_size < LIMIT


def _write_much(log: Path) -> None:
    import sheafed.network.log_limits as limits

    limits.CHECK_SECONDS = 0.01
    older = log.with_name("log.txt.1")
    with output_into(log, LIMIT):
        for k in range(LIMIT // 10):
            os.write(1 + k % 2, f"line {k} of a library\n".encode())  # as Zenoh writes
        await_that(lambda: older.exists() and log.stat().st_size == 0)
        print("the end")
        sys.stdout.flush()
