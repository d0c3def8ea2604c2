"""What neighbours learn of an agent that opens its links anew, and in which order."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

from sheafed.methods.handshake import hello_messages
from sheafed.methods.node import NodeContext
from sheafed.network.identities import INSTANCE
from sheafed.network.neighbourhood import MET, RETURNS, Neighbourhood
from sheafed.transport import Message
from tests.helpers.federations import METHODS, agents, pilots


def test_an_agent_repeats_its_last_round_before_it_says_that_it_is_ahead() -> None:
    """A neighbour that has just opened its links anew may have lost that round.

    By the hello it learns that this agent is ahead, and no longer waits for it.
    """
    ada, bob = (
        METHODS["distillation"]().node(NodeContext(agent, (other,), pilots(), 7, 3, 4, False))
        for agent, other in zip(agents()[:2], ("bob", "ada"), strict=True)
    )
    said: list[Message] = []
    due = SimpleNamespace(now=False)
    transport = SimpleNamespace(
        instance="1",
        revoked=frozenset(),
        appearances=Counter(),
        renewal_due=lambda: due.now,
        renew=lambda: said.append(Message("renewed", 0, "ada", "ada")),
        instances=lambda neighbour: frozenset({"2"}),
        present=frozenset({"bob"}),
        announcements=lambda: {"bob": replace(next(hello_messages(bob)), fields=greeting)},
        announce=said.extend,
        send=said.extend,
    )
    greeting = {**next(hello_messages(bob)).fields, MET: True, INSTANCE: "2"}
    hood = Neighbourhood(ada, transport, 8)  # type: ignore[arg-type]
    hood.process_hellos()
    for round in (0, 1):
        hood.begin(round)
        hood.send([Message("round", round, "ada", "bob")])
    said.clear()
    due.now = True
    hood.process_hellos()
    renewed = [message.kind for message in said].index("renewed")
    before = [(m.kind, m.round, m.fields.get(RETURNS)) for m in said[:renewed]]
    assert before == [("round", 0, None), ("hello", 1, True)]
