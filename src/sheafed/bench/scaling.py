"""Time and memory per agent against the size of the network, at constant degree."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from sheafed.bench.measurement import Measurement, interleaved, peak_bytes, ratios
from sheafed.bench.networks import ring_of_small_agents
from sheafed.methods import SheafFRL

SMALLEST = 15


def scaling(sizes: Sequence[int], repeats: int, least: int = 0) -> list[Measurement]:
    """Compare the time of a round per agent of larger networks with that of one of fifteen.

    Args:
        sizes: numbers of agents.
        repeats: rounds of each network.
        least: rounds times agents of each network, at least; more rounds are run if necessary.
    """
    smallest = ring_of_small_agents(SMALLEST, SheafFRL())
    smallest.step()
    before = _resident()  # once: the next, larger network reuses freed memory
    bytes_per_agent = {}
    found = []
    for count in sorted(set(sizes) - {SMALLEST}):
        gc.collect()
        network = ring_of_small_agents(count, SheafFRL())
        turns = max(1, count // SMALLEST)

        def small_rounds(turns: int = turns) -> None:
            for _ in range(turns):
                smallest.step()

        enough = max(repeats, least // count)
        seconds = interleaved({"large": network.step, "small": small_rounds}, enough)
        per_agent = {
            "large": median(seconds["large"]) / count,
            "small": median(seconds["small"]) / (turns * SMALLEST),
        }
        bytes_per_agent[count] = (_resident() - before) / count
        raw = {**seconds, "seconds per agent and round": per_agent}
        what = f"a round per agent, {count} agents over {SMALLEST}"
        per_round = turns * SMALLEST / count
        values = [per_round * value for value in ratios(seconds, "large", "small")]
        found.append(Measurement.of_turns(6, what, 1.2, values, raw=raw))
        del network
    if before and len(bytes_per_agent) > 1:
        few, *_, most = bytes_per_agent
        what = f"memory per agent, {most} agents over {few}"
        measured = bytes_per_agent[most] / bytes_per_agent[few]
        raw = {"bytes per agent": bytes_per_agent}
        found.append(Measurement(6, what, 1.2, measured, raw=raw))
    what = f"peak memory with {max(sizes)} agents"
    found.append(Measurement(6, what, 8.0, peak_bytes() / 2**30, unit="GiB"))
    return found


def _resident() -> int:
    """Return the resident memory of this process in bytes; 0 where /proc is missing."""
    status = Path("/proc/self/statm")
    return int(status.read_text(encoding="utf-8").split()[1]) * 4096 if status.exists() else 0
