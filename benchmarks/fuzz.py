"""Feed the readers of sheafed damaged inputs, and fail if one raises what it should not.

    python benchmarks/fuzz.py --cases 1000000                  # all targets, in a few minutes
    python benchmarks/fuzz.py --only configs --seed 3 --case 712   # one case again

The targets are the decoder of messages, the readers of checkpoints, alignments and configs, and the
command line. A case is a valid input with flipped bits, missing, repeated or spliced parts, other
lengths and other values; the checksums and lengths of half of them are made right again. Each must
be refused by the documented error, or accepted as a value that is written and read again the same.
Another exception, 60 s of time or 1 GiB of memory are faults. Cases are numbered; a fault is
printed with its number, and its input is kept.
"""

import argparse
import os
import random
import resource
import signal
import tempfile
import time
import traceback
from pathlib import Path

from fuzzing.targets import Target, all_targets

SHARES = {
    "messages": 0.92,
    "checkpoints": 0.05,
    "configs": 0.015,
    "alignments": 0.01,
    "command-lines": 0.005,
}
"""Of all cases: what is quick is tried more often."""
SECONDS, MEMORY = 60.0, 1 << 30
REPORTED = 20


class TooSlowError(Exception):
    """A case took too long."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=1_000_000, help="in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=SHARES, help="one target, with all cases")
    parser.add_argument("--case", type=int, help="only this case of the target")
    parser.add_argument("--faults", type=Path, default=Path("out/fuzz"), help="for their inputs")
    given = parser.parse_args()
    signal.signal(signal.SIGALRM, _too_slow)
    with tempfile.TemporaryDirectory() as directory:
        targets = all_targets(Path(directory))
        _limit_memory()
        faults = 0
        for name, share in SHARES.items():
            if given.only in (None, name):
                count = round(given.cases * (1.0 if given.only else share))
                cases = range(count) if given.case is None else [given.case]
                faults += fuzz(targets[name], given.seed, cases, given.faults)
    raise SystemExit(1 if faults else 0)


def fuzz(target: Target, seed: int, cases, directory: Path) -> int:
    """Try some cases of a target; return the number of faults."""
    accepted, found, slowest, began = 0, 0, 0.0, time.monotonic()
    for number in cases:
        data = target.case(random.Random(f"{seed} {target.name} {number}"))
        started = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            accepted += target.check(data)
        except Exception:  # noqa: BLE001, every other exception is what is looked for
            found += 1
            if found <= REPORTED:
                directory.mkdir(parents=True, exist_ok=True)
                (directory / f"{target.name}-{seed}-{number}").write_bytes(data)
                print(
                    f"{target.name}, case {number}:\n{traceback.format_exc(limit=-6)}", flush=True
                )
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        slowest = max(slowest, time.monotonic() - started)
    print(
        f"{target.name}: {len(cases)} cases, {accepted} accepted, "
        f"{len(cases) - accepted - found} refused, {found} faults, slowest {slowest:.2f} s, "
        f"{time.monotonic() - began:.0f} s",
        flush=True,
    )
    return found


def _too_slow(*_: object) -> None:
    raise TooSlowError(f"it took more than {SECONDS} s")


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    main()
