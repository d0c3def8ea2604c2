"""Groups of real processes, forked where torch is loaded and warm: ranks.py, driven by its input.

A line of input is a job, `{"size", "out", "timeout", "stop": {rank: round}, "kill": ..., options}`;
a line of output is what became of its ranks: `[[exit code, message], ...]`. The ranks train the
world of `worlds.py`, agents in turn on the ranks there are.
"""

import json
import os
import signal
import sys
import tempfile
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch.distributed import FileStore
from worlds import METHODS, PEOPLE, agents, pilots

from sheafed.errors import SheafedError
from sheafed.exchange import Ranks
from sheafed.runtime import Callback, Cluster, Run, train


class Fate(Callback):
    """Lets this rank freeze or die after some rounds."""

    def __init__(self, signal_number: int, rounds: int) -> None:
        self.signal_number, self.rounds = signal_number, rounds

    def on_round(self, run: Run, log: object) -> None:
        if run.rounds == self.rounds:
            os.kill(os.getpid(), self.signal_number)
