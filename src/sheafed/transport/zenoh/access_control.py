"""Which keys each certificate name may publish and read, as Zenoh's access control.

Keys are `sheafed/NETWORK/SENDER/RECEIVER/CHANNEL`, and `sheafed/NETWORK/NAME/alive` for the
liveliness of an agent. Every process enforces for itself, by the common name in the certificate of
the link, that a neighbour publishes under its own name only and reads only what is addressed to it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from urllib.parse import quote

ALIVE = "alive"
_TOKENS = ["liveliness_token"]
_WATCHES = ["declare_liveliness_subscriber", "liveliness_query"]


def key(network: str, *parts: str) -> str:
    """Return a key expression of names, which may contain anything; "*" and "**" are wildcards."""
    names = (part if part in ("*", "**") else quote(part, safe="") for part in parts)
    return "/".join(["sheafed", quote(network, safe=""), *names])


def agent_access(
    network: str, name: str, neighbours: Collection[str], relays: Collection[str] = ()
) -> dict[str, Any]:
    """Return what an agent accepts from, and sends to, each certificate name.

    A relay forwards for all neighbours: it is trusted to have checked their names.
    """
    rules, policies = [], []
    for j in neighbours:
        own = [
            _rule(f"messages from {j}", "ingress", ["put"], key(network, j, name, "*")),
            _rule(f"messages to {j}", "egress", ["put"], key(network, name, j, "*")),
            _rule(f"inbox of {j}", "ingress", ["declare_subscriber"], key(network, "*", j, "*")),
            _rule(f"token of {j}", "ingress", _TOKENS, key(network, j, ALIVE)),
            _rule(f"watch {j}", "egress", _WATCHES, key(network, j, ALIVE)),
        ]
        rules += own
        policies.append(_policy(own, [j, *map(_relay, relays)]))
    common = [
        _rule("own inbox", "egress", ["declare_subscriber"], key(network, "*", name, "*")),
        _rule("own token", "egress", _TOKENS, key(network, name, ALIVE)),
        _rule("watched", "ingress", _WATCHES, key(network, name, ALIVE)),
    ]
    policies.append(_policy(common, [*neighbours, *map(_relay, relays)]))
    subjects = [{"id": j, "cert_common_names": [j]} for j in neighbours]
    subjects += [{"id": _relay(relay), "cert_common_names": [relay]} for relay in relays]
    return _access([*rules, *common], subjects, policies)


def relay_access(network: str, names: Collection[str]) -> dict[str, Any]:
    """Return what a relay forwards: each agent sends under its own name and reads its own inbox."""
    common = [
        _rule("tokens", "egress", _TOKENS, key(network, "*", ALIVE)),
        _rule("watch", "ingress", _WATCHES, key(network, "*", ALIVE)),
    ]
    rules, policies = list(common), []
    for name in names:
        inbox = key(network, "*", name, "*")
        own = [
            _rule(f"messages from {name}", "ingress", ["put"], key(network, name, "*", "*")),
            _rule(f"messages to {name}", "egress", ["put"], inbox),
            _rule(f"inbox of {name}", "ingress", ["declare_subscriber"], inbox),
            _rule(f"token of {name}", "ingress", _TOKENS, key(network, name, ALIVE)),
        ]
        rules += own
        policies.append(_policy([*own, *common], [name]))
    subjects = [{"id": name, "cert_common_names": [name]} for name in names]
    return _access(rules, subjects, policies)


def _relay(name: str) -> str:
    return f"relay {name}"


def _rule(identifier: str, flow: str, messages: Sequence[str], expression: str) -> dict[str, Any]:
    return {
        "id": identifier,
        "permission": "allow",
        "flows": [flow],
        "messages": list(messages),
        "key_exprs": [expression],
    }


def _policy(rules: Sequence[dict[str, Any]], subjects: Sequence[str]) -> dict[str, Any]:
    return {"rules": [rule["id"] for rule in rules], "subjects": list(subjects)}


def _access(
    rules: list[dict[str, Any]], subjects: list[dict[str, Any]], policies: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": rules,
        "subjects": subjects,
        "policies": policies,
    }
