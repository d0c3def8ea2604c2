"""Why links fail, for an agent that waits: Zenoh tries again and again, and does not say."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from sheafed.errors import InputError
from sheafed.transport.zenoh.credentials import Credentials
from sheafed.transport.zenoh.guard import parse_endpoint

CONNECT_SECONDS = 2.0
ALERT_SECONDS = 0.5
"""In TLS 1.3 a certificate is refused after the handshake, as its sender sees it."""
MAX_THREADS = 16


def link_problems(endpoints: Sequence[str], credentials: Credentials) -> list[str]:
    """Connect once to each endpoint; return a line for each where TLS fails, or nobody answers."""
    if not endpoints:
        return []
    with ThreadPoolExecutor(min(MAX_THREADS, len(endpoints))) as pool:
        found = pool.map(lambda endpoint: _problem(endpoint, credentials), endpoints)
        pairs = zip(endpoints, found, strict=True)
        return [f"{endpoint}: {text}" for endpoint, text in pairs if text]


def _problem(endpoint: str, credentials: Credentials) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(credentials.authority)
        context.load_cert_chain(credentials.certificate, credentials.key)
        host, port = parse_endpoint(endpoint)
        with (
            socket.create_connection((host, port), CONNECT_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host) as link,
        ):
            link.settimeout(ALERT_SECONDS)
            with suppress(TimeoutError):  # it waits for what Zenoh would say
                link.recv(1)
    except ssl.SSLCertVerificationError as problem:
        return f"its certificate is refused here ({problem.verify_message})"
    except ssl.SSLError as problem:
        return f"TLS fails, it may refuse this certificate ({problem.reason or problem})"
    except TimeoutError:
        return "no answer"
    except (OSError, UnicodeError) as problem:  # the latter by a malformed name of a host
        return getattr(problem, "strerror", None) or str(problem)
    except InputError:  # a form of endpoint that only Zenoh knows
        return None
    return None
