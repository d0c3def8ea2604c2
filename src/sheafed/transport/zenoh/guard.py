"""The guard of an agent's listeners, from the side of the agent, which starts and watches it.

What the guard does, and why, is said in `guard_process.py`.
"""

from __future__ import annotations

import json
import logging
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

from sheafed.errors import InputError, NetworkError
from sheafed.transport.zenoh import guard_process

LINKS_PER_PEER, SPARE_LINKS = 4, 16
"""For the bound on links at a time: a peer that returns has another link while the old one ends."""
RESTART_SECONDS = 1.0
LOGGED_FAILURES, LOG_SECONDS = 10, 60.0
"""So many more failed connections are logged, at most so often."""

logger = logging.getLogger("sheafed.transport")


class Guard:
    """Listens in the place of Zenoh, in a process of its own, until it is closed.

    Zenoh listens on `endpoints`, on loopback, and the guard connects to these. If its process ends,
    it is started again.

    Args:
        name: of the agent, for the log.
        listen: endpoints `tls/HOST:PORT`.
        max_links: the largest number of links at a time.
    """

    def __init__(self, name: str, listen: Sequence[str], max_links: int) -> None:
        self._name, self._listen = name, listen
        inner = [_loopback_address(), _loopback_address()]
        self.endpoints = [f"tls/{host}:{port}" for host, port in inner]
        self.failed: Counter[str] = Counter()
        """Connections that came to nothing, by address, of those that had the most."""
        self._settings = {
            "listen": [parse_endpoint(endpoint) for endpoint in listen],
            "unknown": inner[0],
            "known": inner[1],
            "max_links": max_links,
        }
        self._closed = Event()
        self._process: subprocess.Popen[str] | None = None
        self._next_logged, self._next_log = LOGGED_FAILURES, 0.0

    def start(self) -> None:
        """Listen; raise if that is not possible."""
        self._process = self._spawn()
        self._thread = Thread(target=self._watch, name="guard", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening and cut all links; may be repeated."""
        if self._process is not None and not self._closed.is_set():
            self._closed.set()
            _end(self._process)
            self._thread.join()

    def _spawn(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(guard_process.__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(self._settings) + "\n")
        process.stdin.flush()
        first = json.loads(process.stdout.readline() or '{"error": "its guard has ended"}')
        if "error" in first:
            _end(process)
            process.stdout.close()
            process.wait()
            raise NetworkError(
                f"{self._name!r} cannot listen on {list(self._listen)}: {first['error']}; check "
                "the addresses, and whether another process uses them"
            )
        return process

    def _watch(self) -> None:
        """Read what the process reports; start another one if it has ended."""
        while self._process is not None:
            before = Counter(self.failed)
            assert self._process.stdout is not None
            with self._process.stdout:
                for line in self._process.stdout:
                    self._note(before, json.loads(line))
            _end(self._process)
            self._process.wait()
            self._process = self._restarted()

    def _restarted(self) -> subprocess.Popen[str] | None:
        while not self._closed.wait(RESTART_SECONDS):
            try:
                process = self._spawn()
            except (NetworkError, OSError) as problem:
                logger.error(
                    "%s: the guard of its listeners does not start: %s", self._name, problem
                )
            else:
                logger.error("%s: the guard of its listeners had ended and is back", self._name)
                return process
        return None

    def _note(self, before: Counter[str], news: dict[str, dict[str, int]]) -> None:
        self.failed = before + Counter(news["failed"])
        total = self.failed.total()
        if total >= self._next_logged and time.monotonic() >= self._next_log:
            address, times = self.failed.most_common(1)[0]
            logger.warning(
                "%s: %d connections have come to nothing so far, %d of them from %s",
                *(self._name, total, times, address),
            )
            self._next_logged = total + LOGGED_FAILURES
            self._next_log = time.monotonic() + LOG_SECONDS


def parse_endpoint(endpoint: str) -> tuple[str, int]:
    """Return host and port of an endpoint to listen on.

    >>> parse_endpoint("tls/0.0.0.0:7447"), parse_endpoint("tls/[::]:7447")
    (('0.0.0.0', 7447), ('::', 7447))
    """
    protocol, _, address = endpoint.partition("/")
    host, _, port = address.rpartition(":")
    if protocol != "tls" or not host or not port.isdecimal() or int(port) > 65535:
        raise InputError(f"an endpoint to listen on is tls/HOST:PORT, got {endpoint!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    with suppress(OSError):  # it has ended already
        process.stdin.close()


def _loopback_address() -> tuple[str, int]:
    """Return a free address that no other process on this machine uses.

    On Linux, 127.0.0.0/8 is loopback: a random part of it cannot collide with the ports of others.
    """
    draw = random.SystemRandom()
    host = "127.0.0.1"
    if sys.platform == "linux":
        host = f"127.{draw.randint(1, 254)}.{draw.randint(1, 254)}.{draw.randint(1, 254)}"
    with socket.create_server((host, 0)) as probe:
        return host, probe.getsockname()[1]
