"""Which process of a cluster has which agents, printed when training begins."""

from sheafed.training import Callback, Cluster, Network


class PrintPlacement(Callback):
    def on_start(self, network: Network) -> None:
        if isinstance(network.group, Cluster):
            print("\n".join(network.group.describe()))
