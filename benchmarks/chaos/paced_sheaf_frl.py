"""Sheaf-FRL with distillation whose rounds take time: a network that waits instead of computing."""

import time
from collections.abc import Iterator
from typing import Any

from sheafed import SheafFRL
from sheafed.methods import Node, NodeContext
from sheafed.methods.sheaf_frl.distillation import Distillation
from sheafed.transport import Message


class PacedSheafFRL:
    """The method with a pause before every round.

    Args:
        pause: in seconds.
        options: of `SheafFRL`.
    """

    label = "Sheaf-FRL with distillation, paced"

    def __init__(self, pause: float, **options: Any) -> None:
        self.pause, self._method = pause, SheafFRL(distillation=Distillation(), **options)

    def node(self, context: NodeContext) -> Node:
        node = self._method.node(context)
        send = node.send

        def paced(round: int) -> Iterator[Message]:
            time.sleep(self.pause)
            return send(round)

        node.send = paced
        return node
