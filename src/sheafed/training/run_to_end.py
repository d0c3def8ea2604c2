"""From a prepared network to its results: rounds, callbacks, files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sheafed.checkpointing.run_directory import CHECKPOINT, LAST, METRICS
from sheafed.errors import RunExistsError
from sheafed.training.callbacks import Callback, MetricsLog, ProgressBar, Started, is_watched
from sheafed.training.history import Totals
from sheafed.training.interruption import Interruption, interrupted
from sheafed.training.network_file import write_results
from sheafed.training.post_hoc_maps import compare_whitenings
from sheafed.training.process_group import ProcessGroup
from sheafed.training.round_loop import Trainer
from sheafed.training.run_checkpoint import save
from sheafed.training.run_settings import run_conditions
from sheafed.transport import Barrier

if TYPE_CHECKING:
    from sheafed.training.live_network import Network


def run_to_end(
    network: Network,
    barrier: Barrier,
    *,
    callbacks: Sequence[Callback],
    progress: bool,
    oracle: bool,
    vectorize: bool = True,
    totals: Totals | None = None,
) -> None:
    """Take the rounds that the schedule has left, and write the results.

    Args:
        network: after the handshake, or restored. Only rank 0 of a cluster has callbacks.
        barrier: carries the messages.
        callbacks: beside the log of metrics.
        progress: show a progress bar where it is watched.
        oracle: also measure oracle accuracy.
        vectorize: compute the steps of agents of one structure at once.
        totals: the logs since the last evaluation, of a run that is resumed.
    """
    network.history.note_conditions(run_conditions(network, oracle, vectorize))
    observers: list[Callback] = []
    if network.group.rank == 0:
        log = [] if network.out is None else [MetricsLog(network.out / METRICS)]
        observers = [*log, *callbacks, *_progress_bar(callbacks, progress)]
    interruption = Interruption(enabled=network.group.single)
    trainer = Trainer(
        network,
        barrier,
        oracle=oracle,
        vectorize=vectorize,
        observers=observers,
        save=lambda totals: save(network, totals),
        totals=totals,
        interrupted=lambda: interruption.requested,
    )
    try:
        with interruption, Started(observers, network), network.training_context():
            trainer.run()
            _finish(network, barrier, oracle)
    except KeyboardInterrupt:
        raise interrupted(network.history, network.out, trainer.saved) from None


def check_new_directory(out: Path, group: ProcessGroup) -> None:
    """Raise if a directory holds a run already, more than the beginning of one."""
    files = [out / name for name in (CHECKPOINT, METRICS, LAST)]
    holds_run = any(file.exists() and file.stat().st_size > 0 for file in files)
    if any(group.gather(holds_run)):
        raise RunExistsError(
            f"{out} already holds a run; choose another directory, or go on with it by "
            "sheafed.train(..., resume=True)"
        )


def _progress_bar(callbacks: Sequence[Callback], progress: bool) -> list[Callback]:
    has_bar = any(isinstance(callback, ProgressBar) for callback in callbacks)
    return [ProgressBar()] if progress and not has_bar and is_watched() else []


def _finish(network: Network, barrier: Barrier, oracle: bool) -> None:
    """Measure what is measured once, and write network and summary."""
    history, group = network.history, network.group
    if history.evaluation is None:  # a run that was resumed after its end
        sent = history.ledger.state()
        history.evaluation = network.measure(barrier, "test", oracle)
        history.ledger.restore(sent)
    history.whitenings = compare_whitenings(network, barrier)
    if network.out is not None:
        write_results(network, network.out)
    group.gather(None)  # no process ends before everything is written
