"""One benchmark in this process: `python -m sheafed.experiments.bench NAME QUICK AGENTS`."""

import json
import sys

import torch

from sheafed.experiments.bench import BENCHMARKS
from sheafed.runtime.allocator import keep_freed_memory

if __name__ == "__main__":
    name, quick, agents = sys.argv[1:]
    torch.set_num_threads(1)
    keep_freed_memory()
    counts = [int(count) for count in agents.split(",")]
    found = BENCHMARKS[name](quick == "quick", counts)
    print(json.dumps([measurement.as_dict() for measurement in found]))
