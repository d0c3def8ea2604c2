"""Agents that are reached through a relay, also if they have direct links too."""

import logging
import signal
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from sheafed.transport import encode
from sheafed.transport.zenoh import Relay, ZenohTransport, credentials_in
from sheafed.transport.zenoh.transport import MESSAGES
from tests.helpers.intruders import intruder, publish
from tests.helpers.messages import message
from tests.helpers.preloaded_launcher import ForkedProcess
from tests.helpers.zenoh_peers import await_that, delivers, free_endpoint

CONFIG = """
[data]
name = "digits"

[[model.agents]]
name = "a"
widths = [8]

[[model.agents]]
name = "b"
widths = [8]
"""


@pytest.mark.parametrize("b_listens", [False, True], ids=["connects only", "listens"])
def test_a_relay_forwards_between_agents_and_checks_their_names(
    certificates: Path, caplog: pytest.LogCaptureFixture, b_listens: bool
) -> None:
    """b reaches a through the relay and, if it listens, d directly."""
    caplog.set_level(logging.ERROR)
    endpoint, direct = free_endpoint(), free_endpoint()
    own = {name: credentials_in(certificates, name) for name in ("a", "b", "c", "d", "relay")}
    relay = Relay("abc", credentials=own["relay"], listen=[endpoint])
    relayed = {"connect": [endpoint], "relays": ["relay"]}
    links = {
        "a": ("b", relayed),
        "b": ("acd" if b_listens else "ac", relayed | {"listen": [direct] if b_listens else []}),
        # It does not name the relay, so it accepts nothing through it.
        "c": ("b", {"connect": [endpoint]}),
    }
    if b_listens:
        links["d"] = ("b", {"connect": [direct]})
    with ExitStack() as opened:
        opened.callback(lambda: relay.close())  # whichever is open then
        peers = {
            name: opened.enter_context(
                closing(ZenohTransport(name, others, credentials=own[name], **options))
            )
            for name, (others, options) in links.items()
        }
        await_that(lambda: "a" in peers["b"].present and "b" in peers["a"].present)
        assert delivers(peers, "a", "b")
        assert delivers(peers, "b", "a")
        session = opened.enter_context(intruder(endpoint, own["c"], mode="client"))
        await_that(lambda: bool(session.info.links()))
        publish(session, "a", "b", encode(message(1, "a")).data, MESSAGES)
        publish(session, "c", "b", encode(message(1, "c")).data, MESSAGES)
        await_that(lambda: peers["b"].arrivals["c"] == 1)  # its own name is accepted
        assert delivers(peers, "a", "b", 2)
        assert peers["b"].arrivals == {"a": 2, "c": 1}
        peers["b"].send([message(3, "b", "c")])
        assert delivers(peers, "b", "a", 3)
        assert peers["c"].arrivals.total() == 0
        relay.close()
        await_that(lambda: not peers["b"].present & set("ac"))
        if b_listens:
            assert delivers(peers, "b", "d", 4)
            assert delivers(peers, "d", "b", 4)
        relay = Relay("abc", credentials=own["relay"], listen=[endpoint])
        await_that(lambda: "a" in peers["b"].present and "b" in peers["a"].present)
        assert delivers(peers, "a", "b", 5)


def test_the_relay_command_forwards_until_it_is_interrupted(
    certificates: Path, tmp_path: Path
) -> None:
    config, log, endpoint = tmp_path / "config.toml", tmp_path / "log", free_endpoint()
    config.write_text(CONFIG)
    log.touch()
    own = {name: credentials_in(certificates, name) for name in ("a", "b", "relay")}
    shown = own["relay"]
    command = [sys.executable, "-m", "sheafed", "relay", str(config), "--listen", endpoint]
    command += ["--cert", str(shown.certificate), "--key", str(shown.key)]
    command += ["--ca", str(shown.authority)]
    relayed = {"connect": [endpoint], "relays": ["relay"]}
    relay = ForkedProcess(command, log)
    with ExitStack() as opened:
        opened.callback(relay.kill)
        peers = {
            name: opened.enter_context(
                closing(ZenohTransport(name, other, credentials=own[name], **relayed))
            )
            for name, other in ("ab", "ba")
        }
        said = f"forwarding messages of a, b on {endpoint}\n"
        await_that(lambda: log.read_text() == said, seconds=120)
        await_that(lambda: peers["a"].present == {"b"} and peers["b"].present == {"a"})
        assert delivers(peers, "a", "b")
        assert delivers(peers, "b", "a")
        relay.send_signal(signal.SIGINT)
        assert relay.wait(30) == 0
