"""A network of agents under random faults for hours; in the end nothing is lost and nothing grows.

    python benchmarks/soak.py --hours 2 --out out/soak
    make soak                                                 # two minutes, as in `make test`

Each agent is a process on a machine of its own: a network namespace, a disk of a few MiB, a wall
clock (Linux; the namespaces end with the command). A seeded schedule kills agents (SIGKILL; they
are started again and resume), freezes them (SIGSTOP), cuts links and whole machines off, fills
disks, lets clocks jump, renews certificates, lets them expire, replaces the authority, and lets
strangers attack. Then all agents are stopped, and resumed without faults to the end.

Fails unless no agent ended by itself or logged a traceback, every record that was in a checkpoint
before a kill is there, no round went back, private and communication accuracy, each the mean of the
last ten evaluations, are within 2 points of an undisturbed training of the same seeds and rounds,
and memory, descriptors, logs and files
grow by no more than `chaos/trends.py` allows. OUT has `report.json`, `samples.csv`, `events.jsonl`,
`soak.png`, and what the agents wrote.
"""

import argparse
import os
from pathlib import Path

from chaos.namespaces import enter_namespaces, why_impossible
from chaos.plan import Plan


def parse() -> Plan:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--hours", type=float)
    length.add_argument("--minutes", type=float)
    parser.add_argument("--out", type=Path, default=Path("out/soak"), help="must not exist")
    parser.add_argument("--agents", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0, help="of the training and of the faults")
    parser.add_argument("--every", type=float, default=15.0, help="seconds between faults")
    parser.add_argument("--longest", type=float, default=40.0, help="fault, in seconds")
    parser.add_argument("--pause", type=float, default=0.25, help="seconds of every round")
    parser.add_argument("--sample-every", type=float, default=60.0, help="seconds")
    parser.add_argument(
        "--difference", type=float, default=0.02, help="of accuracies from undisturbed, at most"
    )
    parser.add_argument(
        "--if-possible",
        action="store_true",
        help="where machines cannot be made, say so and succeed, unless CI is set",
    )
    given = parser.parse_args()
    if given.if_possible and not os.environ.get("CI") and (reason := why_impossible()):
        print(f"no soak: {reason}")
        raise SystemExit(0)
    seconds = 3600 * given.hours if given.hours is not None else 60 * given.minutes
    return Plan(
        *(given.out.absolute(), seconds, given.agents, given.seed),
        *(given.every, given.longest, given.pause, given.sample_every, given.difference),
    )


def main() -> None:
    plan = parse()
    if plan.out.exists():
        raise SystemExit(f"{plan.out} exists already; choose another --out")
    enter_namespaces()
    from chaos.soaking import Soak

    report = Soak(plan).run()
    for line in report["problems"]:
        print(f"PROBLEM: {line}")
    raise SystemExit(1 if report["problems"] else 0)


if __name__ == "__main__":
    main()
