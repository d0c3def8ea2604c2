"""The paper's agents as data: tab:agent_zoo and tab:bottleneck_models."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import nn

from sheafed.errors import InputError
from sheafed.models.builders import cnn, head, linear, mlp

ENCODERS: dict[str, Callable[..., nn.Sequential]] = {"cnn": cnn, "mlp": mlp, "linear": linear}


@dataclass(frozen=True)
class AgentSpec:
    """The architecture of an agent, and its target classes C_i.

    `encoder` and `head` are the widths that `cnn` (or `mlp` or `linear`, by `kind`) and `head`
    take; dropout and batch norm hold for the hidden layers of both.

    >>> spec = AgentSpec(encoder=(32, 16), head=(24,), kind="mlp")
    >>> build_encoder(spec, inputs=(1, 8, 8))[-1]
    Linear(in_features=32, out_features=16, bias=True)
    >>> build_head(spec, classes=10)[-1]
    Linear(in_features=24, out_features=10, bias=True)
    """

    encoder: tuple[int, ...]
    head: tuple[int, ...]
    dropout: float = 0.0
    target_classes: tuple[int, ...] = ()
    kind: str = "cnn"
    batch_norm: bool = True

    def __post_init__(self) -> None:
        if self.kind not in ENCODERS:
            raise InputError(f"kind must be one of {', '.join(ENCODERS)}, got {self.kind!r}")
        if not self.encoder:
            raise InputError("encoder must have at least one width, got none")

    @property
    def latent(self) -> int:
        """The latent (stalk) size d_i."""
        return self.encoder[-1]


def build_encoder(spec: AgentSpec, inputs: Sequence[int]) -> nn.Sequential:
    """Build an agent's encoder for inputs of a shape; torch's global stream initialises it."""
    make = ENCODERS[spec.kind]
    return make(spec.encoder, inputs=inputs, dropout=spec.dropout, batch_norm=spec.batch_norm)


def build_head(spec: AgentSpec, classes: int) -> nn.Sequential:
    """Build an agent's head; torch's global stream initialises it."""
    return head(spec.latent, spec.head, classes, spec.dropout, spec.batch_norm)


AGENT_ZOO = (
    AgentSpec((32, 64, 128), (256, 128, 64), 0.30, (4, 5, 6, 7, 8)),
    AgentSpec((32, 64, 128, 224), (120,), 0.10, (0, 1, 2, 3, 4)),
    AgentSpec((16, 32, 64), (128,), 0.20, (0, 1, 2, 3, 4, 5)),
    AgentSpec((64, 128, 128), (256, 128), 0.25, (4, 5, 6, 7, 8, 9)),
    AgentSpec((32, 48, 96, 192), (192, 96), 0.30, (0, 1, 2, 7, 8, 9)),
    AgentSpec((24, 48, 96), (96,), 0.15, (2, 3, 4, 5, 6)),
    AgentSpec((32, 64, 128, 256), (256,), 0.40, (1, 2, 3, 4, 5, 6)),
    AgentSpec((24, 48, 96, 144), (64, 32), 0.10, (3, 4, 5, 6, 7)),
    AgentSpec((48, 96, 160), (160, 80), 0.20, (0, 2, 4, 6, 8)),
    AgentSpec((32, 80), (100,), 0.05, (5, 6, 7, 8, 9)),
    AgentSpec((40, 80, 120), (120, 60), 0.20, (1, 2, 3, 4, 5)),
    AgentSpec((48, 96, 192, 240), (256, 128), 0.20, (0, 1, 2, 8, 9)),
    AgentSpec((20, 40, 60, 80), (80,), 0.20, (3, 4, 5, 6, 7, 8)),
    AgentSpec((32, 64, 96), (192, 96), 0.25, (1, 4, 6, 8, 9)),
    AgentSpec((56, 112, 160), (128,), 0.10, (0, 1, 2, 3, 7)),
)
"""The fifteen agents of tab:agent_zoo: 3,411,690 parameters on MNIST."""

_PAIRS = {
    16: (((4, 8, 16), (8, 4)), ((8, 16), (8,))),
    32: (((8, 16, 32), (16, 8)), ((16, 32), (16,))),
    64: (((16, 32, 64), (32, 16)), ((32, 64), (32,))),
    128: (((32, 64, 128), (64, 32)), ((64, 128), (64,))),
    256: (((64, 128, 256), (128, 64)), ((128, 256), (128,))),
    512: (((64, 128, 256, 512), (128, 64)), ((64, 256, 512), (128, 64))),
}

BOTTLENECKS = tuple(_PAIRS)
"""The latent sizes d of tab:bottleneck_models."""


def bottleneck_pair(d: int) -> tuple[AgentSpec, AgentSpec]:
    """Return the two agents of tab:bottleneck_models whose encoders end at width d.

    >>> [spec.encoder for spec in bottleneck_pair(16)]
    [(4, 8, 16), (8, 16)]
    """
    if d not in _PAIRS:
        raise InputError(f"d must be one of {', '.join(map(str, BOTTLENECKS))}, got {d}")
    first, second = _PAIRS[d]
    return (
        AgentSpec(*first, dropout=0.3, target_classes=(4, 5, 6, 7, 8, 9)),
        AgentSpec(*second, dropout=0.1, target_classes=(0, 1, 2, 3, 4, 5)),
    )
