import signal

import pytest

from sheafed.network.graceful_shutdown import GracefulShutdown, signals_blocked


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_calls_the_action_and_the_handlers_are_restored(number: int) -> None:
    before, called = signal.signal(number, signal.SIG_DFL), []
    try:
        with GracefulShutdown(lambda: called.append("first")) as shutdown:
            assert not shutdown.requested
            signal.raise_signal(number)
            shutdown.action = lambda: called.append("second")
            signal.raise_signal(number)
            assert shutdown.requested
        assert called == ["first", "second"]
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_a_blocked_signal_counts_later() -> None:
    called = []
    with signals_blocked():
        signal.raise_signal(signal.SIGTERM)
        with GracefulShutdown(lambda: called.append(1)) as shutdown:
            assert shutdown.requested
    assert called == [1]


def test_an_ignored_hang_up_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with GracefulShutdown(lambda: None) as shutdown:
            signal.raise_signal(signal.SIGHUP)
        assert not shutdown.requested
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
