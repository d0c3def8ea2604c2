"""timm models as encoders."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from sheafed.errors import InputError, MissingDependencyError
from sheafed.models.adapters.images import ImageInputs


class TimmEncoder(nn.Module):
    """A timm model without its classifier.

    Freeze it with `Agent(frozen=True)`, or fine-tune it.

    Args:
        model: with or without a classifier, which is left out.
        prepare: a module from the agent's inputs to the model's; by default `ImageInputs` with the
            size, mean and deviation of the model's `pretrained_cfg`.
    """

    def __init__(self, model: nn.Module, prepare: nn.Module | None = None) -> None:
        super().__init__()
        missing = [m for m in ("forward_features", "forward_head") if not hasattr(model, m)]
        if missing:
            raise InputError(
                f"a {type(model).__name__} has no {' and no '.join(missing)}(), as timm models "
                "do; a module that gives latents (n, d) needs no adapter"
            )
        self.model = model
        self.prepare = prepare or _preparation(model)

    def forward(self, inputs: Tensor) -> Tensor:
        model: Any = self.model
        features: Tensor = model.forward_features(self.prepare(inputs))
        pooled: Tensor = model.forward_head(features, pre_logits=True)
        return pooled.flatten(1)


def load_timm(
    name: str, prepare: nn.Module | None = None, *, pretrained: bool = False, **options: Any
) -> TimmEncoder:
    """Create a timm model by its name.

    Args:
        name: as `timm.list_models()` has it.
        prepare: see `TimmEncoder`.
        pretrained: whether to download its weights; `checkpoint_path=...` reads them from a file
            instead.
        options: further options of `timm.create_model`. `in_chans` and `img_size` need `prepare`,
            since `pretrained_cfg` describes other inputs then.

    >>> encoder = load_timm("resnet10t", pretrained=True)  # doctest: +SKIP
    """
    changed = sorted({"in_chans", "img_size"} & set(options))
    if changed and prepare is None:
        raise InputError(
            f"the inputs of the model {name!r} with another {' and '.join(changed)} are unknown; "
            "give prepare=ImageInputs(size, mean, std), or nn.Identity() for inputs that fit"
        )
    try:
        import timm
    except ImportError as problem:
        raise MissingDependencyError(
            f"the model {name!r} needs timm, which is not installed; pip install "
            "'sheafed[pretrained]'"
        ) from problem
    model = timm.create_model(name, pretrained=pretrained, num_classes=0, **options)
    return TimmEncoder(model, prepare)


def _preparation(model: nn.Module) -> ImageInputs:
    known: dict[str, Any] = getattr(model, "pretrained_cfg", None) or {}
    missing = [key for key in ("input_size", "mean", "std") if key not in known]
    if missing:
        raise InputError(
            f"the pretrained_cfg of this {type(model).__name__} lacks {', '.join(missing)}; give "
            "prepare=ImageInputs(size, mean, std), or nn.Identity() for inputs that fit"
        )
    return ImageInputs(known["input_size"], known["mean"], known["std"])
