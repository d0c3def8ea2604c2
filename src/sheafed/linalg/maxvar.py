r"""Generalised canonical correlation (MAXVAR): what several agents' latents have in common.

Of white latents $X_i$ of pilots, where agent i has the rows $P_i$, the sections $G$ maximise
$\sum_i \|X_i^\top P_i G\|_F^2$ subject to $G^\top G = I$: they are the leading eigenvectors of
$\sum_i P_i^\top X_i X_i^\top P_i$. A missing row counts as the mean.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from sheafed.errors import EmptyInputError, ShapeError
from sheafed.linalg.decompositions import eigh
from sheafed.linalg.procrustes import rank_tolerance


def maxvar(blocks: Sequence[Tensor], present: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return the sections `(K, k)`, best first and of mean square 1, and eigenvalues `(k,)`.

    >>> x = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]], dtype=torch.float64)
    >>> everywhere = torch.ones(4, dtype=torch.bool)
    >>> sections, _ = maxvar([x, -3 * x], [everywhere, everywhere])
    >>> sections.abs().flatten().tolist()
    [1.0, 1.0, 1.0, 1.0]

    Args:
        blocks: for each agent its white latents `(n_i, r_i)` of the pilots that it has.
        present: for each agent which of the K pilots it has, n_i of them.
    """
    for block, rows in zip(blocks, present, strict=True):
        if len(block) != int(rows.sum()):
            raise ShapeError(
                f"a block must have a row for each pilot that is present, got {len(block)} rows "
                f"and {int(rows.sum())} pilots"
            )
    if not bool(torch.stack(list(present)).any(0).all()):
        raise EmptyInputError("some pilots are present nowhere; leave them out")
    stacked = torch.hstack(
        [
            torch.zeros(len(rows), block.shape[1], dtype=torch.float64).masked_scatter(
                rows[:, None], block
            )
            for block, rows in zip(blocks, present, strict=True)
        ]
    )
    wide = stacked.shape[0] <= stacked.shape[1]
    values, vectors = eigh(stacked @ stacked.mT if wide else stacked.mT @ stacked)
    values, vectors = values.flip(0), vectors.flip(1)
    # Squares lose half of the digits; sections beyond are rounding.
    kept = values > rank_tolerance(values, stacked.shape, torch.float64).sqrt() * values[:1].sqrt()
    sections = (vectors if wide else stacked @ vectors)[:, kept]
    return sections / sections.square().mean(0).sqrt(), values[kept]


def consensus(
    sections: Tensor, blocks: Sequence[Tensor], present: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the sections as agents see them on average, of mean square 1, and how they agree.

    Sections are too small in rows that few agents have; the average over those that have a row is
    not. Where all agents have all rows it changes nothing. Agreement `(k,)` is the intraclass
    correlation of what agents make of a row: 1 if they say the same, about 0 if a section is
    that of one agent, or of several in different rows.

    Args:
        sections: `(K, k)`, of `maxvar` with the same `blocks` and `present`.
    """
    seen = [
        block @ (block.mT @ sections[rows]) / len(block)
        for block, rows in zip(blocks, present, strict=True)
    ]
    mean, agreement = intraclass_correlation(seen, present)
    return mean / mean.square().mean(0).sqrt(), agreement


def intraclass_correlation(
    seen: Sequence[Tensor], present: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the mean `(K, k)` of what agents see, and how far they agree, `(k,)`.

    >>> one, both = torch.tensor([[1.0], [-1.0]]), torch.ones(2, dtype=torch.bool)
    >>> [intraclass_correlation([one, x], [both, both])[1].item() for x in (one, 0 * one, -one)]
    [1.0, 0.0, -1.0]

    Args:
        seen: for each agent what it sees of the pilots that it has, `(n_i, k)`.
        present: for each agent which of the K pilots these are.
    """
    total = torch.zeros(len(present[0]), seen[0].shape[1], dtype=seen[0].dtype)
    energy = torch.zeros_like(total)
    for view, rows in zip(seen, present, strict=True):
        total[rows] += view
        energy[rows] += view.square()
    counts = torch.stack(list(present)).sum(0)[:, None]
    others = torch.where(counts > 1, (total.square() - energy) / (counts - 1).clamp_min(1), 0.0)
    alike = torch.where(counts > 1, energy, 0.0).sum(0)
    agreement = torch.where(alike > 0, others.sum(0) / alike.clamp_min(1e-300), 0.0)
    return total / counts.clamp_min(1), agreement
