"""The end of a training that no longer improves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn

from sheafed.errors import InputError
from sheafed.training.callbacks.callback import Callback
from sheafed.training.history import Record
from sheafed.training.scores import metric_signs
from sheafed.training.summary import measured_keys

if TYPE_CHECKING:
    from sheafed.training.live_network import Network

MEASURED = ("validation_", "private_", "communication_", "oracle_")
"""How keys begin that are of the agents' metrics."""


class EarlyStopping(Callback):
    """End when a metric has not improved for some evaluations.

    Args:
        metric: a key of the records. Choose one on validation data. A greater validation score is
            always better: it is negative where the agents' metric is an error.
        patience: evaluations without improvement before training stops.
        margin: the smallest difference that counts as an improvement.
        smaller_is_better: as for a loss or the misalignment. By default as the agents' metric in
            the key has it: True for `validation_private_mse`; False for keys of no metric.
    """

    def __init__(
        self,
        metric: str = "validation_score",
        patience: int = 10,
        margin: float = 0.0,
        smaller_is_better: bool | None = None,
    ) -> None:
        if patience < 1:
            raise InputError(f"patience must be at least 1, got {patience}")
        self.metric, self.patience, self.margin = metric, patience, margin
        self.smaller_is_better = smaller_is_better
        self._checked = False

    def on_start(self, network: Network) -> None:
        self._checked = False

    def on_round(self, network: Network, log: Mapping[str, float]) -> None:
        """Find a misspelt key of a metric in the first round, before anything is written.

        Other keys may be a method's, which need not log them in every round.
        """
        if self._checked:
            return
        self._checked = True
        measured = measured_keys(network)
        misspelt = self.metric.startswith(MEASURED) or get_close_matches(
            self.metric, measured, cutoff=0.9
        )
        if misspelt and self.metric not in {*measured, *log}:
            self._refuse({*measured, *log})

    def on_evaluation(self, network: Network, record: Record) -> bool:
        """Judge by the whole history, so that an interrupted run decides alike.

        Earlier records without the metric, e.g. that of an agent's joining, count as none.
        """
        if record.get(self.metric) is None:
            self._refuse(record)
        sign = self._sign(network)
        found = [record.get(self.metric) for record in network.history.records]
        values = [sign * value for value in found if value is not None]
        best, since = float("-inf"), 0
        for value in values:
            if value > best + self.margin:
                best, since = value, 0
            else:
                since += 1
        return since >= self.patience

    def _refuse(self, known: Iterable[str]) -> NoReturn:
        raise InputError(
            f"cannot stop early by {self.metric!r}: the records hold {sorted(known)}; choose "
            "one of them, or give the agents validation data"
        )

    def _sign(self, network: Network) -> int:
        if self.smaller_is_better is not None:
            return -1 if self.smaller_is_better else 1
        _, _, metric = self.metric.removeprefix("validation_").partition("_")
        return metric_signs(network.metadata).get(metric.removesuffix("_degree_weighted"), 1)
