"""Groups of similar shared samples, for stratified and prototype pilots."""

import warnings

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor

from sheafed.errors import InputError, ShapeError
from sheafed.linalg.checks import check_int, check_matrix
from sheafed.seeds import derive


def kmeans(features: Tensor, clusters: int, seed: int) -> Tensor:
    """Return the k-means assignment `(M,)`, in 0..`clusters`-1, of `features` `(M, p)`.

    One agent computes it and broadcasts it once; all reuse it. It is reproducible on one machine,
    but machines that round differently may disagree on a sample between two clusters.

    >>> features = torch.tensor([[0.0], [0.1], [9.0], [9.1]])
    >>> a, b, c, d = kmeans(features, clusters=2, seed=0).tolist()
    >>> a == b, c == d, a == c
    (True, True, False)
    """
    check_matrix("features", features)
    if features.ndim != 2:
        raise ShapeError(f"features must have shape (M, p), got {tuple(features.shape)}; reshape")
    check_int("clusters", clusters, 1, len(features))
    random_state = derive(seed, "pilots", "clusters") % 2**32  # NumPy takes no larger seed
    from sklearn.cluster import KMeans  # here, as it takes a second to load
    from sklearn.exceptions import ConvergenceWarning

    estimator = KMeans(clusters, n_init=4, random_state=random_state)
    # Several threads would add their partial sums in the order in which they happen to finish.
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            assignment = estimator.fit_predict(features.detach().cpu().double().numpy())
        except ConvergenceWarning as warning:
            raise InputError(
                f"features have too few distinct rows for {clusters} clusters, ask for fewer: "
                f"{warning}"
            ) from warning
    return torch.from_numpy(assignment).long()
