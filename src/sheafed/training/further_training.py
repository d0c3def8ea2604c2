"""Training a network on, from where it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sheafed.errors import InputError
from sheafed.training.arguments import as_count
from sheafed.training.callbacks import Callback
from sheafed.training.run_lock import run_lock
from sheafed.training.run_to_end import check_new_directory, run_to_end
from sheafed.transport import Barrier, LocalTransport

if TYPE_CHECKING:
    from sheafed.training.live_network import Network


def train_on(
    network: Network,
    *,
    epochs: int,
    out: str | Path | None,
    callbacks: Sequence[Callback],
    progress: bool,
    evaluate_every: int,
    checkpoint_every: int | None,
    oracle: bool,
    vectorize: bool,
) -> None:
    """Train a network for some more epochs; see `Network.train`."""
    epochs = as_count("epochs", epochs)
    evaluate_every = as_count("evaluate_every", evaluate_every)
    if checkpoint_every is not None:
        checkpoint_every = as_count("checkpoint_every", checkpoint_every)
    check_can_train(network)
    for name in network.nodes:
        network.pilots.of(name)  # raises if the network was loaded without pilots
    with run_lock(network.out if out is None else Path(out)):
        if out is not None:
            check_new_directory(Path(out), network.group)
            network.out = Path(out)
        history = network.history
        history.schedule = replace(
            history.schedule,
            epochs=history.epoch + epochs,
            evaluate_every=evaluate_every,
            checkpoint_every=checkpoint_every,
        )
        history.stopped = False
        transport = LocalTransport(list(network.nodes), ledger=history.ledger)
        barrier = Barrier(transport, network.new_transport)
        run_to_end(
            network,
            barrier,
            callbacks=callbacks,
            progress=progress,
            oracle=oracle,
            vectorize=vectorize,
        )


def check_can_train(network: Network) -> None:
    """Raise if agents of a loaded network have other data or settings than they had in the run."""
    if network.difference is not None:
        raise InputError(
            f"this network cannot train on as the run would have: {network.difference}; load it "
            "with agents as the run had them, or start a new training from their weights, "
            "sheafed.train(network.agents.values(), network.graph, ...)"
        )
