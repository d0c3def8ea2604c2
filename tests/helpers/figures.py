"""Whether files are figures in which something is drawn."""

import matplotlib.image
import numpy as np


def assert_drawn(directory, name):
    pixels = matplotlib.image.imread(directory / f"{name}.png")[..., :3]
    assert min(pixels.shape[:2]) > 400
    assert pixels[0, 0].tolist() == [1, 1, 1]
    assert len(np.unique(np.round(pixels.reshape(-1, 3), 1), axis=0)) > 12
    content = (directory / f"{name}.pdf").read_bytes()
    assert content.startswith(b"%PDF-")
    assert content.rstrip().endswith(b"%%EOF")
    assert len(content) > 5000
