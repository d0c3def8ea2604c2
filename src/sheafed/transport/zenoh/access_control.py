"""Which keys each certificate name may publish and read, as Zenoh's access control.

Keys are `sheafed/NETWORK/SENDER/RECEIVER/CHANNEL`, and `sheafed/NETWORK/NAME/alive/INSTANCE` for
the liveliness of a process of an agent. Every process enforces for itself, by the common name in
the certificate of the link, that a neighbour publishes under its own name only and reads only what
is addressed to it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any
from urllib.parse import quote

from sheafed.names import check_name, check_names

ALIVE = "alive"
ANY = None
"""Stands for any name in a key. It is no string, so that no name can be a wildcard."""
_TOKENS = ["liveliness_token"]
_WATCHES = ["declare_liveliness_subscriber", "liveliness_query"]


def key(network: str, *parts: str | None) -> str:
    """Return a key expression of names, with `ANY` for any name."""
    names = ("*" if part is ANY else quote(part, safe="") for part in parts)
    return "/".join(["sheafed", quote(network, safe=""), *names])


def agent_access(
    network: str, name: str, neighbours: Collection[str], relays: Collection[str] = ()
) -> dict[str, Any]:
    """Return what an agent accepts from, and sends to, each certificate name.

    A relay forwards for all neighbours: it is trusted to have checked their names.
    """
    check_names([name, *neighbours])
    check_names(relays, "relay")
    check_name(network, "network")
    rules, policies = [], []
    for j in neighbours:
        own = [
            _rule(f"messages from {j}", "ingress", ["put"], key(network, j, name, ANY)),
            _rule(f"messages to {j}", "egress", ["put"], key(network, name, j, ANY)),
            _rule(f"inbox of {j}", "ingress", ["declare_subscriber"], key(network, ANY, j, ANY)),
            _rule(f"token of {j}", "ingress", _TOKENS, key(network, j, ALIVE, ANY)),
            _rule(f"watch {j}", "egress", _WATCHES, key(network, j, ALIVE, ANY)),
        ]
        rules += own
        policies.append(_policy(own, [_agent(j), *map(_relay, relays)]))
    common = [
        _rule("own inbox", "egress", ["declare_subscriber"], key(network, ANY, name, ANY)),
        _rule("own token", "egress", _TOKENS, key(network, name, ALIVE, ANY)),
        _rule("watched", "ingress", _WATCHES, key(network, name, ALIVE, ANY)),
    ]
    policies.append(_policy(common, [*map(_agent, neighbours), *map(_relay, relays)]))
    subjects = [_subject(_agent(j), j) for j in neighbours]
    subjects += [_subject(_relay(relay), relay) for relay in relays]
    return _access([*rules, *common], subjects, policies)


def relay_access(network: str, names: Collection[str]) -> dict[str, Any]:
    """Return what a relay forwards: each agent sends under its own name and reads its own inbox."""
    check_names(names)
    check_name(network, "network")
    common = [
        _rule("tokens", "egress", _TOKENS, key(network, ANY, ALIVE, ANY)),
        _rule("watch", "ingress", _WATCHES, key(network, ANY, ALIVE, ANY)),
    ]
    rules, policies = list(common), []
    for name in names:
        inbox = key(network, ANY, name, ANY)
        own = [
            _rule(f"messages from {name}", "ingress", ["put"], key(network, name, ANY, ANY)),
            _rule(f"messages to {name}", "egress", ["put"], inbox),
            _rule(f"inbox of {name}", "ingress", ["declare_subscriber"], inbox),
            _rule(f"token of {name}", "ingress", _TOKENS, key(network, name, ALIVE, ANY)),
        ]
        rules += own
        policies.append(_policy([*own, *common], [_agent(name)]))
    subjects = [_subject(_agent(name), name) for name in names]
    return _access(rules, subjects, policies)


def _agent(name: str) -> str:
    return f"agent {name}"


def _relay(name: str) -> str:
    return f"relay {name}"


def _subject(identifier: str, common_name: str) -> dict[str, Any]:
    return {"id": identifier, "cert_common_names": [common_name]}


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
