"""Agents that are reached through a relay, and agents that are linked to some directly too."""

import logging
import signal
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from sheafed.transport import encode
from sheafed.transport.zenoh.certificates import make_certificates
from sheafed.transport.zenoh.credentials import credentials_in
from sheafed.transport.zenoh.relay import open_relay
from sheafed.transport.zenoh.transport import MESSAGES, ZenohTransport
from tests.helpers.intruders import intruder, put
from tests.helpers.messages import message
from tests.helpers.zenoh_peers import await_that, free_endpoint, passed

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


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    make_certificates(directory, ["a", "b", "c", "d", "relay"])
    return directory


@pytest.mark.parametrize("b_listens", [False, True], ids=["dials", "listens"])
def test_a_relay_joins_those_who_dial_it_and_keeps_their_names_apart(
    certificates: Path, caplog: pytest.LogCaptureFixture, b_listens: bool
) -> None:
    """b has a through the relay and, if it listens, d directly."""
    caplog.set_level(logging.ERROR)
    where, direct = free_endpoint(), free_endpoint()
    own = {name: credentials_in(certificates, name) for name in ("a", "b", "c", "d", "relay")}
    relay = open_relay("abc", credentials=own["relay"], listen=[where])
    relayed = {"connect": [where], "relays": ["relay"]}
    links = {
        "a": ("b", relayed),
        "b": ("acd" if b_listens else "ac", relayed | {"listen": [direct] if b_listens else []}),
        "c": ("b", {"connect": [where]}),  # not told of the relay, so it hears nobody through it
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
        assert passed(peers, "a", "b")
        assert passed(peers, "b", "a")
        session = opened.enter_context(intruder(where, own["c"], mode="client"))
        await_that(lambda: bool(session.info.links()))
        put(session, "a", "b", encode(message(1, "a")).data, MESSAGES)
        put(session, "c", "b", encode(message(1, "c")).data, MESSAGES)
        await_that(lambda: peers["b"].arrivals["c"] == 1)  # under its own name it is heard
        assert passed(peers, "a", "b", 2)
        assert peers["b"].arrivals == {"a": 2, "c": 1}
        peers["b"].send([message(3, "b", "c")])
        assert passed(peers, "b", "a", 3)
        assert peers["c"].arrivals.total() == 0
        relay.close()
        await_that(lambda: not peers["b"].present & set("ac"))
        if b_listens:
            assert passed(peers, "b", "d", 4)
            assert passed(peers, "d", "b", 4)
        relay = open_relay("abc", credentials=own["relay"], listen=[where])
        await_that(lambda: "a" in peers["b"].present and "b" in peers["a"].present)
        assert passed(peers, "a", "b", 5)


def test_the_relay_of_the_command_line_carries_until_it_is_interrupted(
    certificates: Path, tmp_path: Path
) -> None:
    config, where = tmp_path / "config.toml", free_endpoint()
    config.write_text(CONFIG)
    own = {name: credentials_in(certificates, name) for name in ("a", "b", "relay")}
    shown = own["relay"]
    command = [sys.executable, "-m", "sheafed", "relay", str(config), "--listen", where]
    command += ["--cert", str(shown.certificate), "--key", str(shown.key)]
    command += ["--ca", str(shown.authority)]
    relayed = {"connect": [where], "relays": ["relay"]}
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as relay,
        ExitStack() as opened,
    ):
        opened.callback(relay.kill)
        peers = {
            name: opened.enter_context(
                closing(ZenohTransport(name, other, credentials=own[name], **relayed))
            )
            for name, other in ("ab", "ba")
        }
        assert relay.stdout is not None
        assert relay.stdout.readline() == f"carrying messages of a, b on {where}\n"
        await_that(lambda: peers["a"].present == {"b"} and peers["b"].present == {"a"})
        assert passed(peers, "a", "b")
        assert passed(peers, "b", "a")
        relay.send_signal(signal.SIGINT)
        assert relay.wait(30) == 0
