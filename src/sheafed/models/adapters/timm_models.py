"""Models of timm as encoders."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from sheafed.errors import InputError, MissingPartError
from sheafed.models.adapters.images import AsImages


class TimmEncoder(nn.Module):
    """A model of timm up to its classifier; images are prepared as it expects them.

    Freeze it with `Agent(frozen=True)`, or let it be fine-tuned.

    Args:
        model: with or without a classifier, which is left out.
        prepare: what makes its inputs of the agent's; by default `AsImages` with the size, mean
            and deviation that the model's `pretrained_cfg` names.
    """

    def __init__(self, model: nn.Module, prepare: nn.Module | None = None) -> None:
        super().__init__()
        missing = [m for m in ("forward_features", "forward_head") if not hasattr(model, m)]
        if missing:
            raise InputError(
                f"a {type(model).__name__} has no {' and no '.join(missing)}(), as models of timm "
                "do; a module that gives latents (n, d) needs no adapter"
            )
        self.model = model
        self.prepare = prepare or _preparation(model)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the pooled features `(n, d)` before the classifier."""
        model: Any = self.model
        features: Tensor = model.forward_features(self.prepare(inputs))
        pooled: Tensor = model.forward_head(features, pre_logits=True)
        return pooled.flatten(1)


def load_timm(
    name: str, prepare: nn.Module | None = None, *, pretrained: bool = False, **options: Any
) -> TimmEncoder:
    """Make a model of timm by its name.

    Args:
        name: as `timm.list_models()` has it.
        prepare: see `TimmEncoder`.
        pretrained: whether to download its weights. Weights in a file of yours are read by
            `checkpoint_path=...` instead.
        options: what else `timm.create_model` takes. With `in_chans` or `img_size` give `prepare`:
            the model does not say then what inputs it takes.
    """
    changed = sorted({"in_chans", "img_size"} & set(options))
    if changed and prepare is None:
        raise InputError(
            f"the model {name!r} with another {' and '.join(changed)} does not say what inputs it "
            "takes; give prepare=AsImages(size, mean, std), or nn.Identity() for inputs that fit"
        )
    try:
        import timm
    except ImportError as problem:
        raise MissingPartError(
            f"the model {name!r} needs timm, which is not installed; pip install "
            "'sheafed[pretrained]'"
        ) from problem
    model = timm.create_model(name, pretrained=pretrained, num_classes=0, **options)
    return TimmEncoder(model, prepare)


def _preparation(model: nn.Module) -> AsImages:
    known: dict[str, Any] = getattr(model, "pretrained_cfg", None) or {}
    missing = [key for key in ("input_size", "mean", "std") if key not in known]
    if missing:
        raise InputError(
            f"this {type(model).__name__} does not say its {', '.join(missing)} in pretrained_cfg; "
            "give prepare=AsImages(size, mean, std), or nn.Identity() for inputs that fit"
        )
    return AsImages(known["input_size"], known["mean"], known["std"])
