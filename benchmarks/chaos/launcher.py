"""Starts each agent on its own machine."""

from collections.abc import Sequence
from pathlib import Path

import networkx as nx

from chaos.machines import Machines
from sheafed.network.launcher import LocalLauncher


class MachineLauncher(LocalLauncher):
    """A `LocalLauncher` whose agents have the network, the disk and the clock of a machine."""

    def __init__(
        self,
        machines: Machines,
        config: Path,
        graph: nx.Graph,
        out: Path,
        options: Sequence[str],
    ) -> None:
        self._machines = machines
        super().__init__(str(config), graph, out, options)

    def _command(
        self, config: str, name: str, neighbours: Sequence[str], options: Sequence[str]
    ) -> list[str]:
        self.endpoints = {each: self._machines.endpoint(each) for each in self.endpoints}
        command = super()._command(config, name, neighbours, options)
        return self._machines.command(name, command)
