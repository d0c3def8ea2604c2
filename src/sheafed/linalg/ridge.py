r"""Ridge regression between centred latents, from the SVD of the regressors.

With $X = U S V^\top$ the weights for penalty $\alpha$ are
$V \frac{S}{S^2 + \alpha} U^\top Y$. Here X is given as coordinates along $V$, so that
$X^\top X = S^2$ is diagonal and every function needs products only.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from sheafed.linalg.decompositions import eigh, svd

# Rounding must not raise a lower bound.
SLACK = 1 - 1e-9


def ridge(squares: Tensor, cross: Tensor, penalty: float) -> Tensor:
    r"""Return $\arg\min_B \|Y - X B\|_F^2 + \alpha \|B\|_F^2$ for orthogonal columns of X.

    >>> x, y = torch.tensor([[2.0], [0.0]]), torch.tensor([[3.0], [1.0]])
    >>> ridge(x.square().sum(0), x.mT @ y, penalty=2.0)
    tensor([[1.]])

    Args:
        squares: of the lengths of the columns of X, `(r,)`, none of them zero.
        cross: $X^\top Y$, `(r, q)`.
        penalty: $\alpha$; 0 is least squares.
    """
    return cross / (squares + penalty)[:, None]


def ranked_directions(squares: Tensor, cross: Tensor, penalty: float) -> Tensor:
    r"""Return the directions `(k, q)` of Y that ridge weights of lower rank keep, best first.

    With the k leading ones as rows of $Q_k^\top$, $B Q_k Q_k^\top$ minimises the ridge objective
    among weights of rank k. They are right singular vectors of $(X^\top X + \alpha I)^{1/2} B$
    (Mukherjee and Zhu, 2011).

    Args:
        squares: as for `ridge`, as are `cross` and `penalty`.
    """
    m = cross / (squares + penalty).sqrt()[:, None]
    if m.shape[0] < m.shape[1]:
        return svd(m)[2]
    # At half the price; directions whose order the squares lose carry nothing.
    return eigh(m.mT @ m)[1].mT.flip(0)


def best_penalty(x: Tensor, y: Tensor, penalties: Sequence[float]) -> tuple[float, float]:
    r"""Return the penalty of least leave-one-out error, the first if several have it; the error.

    The mean square error of ridge with an intercept, each row predicted from the others, is exact
    without a refit: the residual of row i is divided by $1 - h_i$ with the leverage
    $h_i = \frac1n + \sum_k u_{ik}^2 \frac{S_k^2}{S_k^2 + \alpha}$.

    Few errors are computed; a penalty is passed over if a lower bound of its error exceeds an error
    that was found. With $w_i = 1/(1-h_i)$ and residuals R, whose sum of squares needs no product
    of matrices, $\|\mathrm{diag}(w) R\| \ge \min_i w_i \|R\|$; and with residuals $R'$ of another
    penalty, $\|\mathrm{diag}(w) R\| \ge \|\mathrm{diag}(w) R'\| - \max_i w_i \|R - R'\|$.

    Args:
        x: `(n, r)`, centred, with orthogonal columns that are not zero.
        y: `(n, q)`, centred.
        penalties: values of $\alpha$.
    """
    entries, cross = x.square(), x.mT @ y
    squares = entries.sum(0)
    shares = torch.stack([squares / (squares + penalty) for penalty in penalties])
    # Of an interpolated row nothing is left to divide.
    left = 1 - 1 / len(x) - entries @ (shares / squares).mT
    weights = 1 / left.clamp_min(torch.finfo(x.dtype).eps)
    explained = cross.square().sum(1) / squares
    beside = max(0.0, float(y.square().sum()) * SLACK - float(explained.sum()))
    lengths = (beside + (1 - shares).square() @ explained).sqrt()
    # Generalised cross-validation guesses the best, which then rules out most others.
    order = torch.argsort(weights.mean(0) * lengths).tolist()
    bounds = weights.amin(0) * lengths
    best = (math.inf, 0)
    for number in order:
        if float(bounds[number]) * SLACK <= best[0]:
            found = ridge(squares, cross, penalties[number])
            rows = torch.linalg.vector_norm(torch.addmm(y, x, found, alpha=-1), dim=1)
            best = min(best, (float(torch.linalg.vector_norm(weights[:, number] * rows)), number))
            drift = ((shares - shares[number]).square() @ explained).sqrt()
            reached = torch.linalg.vector_norm(weights * rows[:, None], dim=0)
            bounds = torch.maximum(bounds, reached - weights.amax(0) * drift)
    return penalties[best[1]], best[0] ** 2 / y.numel()
