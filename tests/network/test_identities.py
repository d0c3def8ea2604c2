"""Two processes with the certificate of one agent: their neighbour accepts one of them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from sheafed.errors import DuplicateAgentError
from sheafed.methods.node import NodeContext
from sheafed.network.neighbourhood import Neighbourhood
from sheafed.transport.zenoh import ZenohTransport, credentials_in
from tests.helpers.federations import METHODS, agents, pilots
from tests.helpers.zenoh_peers import await_that, free_endpoint

Open = Callable[..., Neighbourhood]


@pytest.fixture
def open_hood(certificates: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Join the network as ada or bob, as often as the test likes."""
    monkeypatch.setattr("sheafed.network.identities.MARGIN_SECONDS", 0.3)
    monkeypatch.setattr("sheafed.network.neighbourhood.REPEAT_SECONDS", 0.1)
    endpoint = free_endpoint()
    with ExitStack() as opened:

        def open_one(name: str, take_over: bool = False) -> Neighbourhood:
            other = {"ada": "bob", "bob": "ada"}[name]
            ends = {"listen": [endpoint]} if name == "bob" else {"connect": [endpoint]}
            own = credentials_in(certificates, name)
            transport = ZenohTransport(name, [other], credentials=own, lease=0.5, **ends)
            opened.enter_context(closing(transport))
            agent = next(agent for agent in agents() if agent.name == name)
            context = NodeContext(agent, (other,), pilots(), 7, 3, 4, False)
            return Neighbourhood(METHODS["distillation"]().node(context), transport, 8, take_over)

        yield open_one


def both_meet(*hoods: Neighbourhood) -> None:
    def met() -> bool:
        for hood in hoods:
            hood.process_hellos()
        return all(hood.met for hood in hoods)

    await_that(met)


def exchange_for_ever(*hoods: Neighbourhood) -> None:
    """Exchange hellos until one of the processes has to end."""

    def never() -> bool:
        for hood in hoods:
            hood.process_hellos()
        return False

    await_that(never, 10)


def test_a_second_process_is_refused_while_the_first_one_is_live(
    open_hood: Open, caplog: pytest.LogCaptureFixture
) -> None:
    bob, first = open_hood("bob"), open_hood("ada")
    both_meet(bob, first)
    second = open_hood("ada")
    with pytest.raises(
        DuplicateAgentError,
        match="another process named 'ada' is in the network, says its neighbour 'bob'; stop it",
    ):
        exchange_for_ever(bob, second)
    assert not second.met
    first.process_hellos()
    assert first.met
    refusal = "bob: another process named ada greets while the first one is live; refusing it"
    assert refusal in caplog.messages


def test_a_process_that_follows_a_dead_one_is_accepted(open_hood: Open) -> None:
    bob, first = open_hood("bob"), open_hood("ada")
    both_meet(bob, first)
    second = open_hood("ada")
    for hood in (second, bob, second):
        hood.process_hellos()
    assert not second.met
    first.transport.close()
    both_meet(bob, second)


def test_a_process_takes_over_and_the_earlier_one_ends_for_good(open_hood: Open) -> None:
    bob, first = open_hood("bob"), open_hood("ada", take_over=True)
    both_meet(bob, first)
    second = open_hood("ada", take_over=True)
    both_meet(bob, second)
    with pytest.raises(DuplicateAgentError, match="another process has taken over the name 'ada'"):
        exchange_for_ever(bob, second, first)
    first.met.clear()  # as if it did not listen
    first.send_hello(["bob"])
    with pytest.raises(DuplicateAgentError, match="another process named 'ada' is in the network"):
        exchange_for_ever(bob, second, first)
    assert second.met
