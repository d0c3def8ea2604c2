"""How many links Zenoh refuses, for want of a certificate that it trusts.

Zenoh tells only its log, which it writes to standard output; so that is read here, and passed on.
"""

from __future__ import annotations

import os
import sys
from threading import Thread

from sheafed.transport.zenoh.settings import import_zenoh

LEVEL = "zenoh_link_tls=warn"
"""What is logged unless RUST_LOG says otherwise."""
MARKS = (b"WARN", b"zenoh_link_tls")


class RefusedLinks:
    """Counts refused links while it is entered, by the log on this process's standard output."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> RefusedLinks:
        import_zenoh().init_log_from_env_or(LEVEL)
        sys.stdout.flush()
        self._outside = os.fdopen(os.dup(1), "wb")
        reading, writing = os.pipe()
        os.dup2(writing, 1)
        os.close(writing)
        self._thread = Thread(target=self._work, args=(reading,), name="log", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout.flush()
        os.dup2(self._outside.fileno(), 1)  # closes the pipe's last writing end, so the thread ends
        self._thread.join()
        self._outside.close()

    def _work(self, reading: int) -> None:
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                self.count += all(mark in line for mark in MARKS)
                self._outside.write(line)
                self._outside.flush()
