"""What one message of 1 GiB from a neighbour with a valid certificate costs its receiver.

    python benchmarks/network_large_message.py

The sender is another process that obeys no limit. Prints the receiver's peak memory before and
after, and whether the next message on the same link still arrives.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sheafed.domain.messages import Message
from sheafed.exchange.certificates import make_certificates
from sheafed.exchange.codec import encode
from sheafed.exchange.credentials import credentials_in
from sheafed.exchange.network import MESSAGES, NetworkExchange
from sheafed.exchange.zenoh_settings import import_zenoh, key, open_session, settings
from sheafed.runtime.run import peak_memory

ENDPOINT = "tls/127.0.0.1:17447"


def attack(directory: Path, size: int) -> None:
    chosen = settings(
        "peer",
        listen=[],
        connect=[ENDPOINT],
        credentials=credentials_in(directory, "a"),
        access={"enabled": False},
        limit=1 << 30,
        lease=5,
    )
    block = import_zenoh().CongestionControl.BLOCK
    session = open_session(chosen)
    while not session.info.links():
        time.sleep(0.1)
    time.sleep(1)  # the receiver's subscription follows its link
    where = key("default", "a", "b", MESSAGES)
    session.put(where, bytes(size), congestion_control=block)
    session.put(where, encode(Message("small", 0, "a", "b")).data, congestion_control=block)
    time.sleep(5)
    session.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mebibytes", type=int, default=1024)
    parser.add_argument("--attack", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        attack(options.attack, options.mebibytes << 20)
        return
    with tempfile.TemporaryDirectory() as place:
        make_certificates(Path(place), ["a", "b"])
        own = credentials_in(Path(place), "b")
        exchange = NetworkExchange("b", ["a"], credentials=own, listen=[ENDPOINT])
        try:
            before = peak_memory()
            command = [sys.executable, __file__, "--attack", place]
            subprocess.run([*command, "--mebibytes", str(options.mebibytes)], check=True)
            print(f"peak memory {before >> 20} MiB, then {peak_memory() >> 20} MiB")
            print(f"arrived: {list(exchange.receive('b', 0, 'small', ['a']))}")
            print(f"dropped here: {dict(exchange.rejected)}")
        finally:
            exchange.close()


if __name__ == "__main__":
    main()
