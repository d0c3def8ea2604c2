"""The way of a latent: halves join to a link, links join to a path."""

import torch

from sheafed.sheaf import LatentLink


def matrix(seed: int, rows: int, columns: int) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).double()


def test_a_link_whitens_carries_and_colours_in_this_order() -> None:
    w, out, into, c = matrix(0, 5, 5), matrix(1, 5, 4), matrix(2, 4, 3), matrix(3, 3, 3)
    z = matrix(4, 7, 5)
    sending = LatentLink(whiten=lambda x: x @ w, stages=(lambda x: x @ out,))
    receiving = LatentLink(stages=(lambda x: x @ into,), colour=lambda x: x @ c)
    link = sending.then(receiving)
    torch.testing.assert_close(link(z), z @ w @ out @ into @ c)
    torch.testing.assert_close(link.carry(z), z @ out @ into)
    assert torch.equal(receiving(sending(z)), link(z))


def test_at_the_joint_of_two_links_nothing_is_coloured_or_whitened() -> None:
    def link(seed: int) -> LatentLink:
        w, v, c = (matrix(3 * seed + k, 4, 4) for k in range(3))
        return LatentLink(lambda x: x @ w, (lambda x: x @ v,), lambda x: x @ c)

    a, b, c = link(0), link(1), link(2)
    z = matrix(9, 6, 4)
    assert torch.equal(a.then(b).then(c)(z), a.then(b.then(c))(z))
    assert torch.equal(a.then(b)(z), b.colour(b.carry(a.carry(a.whiten(z)))))


def test_the_empty_link_changes_nothing() -> None:
    z = matrix(0, 2, 3)
    assert LatentLink()(z) is z
