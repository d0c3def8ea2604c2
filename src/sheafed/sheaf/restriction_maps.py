"""Checks of restriction maps: one per edge, of the right shape, on its manifold."""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from torch import Tensor

from sheafed.errors import DtypeError, GraphError, ShapeError, UnknownAgentError
from sheafed.graphs import Edge
from sheafed.linalg.checks import check_matrix
from sheafed.linalg.procrustes import check_isometry


def check_maps(
    kind: str,
    maps: Mapping[Edge, Tensor],
    shapes: Mapping[Edge, tuple[int, int]],
    names: Collection[str],
) -> Mapping[Edge, Tensor]:
    """Return detached copies of the maps if there is one per edge, each on its manifold."""
    for head, tail in maps:
        unknown = sorted({head, tail} - set(names))
        if unknown:
            raise UnknownAgentError(
                f"a {kind} is given for edge ({head}, {tail}), but {unknown} are not among the "
                f"agents {list(names)}; check the spelling"
            )
        if Edge(tail, head) in shapes:
            raise GraphError(
                f"the {kind} of edge ({head}, {tail}) runs against the embedding orientation: the "
                "head is the larger stalk, among equals the name that sorts first; give it for "
                f"({tail}, {head}), keyed as in orient(graph, dims)"
            )
        if Edge(head, tail) not in shapes:
            raise GraphError(
                f"a {kind} is given for ({head}, {tail}), which is not an edge of the graph; "
                "remove it or add the edge"
            )
    missing = [tuple(edge) for edge in shapes if edge not in maps]
    if missing:
        raise GraphError(
            f"edges {missing} have no {kind}; give one for each edge of orient(graph, dims)"
        )
    copies = {}
    for edge, shape in shapes.items():
        what = f"the {kind} of edge ({edge.head}, {edge.tail})"
        if tuple(check_matrix(what, maps[edge]).shape) != shape:
            raise ShapeError(
                f"{what} must have shape {shape}, got {tuple(maps[edge].shape)}; its rows live in "
                "the stalk of the head"
            )
        copies[edge] = check_isometry(what, maps[edge].detach().clone())
    return MappingProxyType(copies)


def check_dtypes(maps: Mapping[Edge, Tensor], rotations: Mapping[Edge, Tensor]) -> None:
    """Raise unless the map and the rotation of every edge are of one precision."""
    for edge, v in maps.items():
        if rotations[edge].dtype != v.dtype:
            raise DtypeError(
                f"the map and the rotation of edge ({edge.head}, {edge.tail}) must have one dtype, "
                f"got {v.dtype} and {rotations[edge].dtype}; convert one"
            )
