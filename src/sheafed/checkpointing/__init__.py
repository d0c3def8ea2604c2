"""Checkpoints and the files of a run directory."""

from typing import TYPE_CHECKING

from sheafed.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sheafed.checkpointing.checkpoint import load_checkpoint
else:
    __getattr__, __dir__ = lazy_exports(__name__)

__all__ = ["load_checkpoint"]
