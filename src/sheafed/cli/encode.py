"""`sheafed encode`: latents of texts or images, in a file for `sheafed align`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sheafed.atomic_io import written_atomically
from sheafed.pretrained.sizes import MAX_TOKENS, RESOLUTION

if TYPE_CHECKING:
    from torch import Tensor


def encode(
    dataset: Annotated[str, typer.Argument(help="as in `sheafed data list`")],
    encoder: Annotated[str, typer.Option(help="as in `sheafed encoders list`")],
    out: Annotated[Path, typer.Option(help="the .npy file of latents (n, d) to write")],
    samples: Annotated[
        int | None,
        typer.Option(
            help="how many, the same for every encoder, stratified by class; all by default"
        ),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="the .npy file of labels (n,) to write")
    ] = None,
    max_tokens: Annotated[
        int, typer.Option(help="of a text; the rest of a longer one is cut off")
    ] = MAX_TOKENS,
    resolution: Annotated[
        int, typer.Option(help="to which an image is resized, in pixels")
    ] = RESOLUTION,
) -> None:
    """Encode samples with a pretrained encoder; what was encoded before comes from the cache."""
    from sheafed.datasets.loading import load
    from sheafed.datasets.stratified_subset import subset
    from sheafed.datasets.texts import TEXTS, TextDataset, load_texts
    from sheafed.pretrained.images.latents import encode_images
    from sheafed.pretrained.texts.latents import encode_texts

    data = load_texts(dataset, log=print) if dataset in TEXTS else load(dataset)
    chosen = subset(data.labels, len(data) if samples is None else samples)
    if isinstance(data, TextDataset):
        texts = [data.texts[k] for k in chosen.tolist()]
        latents = encode_texts(encoder, texts, max_tokens, log=print)
    else:
        latents = encode_images(encoder, data.inputs[chosen], resolution, log=print)
    _save(out, latents)
    print(f"wrote latents {tuple(latents.shape)} of {encoder} to {out}")
    if labels is not None:
        _save(labels, data.labels[chosen])
        print(f"wrote labels ({len(chosen)},) to {labels}")


def _save(path: Path, values: "Tensor") -> None:
    import numpy as np

    with written_atomically(path) as file:
        np.save(file, values.numpy(), allow_pickle=False)
