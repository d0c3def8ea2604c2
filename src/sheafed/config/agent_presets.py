"""Families of agents that a config can choose by name."""

from typing import Literal

from sheafed.models import AGENT_ZOO, AgentSpec, bottleneck_pair

FIVE = {
    "ada": AgentSpec((16, 32), (32,), 0.1, (4, 5, 6, 7, 8)),
    "bo": AgentSpec((96, 24), (32,), 0.1, (0, 1, 2, 3, 4), kind="mlp"),
    "cy": AgentSpec((12, 40), (32,), 0.1, (0, 1, 2, 7, 8, 9)),
    "dee": AgentSpec((64, 16), (32,), 0.1, (2, 3, 4, 5, 6), kind="mlp"),
    "eli": AgentSpec((8, 28), (32,), 0.1, (5, 6, 7, 8, 9)),
}
"""Small CNNs and MLPs for 8x8 digits."""


def family(name: Literal["five", "pair", "fifteen"], bottleneck: int) -> dict[str, AgentSpec]:
    """Return the agents of a family by name."""
    if name == "five":
        return FIVE
    # Names sort as strings, and sorted names break ties: agent-02 comes before agent-10.
    specs = bottleneck_pair(bottleneck) if name == "pair" else AGENT_ZOO
    return {f"agent-{number:02d}": spec for number, spec in enumerate(specs)}
