"""Methods as tables, so that a file can say how a network was trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError

from sheafed.errors import InputError
from sheafed.methods.comfed import ComFed
from sheafed.methods.consensus_distillation import ConsensusDistillation
from sheafed.methods.fedmuscle import FedMuscle
from sheafed.methods.fedproto import FedProto
from sheafed.methods.node import Method
from sheafed.methods.noncooperative import NonCooperative
from sheafed.methods.sheaf_fmtl.method import SheafFMTL
from sheafed.methods.sheaf_frl.method import SheafFRL
from sheafed.options import tag_of

METHODS: tuple[type[Any], ...] = (
    *(SheafFRL, ConsensusDistillation, NonCooperative),
    *(FedProto, FedMuscle, SheafFMTL, ComFed),
)
"""Those that a table can name."""


def method_table(method: Method) -> dict[str, Any] | None:
    """Return the options of a method by their keys in a file.

    None for a method of the user's own, or with an option that only code can give.

    >>> table = method_table(SheafFRL(penalty=0.3))
    >>> table["name"], table["penalty"]
    ('sheaf-frl', 0.3)
    """
    if type(method) not in METHODS:
        return None
    try:
        table: dict[str, Any] = TypeAdapter(type(method)).dump_python(method, mode="json")
        return table if method_from_table(table) == method else None
    except (PydanticSerializationError, InputError):  # a policy or a weight of the user's own
        return None


def method_from_table(table: Mapping[str, Any]) -> Method:
    """Return the method whose table this is.

    >>> method_from_table({"name": "non-cooperative", "shrinkage": 0.9}).shrinkage
    0.9
    """
    known = {tag_of(kind): kind for kind in METHODS}
    if table.get("name") not in known:
        raise InputError(
            f"unknown method {table.get('name')!r}; this version knows {', '.join(known)}"
        )
    method: Method = known[table["name"]](**table)
    return method
