"""How Zenoh is set up: explicit endpoints, mutual TLS, and who may say what to whom.

Keys are `sheafed/NETWORK/SENDER/RECEIVER/CHANNEL`, and `sheafed/NETWORK/NAME/alive` for the
liveliness of an agent. Every process enforces for itself, by the name in the certificate of the
link, that a neighbour publishes under its own name and hears what is meant for it, nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from sheafed.errors import MissingPartError, NetworkError
from sheafed.transport.zenoh.credentials import Credentials

if TYPE_CHECKING:
    import zenoh

Mode = Literal["peer", "client", "router"]

ALIVE = "alive"
_TOKENS = ["liveliness_token"]
_WATCHES = ["declare_liveliness_subscriber", "liveliness_query"]
LOG_LEVEL = "zenoh_link_tls=warn"
"""What Zenoh logs unless RUST_LOG is set: links refused for lack of a trusted certificate."""
OVERHEAD = 1 << 16
"""What Zenoh may add to a message of ours: its own header and the key."""


def import_zenoh() -> ModuleType:
    """Return Zenoh, or say how to get it."""
    try:
        import zenoh
    except ImportError as problem:
        raise MissingPartError(
            "agents on a network need Zenoh; get it with: pip install 'sheafed[network]'"
        ) from problem
    return zenoh


def key(network: str, *parts: str) -> str:
    """Return a key expression of names, which may contain anything; "*" and "**" stay wild."""
    names = (part if part in ("*", "**") else quote(part, safe="") for part in parts)
    return "/".join(["sheafed", quote(network, safe=""), *names])


def open_session(settings: Mapping[str, Any]) -> zenoh.Session:
    """Open a session, or say what it could not do."""
    module = import_zenoh()
    try:
        session: zenoh.Session = module.open(module.Config.from_json5(json.dumps(settings)))
    except module.ZError as problem:
        listen = settings["listen"]["endpoints"]
        raise NetworkError(
            f"cannot join the network, listening on {listen or 'nothing'}: {problem}; check the "
            "addresses and the certificate files"
        ) from problem
    return session


def settings(
    mode: Mode,
    *,
    listen: Sequence[str],
    connect: Sequence[str],
    credentials: Credentials,
    access: Mapping[str, Any],
    limit: int,
    lease: float,
) -> dict[str, Any]:
    """Return the configuration of a session.

    Args:
        mode: "peer" for an agent, "client" for one behind a relay, "router" for a relay.
        listen: endpoints such as `tls/0.0.0.0:7447`.
        connect: endpoints to dial, again and again until they answer.
        credentials: for mutual TLS.
        access: what `agent_access` or `relay_access` returned.
        limit: bytes of the largest message; more are not even put together from their fragments.
        lease: seconds of silence after which a link counts as broken.
    """
    return {
        "mode": mode,
        "listen": {"endpoints": list(listen)},
        "connect": {
            "endpoints": list(connect),
            "timeout_ms": -1,
            "exit_on_failure": False,
            "retry": {
                "period_init_ms": 200,
                "period_max_ms": 1000,
                "period_increase_factor": 2,
            },
        },
        "open": {"return_conditions": {"connect_scouted": False, "declares": False}},
        "scouting": {"multicast": {"enabled": False}, "gossip": {"enabled": False}},
        "transport": {
            "unicast": {"open_timeout": int(lease * 1000), "accept_timeout": int(lease * 1000)},
            "link": {
                "protocols": ["tls"],
                "tx": {
                    "lease": int(lease * 1000),
                    "queue": {
                        # Microseconds. Only sending threads wait, and never training; but a long
                        # wait for a frozen neighbour also holds up Zenoh's links to the others.
                        "congestion_control": {
                            "drop": {
                                "wait_before_drop": 50_000,
                                "max_wait_before_drop_fragments": 1_000_000,
                            }
                        }
                    },
                },
                "rx": {"max_message_size": limit + OVERHEAD},
                "tls": {
                    "root_ca_certificate": str(credentials.authority),
                    "listen_certificate": str(credentials.certificate),
                    "listen_private_key": str(credentials.key),
                    "connect_certificate": str(credentials.certificate),
                    "connect_private_key": str(credentials.key),
                    "enable_mtls": True,
                    "verify_name_on_connect": True,
                    "close_link_on_expiration": True,
                },
            },
            "shared_memory": {"enabled": False},  # it would pass TLS by
        },
        "access_control": access,
    }


def agent_access(
    network: str, name: str, neighbours: Collection[str], relays: Collection[str] = ()
) -> dict[str, Any]:
    """Return what an agent accepts from, and tells to, each certificate name.

    A relay speaks for all neighbours: it is trusted to have checked who they are.
    """
    rules, policies = [], []
    for j in neighbours:
        rules += [
            _rule(f"hear {j}", "ingress", ["put"], key(network, j, name, "*")),
            _rule(f"notice {j}", "ingress", _TOKENS, key(network, j, ALIVE)),
            _rule(f"listed {j}", "ingress", ["declare_subscriber"], key(network, "*", j, "*")),
            _rule(f"tell {j}", "egress", ["put"], key(network, name, j, "*")),
            _rule(f"watch {j}", "egress", _WATCHES, key(network, j, ALIVE)),
        ]
        own = [f"{verb} {j}" for verb in ("hear", "notice", "listed", "tell", "watch")]
        policies.append({"rules": own, "subjects": [j, *map(_relay, relays)]})
    rules += [
        _rule("subscribe", "egress", ["declare_subscriber"], key(network, "*", name, "*")),
        _rule("show", "egress", _TOKENS, key(network, name, ALIVE)),
        _rule("watched", "ingress", _WATCHES, key(network, name, ALIVE)),
    ]
    everybody = [*neighbours, *map(_relay, relays)]
    policies.append({"rules": ["subscribe", "show", "watched"], "subjects": everybody})
    subjects = [{"id": j, "cert_common_names": [j]} for j in neighbours]
    subjects += [{"id": _relay(relay), "cert_common_names": [relay]} for relay in relays]
    return _control(rules, subjects, policies)


def relay_access(network: str, names: Collection[str]) -> dict[str, Any]:
    """Return what a relay carries: everybody speaks under the own name and hears the own mail."""
    tokens = key(network, "*", ALIVE)
    rules = [
        _rule("tokens", "egress", _TOKENS, tokens),
        _rule("watching", "ingress", _WATCHES, tokens),
    ]
    policies = []
    for name in names:
        rules += [
            _rule(f"speak {name}", "ingress", ["put"], key(network, name, "*", "*")),
            _rule(f"live {name}", "ingress", _TOKENS, key(network, name, ALIVE)),
            _rule(f"wish {name}", "ingress", ["declare_subscriber"], key(network, "*", name, "*")),
            _rule(f"mail {name}", "egress", ["put"], key(network, "*", name, "*")),
        ]
        own = [f"{verb} {name}" for verb in ("speak", "live", "wish", "mail")]
        policies.append({"rules": [*own, "tokens", "watching"], "subjects": [name]})
    subjects = [{"id": name, "cert_common_names": [name]} for name in names]
    return _control(rules, subjects, policies)


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


def _control(
    rules: list[dict[str, Any]], subjects: list[dict[str, Any]], policies: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "enabled": True,
        "default_permission": "deny",
        "rules": rules,
        "subjects": subjects,
        "policies": policies,
    }
