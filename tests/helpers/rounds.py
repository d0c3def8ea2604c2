"""Rounds of nodes in one process, on a transport that the test can look into."""

from collections.abc import Mapping

from sheafed.evaluation import evaluate_locally
from sheafed.methods.node import Node
from sheafed.training import single_round as rounds
from sheafed.transport import Barrier, Transport


def handshake(nodes: Mapping[str, Node], transport: Transport) -> None:
    rounds.handshake(nodes, Barrier(transport))


def one_round(nodes: Mapping[str, Node], transport: Transport, round: int) -> dict[str, float]:
    """Take a round; return what the agents log, averaged."""
    return rounds.average(rounds.run_round(nodes, Barrier(transport), round))


def misalignments(nodes: Mapping[str, Node]) -> dict[tuple[str, str], float]:
    return evaluate_locally(nodes, oracle=False).misalignment
