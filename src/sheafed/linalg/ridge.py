r"""Ridge regression between centred latents, from the SVD of the regressors.

With $X = U S V^\top$ the weights for penalty $\alpha$ are
$V \frac{S}{S^2 + \alpha} U^\top Y$. Here X is given as coordinates along $V$, so that
$X^\top X = S^2$ is diagonal and every function needs products only.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from sheafed.linalg.decompositions import svd


def ridge(x: Tensor, y: Tensor, penalty: float) -> Tensor:
    r"""Return $\arg\min_B \|Y - X B\|_F^2 + \alpha \|B\|_F^2$ for orthogonal columns of X.

    >>> ridge(torch.tensor([[2.0], [0.0]]), torch.tensor([[3.0], [1.0]]), penalty=2.0)
    tensor([[1.]])

    Args:
        x: `(n, r)`, with orthogonal columns that are not zero.
        y: `(n, q)`
        penalty: $\alpha$; 0 is least squares.
    """
    return (x.mT @ y) / (x.square().sum(0) + penalty)[:, None]


def leave_one_out_errors(x: Tensor, y: Tensor, penalties: Sequence[float]) -> list[float]:
    r"""Return the mean square error of ridge with an intercept, each row predicted from the others.

    Exact, without a refit: the residual of row i divided by $1 - h_i$ with the leverage
    $h_i = \frac1n + \sum_k u_{ik}^2 \frac{S_k^2}{S_k^2 + \alpha}$.

    Args:
        x: `(n, r)`, centred, with orthogonal columns that are not zero.
        y: `(n, q)`, centred.
        penalties: values of $\alpha$, each of which has an error.
    """
    entries = x.square()
    squares = entries.sum(0)
    cross = x.mT @ y
    errors = []
    for penalty in penalties:
        leverage = 1 / len(x) + entries @ (1 / (squares + penalty))
        residual = y - x @ (cross / (squares + penalty)[:, None])
        # Of an interpolated row nothing is left to divide.
        left = (1 - leverage).clamp_min(torch.finfo(x.dtype).eps)
        errors.append(float((residual / left[:, None]).square().mean()))
    return errors


def reduced_rank_ridge(x: Tensor, y: Tensor, penalty: float, rank: int) -> Tensor:
    r"""Return the minimiser of the ridge objective among weights of a rank.

    $B Q_k Q_k^\top$, where $Q_k$ are the leading right singular vectors of
    $(X^\top X + \alpha I)^{1/2} B$ (Mukherjee and Zhu, 2011).

    Args:
        x: `(n, r)`, with orthogonal columns that are not zero.
        y: `(n, q)`
        penalty: $\alpha$.
        rank: the most that the weights may have.
    """
    weights = ridge(x, y, penalty)
    roots = (x.square().sum(0) + penalty).sqrt()
    _, _, qt = svd(roots[:, None] * weights)
    leading = qt[:rank]
    return (weights @ leading.mT) @ leading
