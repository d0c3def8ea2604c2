"""A machine per agent: a network namespace with its own address, a small disk and a clock.

They need the namespaces of `chaos.namespaces`.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sheafed.atomic_io import file_name

PORT = 7447
STRANGERS = "10.78.0.254"
"""The address that strangers come from."""
CLOCK_SOURCE = Path(__file__).parent / "clock.c"
FILLER = "filler"


class Machines:
    """One machine per agent, all on one bridge.

    Args:
        names: of the agents.
        out: where each machine's disk is mounted, as `out/NAME`.
        work: for clocks and what they need; not on any of these disks.
        disk_bytes: the size of each disk.
    """

    def __init__(self, names: Sequence[str], out: Path, work: Path, disk_bytes: int) -> None:
        self.addresses = {name: f"10.78.0.{k + 1}" for k, name in enumerate(names)}
        self._out, self._work = out, work
        self._library = work / "clock.so"
        _run("cc", "-O2", "-shared", "-fPIC", "-o", self._library, CLOCK_SOURCE, "-ldl")
        _run("mount", "-t", "tmpfs", "tmpfs", "/run")  # where `ip` keeps the names of namespaces
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "agents", "type", "bridge")
        _run("ip", "address", "add", f"{STRANGERS}/24", "dev", "agents")
        _run("ip", "link", "set", "agents", "up")
        for name, address in self.addresses.items():
            _run("ip", "netns", "add", name)
            link = _link(address)
            _run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
            _run("ip", "link", "set", link, "master", "agents", "up")
            _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _run("ip", "-n", name, "link", "set", device, "up")
            disk = self.disk(name)
            disk.mkdir(parents=True)
            _run("mount", "-t", "tmpfs", "-o", f"size={disk_bytes},mode=700", "tmpfs", disk)
            self.set_clock(name, 0)

    def endpoint(self, name: str) -> str:
        return f"tls/{self.addresses[name]}:{PORT}"

    def disk(self, name: str) -> Path:
        return self._out / file_name(name)

    def command(self, name: str, command: Sequence[str]) -> list[str]:
        """Return the command that runs another one on a machine, with its network and clock."""
        clock = [f"LD_PRELOAD={self._library}", f"CHAOS_CLOCK={self._clock(name)}"]
        return ["ip", "netns", "exec", name, "env", *clock, *command]

    def cut(self, one: str, other: str, *, restore: bool = False) -> None:
        """Drop all packets between two machines, without a word to either."""
        for here, there in ((one, other), (other, one)):
            how = "del" if restore else "add"
            _run("ip", "-n", here, "route", how, "blackhole", f"{self.addresses[there]}/32")

    def isolate(self, name: str, *, restore: bool = False) -> None:
        """Pull the plug of a machine's network."""
        _run("ip", "link", "set", _link(self.addresses[name]), "up" if restore else "down")

    def fill_disk(self, name: str) -> None:
        """Fill a disk to the last byte."""
        try:
            with (self.disk(name) / FILLER).open("ab", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass
        except OSError:
            return

    def free_disk(self, name: str) -> None:
        (self.disk(name) / FILLER).unlink(missing_ok=True)

    def set_clock(self, name: str, offset: int) -> None:
        """Let the wall clock of a machine differ from the true one by so many seconds."""
        clock = self._clock(name)
        with clock.open("r+b" if clock.exists() else "w+b") as file:  # mapped by its processes
            file.write(offset.to_bytes(8, sys.byteorder, signed=True))

    def _clock(self, name: str) -> Path:
        return self._work / f"{file_name(name)}.clock"


def _link(address: str) -> str:
    return f"agent{address.rpartition('.')[2]}"


def _run(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
