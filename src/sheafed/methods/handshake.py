"""The handshake: before the first round neighbours compare settings and announce their sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from reprlib import repr as short

from sheafed.errors import HandshakeError
from sheafed.methods.node import HELLO, Node
from sheafed.transport.message import Message

LARGEST_SIZE = 2**40
BOUNDS = {"dimension": (1, 2**16)}
"""Of announced sizes, where they are not 0 and `LARGEST_SIZE`: a map of a neighbour's dimension is
allocated before its first latent arrives."""
ADVICE = {
    "latent precision": "all agents of a network compute in one precision, float32 by "
    "encoder.float() and head.float() or float64 by .double(), and have one quantisation"
}
"""What to do about settings that follow from the agents, where neighbours differ in them."""


def hello_messages(node: Node) -> Iterator[Message]:
    return (hello_message(node, neighbour) for neighbour in node.neighbours)


def hello_message(node: Node, receiver: str) -> Message:
    """Return the hello to an agent that is, or is about to be, a neighbour."""
    fields = {
        **node.shared_settings(),
        **node.announced_sizes(),
        **label_set(node.agent.classes),
    }
    return Message(HELLO, 0, node.name, receiver, fields=fields)


def finish_handshake(node: Node, inbox: Mapping[str, Message]) -> None:
    """Check the hellos of all neighbours and prepare the edges to them."""
    missing = sorted(set(node.neighbours) - set(inbox))
    if missing:
        raise HandshakeError(
            f"agent {node.name!r} got no hello from its neighbours {missing}; start them, or "
            "remove them from the graph"
        )
    for neighbour, hello in inbox.items():
        node.peers[neighbour] = check_hello(node, hello)
    node.prepare()


def check_hello(node: Node, hello: Message) -> dict[str, int]:
    """Return the sizes that a neighbour announces; raise `HandshakeError` if settings differ."""
    labels = label_set(node.agent.classes)
    for what, mine in {**node.shared_settings(), **labels}.items():
        theirs = hello.fields.get(what)
        if theirs != mine and not (theirs is None and what in labels):
            raise HandshakeError(
                f"agents {node.name!r} and {hello.sender!r} do not agree on the {what}: "
                f"{mine!r} against {short(theirs)}; "
                f"{ADVICE.get(what, 'give both the same configuration')}"
            )
    optional = node.optional_sizes
    needed = [what for what in node.announced_sizes() if what not in optional]
    announced = [what for what in optional if what in hello.fields]
    return {what: _announced_size(hello, what) for what in (*needed, *announced)}


def _announced_size(hello: Message, what: str) -> int:
    value = hello.fields.get(what)
    low, high = BOUNDS.get(what, (0, LARGEST_SIZE))
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise HandshakeError(
            f"agent {hello.sender!r} announces {short(value)} as its {what}, expected an integer "
            f"from {low} to {high}"
        )
    return value


def label_set(classes: Sequence[str] | None) -> dict[str, str]:
    """Return a digest of the classes in their order, if they are known."""
    if classes is None:
        return {}
    content = blake2b(digest_size=16)
    for name in classes:
        content.update(f"{len(name)}:{name}".encode())
    return {"label set": content.hexdigest()}
