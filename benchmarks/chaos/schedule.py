"""Which fault strikes where and when: a pure function of a seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

KINDS = {
    "kill": 8,
    "freeze": 4,
    "cut": 4,
    "isolate": 3,
    "full disk": 3,
    "clock": 3,
    "renew": 3,
    "expire": 2,
    "authority": 1,
    "attack": 4,
}
"""The kinds of faults, and how often each strikes in proportion."""
CLOCK_JUMPS = (-400 * 86400, -3600, -60, 60, 3600, 400 * 86400)
"""Seconds; certificates are valid from an hour before they are made, for a year."""
ATTACKS = ("idle", "close", "garbage", "hello", "hold", "refused")
SETTLING = 5.0
"""Seconds between the end of an agent's fault and its next."""


@dataclass(frozen=True)
class Fault:
    """One fault, from `begin` for `seconds` of the soak."""

    kind: str
    begin: float
    seconds: float
    agents: tuple[str, ...]
    """One, the two ends of a link, or all."""
    detail: int | str = 0
    """The seconds of a clock's jump, or the kind of an attack."""

    @property
    def end(self) -> float:
        return self.begin + self.seconds


def schedule(
    names: Sequence[str],
    edges: Sequence[tuple[str, str]],
    *,
    seconds: float,
    every: float,
    longest: float,
    spared: Sequence[str],
    seed: int,
) -> list[Fault]:
    """Return the faults of a soak, in the order of their begin.

    Faults of different agents overlap. An agent has one at a time, beside cut links, attacks and
    renewals, which strike it whatever else it has.

    Args:
        names: of the agents.
        edges: their links.
        seconds: the last fault has ended by then.
        every: seconds between the begin of faults, on average.
        longest: of a fault, in seconds.
        spared: agents that are never killed, so that what grows over hours is seen.
        seed: of everything.
    """
    draw = random.Random(seed)
    busy: dict[str, float] = {}
    faults, now = [], 0.0
    kinds = _shuffled(draw)
    while (now := now + draw.uniform(0.5, 1.5) * every) < seconds:
        kind = next(kinds)
        length = min(draw.uniform(0.2, 1.0) * longest, seconds - now)
        detail: int | str = 0
        exclusive = True
        if kind == "cut":
            agents, exclusive = draw.choice(list(edges)), False
        elif kind in ("renew", "attack"):
            agents, exclusive = (draw.choice(list(names)),), False
            detail = draw.choice(ATTACKS) if kind == "attack" else 0
        elif kind == "authority":
            agents, exclusive = tuple(names), False
        else:
            free = [n for n in names if busy.get(n, 0.0) <= now]
            free = [n for n in free if kind != "kill" or n not in spared]
            if not free:
                continue
            agents = (draw.choice(free),)
            detail = draw.choice(CLOCK_JUMPS) if kind == "clock" else 0
        key = f"cut {sorted(agents)}" if kind == "cut" else agents[0]
        if kind == "cut" and busy.get(key, 0.0) > now:
            continue
        fault = Fault(kind, now, 0.0 if kind in ("renew", "authority") else length, agents, detail)
        if exclusive or kind == "cut":
            busy[key] = fault.end + SETTLING
        faults.append(fault)
    return faults


def _shuffled(draw: random.Random):
    """Yield the kinds without end, each in its proportion, so that even a short soak has most."""
    while True:
        kinds = [kind for kind, weight in KINDS.items() for _ in range(weight)]
        # One of each first: even a short soak has all of them.
        firsts = list(KINDS)
        draw.shuffle(firsts)
        for kind in firsts:
            kinds.remove(kind)
        draw.shuffle(kinds)
        yield from firsts
        yield from kinds
