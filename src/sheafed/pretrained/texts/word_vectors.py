"""The mean of word vectors."""

from torch import Tensor

from sheafed.models.pooling import masked_mean
from sheafed.pretrained.texts.text_encoder import Forward


def mean_of_vectors(table: Tensor) -> Forward:
    """Return a function from token ids to the mean of their rows of a table `(words, d)`.

    A text without any token has the latent 0.
    """
    vectors = table.float()
    return lambda ids, mask: masked_mean(vectors[ids], mask)
