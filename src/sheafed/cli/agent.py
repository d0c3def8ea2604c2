"""`sheafed agent | relay | certs`: one process per agent, on any machine, without a server."""

import logging
import secrets
import sys
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from pathlib import Path
from reprlib import repr as short
from threading import Event
from typing import Annotated

import typer

from sheafed.atomic_io import write_privately
from sheafed.cli.allow_code import AllowCode
from sheafed.errors import InputError
from sheafed.network.graceful_shutdown import GracefulShutdown
from sheafed.network.log_limits import output_into
from sheafed.transport.zenoh.credentials import REVOKED, Credentials
from sheafed.transport.zenoh.guard_process import raised_limit
from sheafed.transport.zenoh.renewal import POLL_SECONDS
from sheafed.transport.zenoh.settings import import_zenoh, log_zenoh

Cert = Annotated[
    Path, typer.Option(help="certificate file; its common name is the name of the agent")
]
Key = Annotated[Path, typer.Option(help="private key file of the certificate")]
Authority = Annotated[Path, typer.Option("--ca", help="certificate file of the authority")]
Revoked = Annotated[
    Path | None,
    typer.Option(help="file of names, one per line, whose certificates are refused; may change"),
]
Network = Annotated[str, typer.Option(help="agents of different networks exchange no messages")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="override a config value, table.key=value; repeatable"),
]
Log = Annotated[
    Path | None,
    typer.Option(help="file for all output; at 10 MiB it is moved to FILE.1 and begun anew"),
]
Guarded = Annotated[
    bool, typer.Option(help="a process in front of the listeners that keeps strangers away")
]
MaxMessage = Annotated[int, typer.Option(help="largest accepted message, in MiB")]


def agent(
    config: Annotated[str, typer.Argument(help="TOML file or preset, the same for all agents")],
    name: Annotated[str, typer.Option(help="the agent of the config to run")],
    cert: Cert,
    key: Key,
    ca: Authority,
    out: Annotated[Path, typer.Option(help="output directory: checkpoint, metrics, status")],
    listen: Annotated[
        list[str] | None, typer.Option(help="tls/HOST:PORT to listen on; repeatable")
    ] = None,
    connect: Annotated[
        list[str] | None, typer.Option(help="tls/HOST:PORT of a neighbour or a relay; repeatable")
    ] = None,
    relay: Annotated[
        list[str] | None,
        typer.Option(help="certificate name of a trusted relay; repeatable"),
    ] = None,
    resume: Annotated[bool, typer.Option(help="continue from the checkpoint, if any")] = False,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="replace a live process of the same name")
    ] = False,
    deadline: Annotated[float, typer.Option(help="seconds to wait for present neighbours")] = 10.0,
    staleness: Annotated[
        int, typer.Option(help="rounds for which a message replaces missing later ones")
    ] = 2,
    join_timeout: Annotated[
        float, typer.Option(help="seconds to wait for all neighbours before the first round")
    ] = 600.0,
    final_timeout: Annotated[
        float, typer.Option(help="seconds to wait for absent neighbours in the last evaluation")
    ] = 30.0,
    lease: Annotated[float, typer.Option(help="seconds after which a silent link is closed")] = 5.0,
    network: Network = "default",
    max_message: MaxMessage = 64,
    overrides: Overrides = None,
    seed: Annotated[int | None, typer.Option(help="overrides the seed of the config")] = None,
    allow_code: AllowCode = None,
    revoked: Revoked = None,
    log: Log = None,
    guard: Guarded = True,
) -> None:
    """Run one agent, which trains with those of its neighbours that are reachable."""
    import torch

    from sheafed.config.federation import build_federation
    from sheafed.config.reading import read_experiment
    from sheafed.network.deadline_policy import Timeouts
    from sheafed.network.peer_agent import PeerAgent, check_unused
    from sheafed.training.epochs import warn_if_unequal
    from sheafed.training.run_lock import run_lock
    from sheafed.transport.zenoh.transport import ZenohTransport

    import_zenoh()
    raised_limit()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    with (
        _output(log),
        GracefulShutdown(sys.exit) as shutdown,  # as long as there is nothing to save
        ExitStack() as held,
    ):
        experiment = read_experiment(config, overrides or [], seed)
        timeouts = Timeouts(
            deadline=deadline, staleness=staleness, join=join_timeout, final=final_timeout
        )
        torch.set_num_threads(experiment.training.threads)
        federation = build_federation(experiment, only=[name], allow_code=allow_code or [])
        warn_if_unequal(federation.steps_per_pass)
        credentials = Credentials(cert, key, ca, revoked)
        if federation.graph.degree(name) and not listen and not connect:
            raise InputError(
                f"{name!r} would be linked to nobody; give --listen, or --connect to its "
                "neighbours or to a relay"
            )
        check_unused(out, resume)
        held.enter_context(run_lock(out))  # before there is a secret, and a link to anyone
        node = federation.build_node(name, _secret(out))
        shutdown.action = lambda: None  # until there is something to stop
        log_zenoh()
        # Closed at the end: an open session would keep the process from ending.
        with closing(
            ZenohTransport(
                name,
                node.neighbours,
                credentials=credentials,
                listen=listen or [],
                connect=connect or [],
                network=network,
                relays=relay or [],
                limit=max_message << 20,
                staleness=staleness,
                lease=lease,
                guard=guard,
            )
        ) as transport:
            peer = PeerAgent(
                node,
                transport,
                method=federation.method,
                epochs=experiment.training.epochs,
                out=out,
                timeouts=timeouts,
                evaluate_every=experiment.training.evaluate_every,
                checkpoint_every=experiment.training.checkpoint_every,
                take_over=take_over,
            )
            shutdown.action = peer.stop
            if shutdown.requested:
                peer.stop()
            history = peer.train(resume).history
    rounds = f"{history.rounds} of {history.schedule.total}"
    print(f"{name}: {peer.state} after round {rounds}, wrote {out}")


def relay(
    config: Annotated[str, typer.Argument(help="TOML file or preset of the agents")],
    listen: Annotated[list[str], typer.Option(help="tls/HOST:PORT to listen on; repeatable")],
    cert: Cert,
    key: Key,
    ca: Authority,
    network: Network = "default",
    max_message: MaxMessage = 64,
    overrides: Overrides = None,
    revoked: Revoked = None,
    log: Log = None,
    guard: Guarded = True,
) -> None:
    """Forward messages between agents that only connect to others; TLS ends at the relay."""
    from sheafed.config.reading import read_experiment
    from sheafed.transport.zenoh.relay import Relay

    import_zenoh()
    raised_limit()
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    names = read_experiment(config, overrides or [], None).model.agent_names()
    ended = Event()
    with _output(log), ExitStack() as held:
        log_zenoh()
        opened = held.enter_context(
            closing(
                Relay(
                    names,
                    credentials=Credentials(cert, key, ca, revoked),
                    listen=listen,
                    network=network,
                    limit=max_message << 20,
                    guard=guard,
                )
            )
        )
        held.enter_context(GracefulShutdown(ended.set))
        print(f"forwarding messages of {', '.join(names)} on {', '.join(listen)}", flush=True)
        while not ended.wait(POLL_SECONDS):
            opened.renew_if_due()


def certs(
    directory: Annotated[Path, typer.Argument(help="output directory")],
    names: Annotated[list[str], typer.Argument(help="names of agents and relays")],
    host: Annotated[
        list[str] | None, typer.Option(help="host name or address of an agent; repeatable")
    ] = None,
    days: Annotated[float, typer.Option(min=0, help="validity of certificates in days")] = 365,
    renew: Annotated[
        bool, typer.Option("--renew", help="replace the certificates and keys of these names")
    ] = False,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="add the names to the list of those that are refused")
    ] = False,
    new_authority: Annotated[
        bool,
        typer.Option(
            "--new-authority", help="replace the authority and the certificates of these names"
        ),
    ] = False,
) -> None:
    """Create a test authority and a certificate per agent; replace or revoke them."""
    from sheafed.transport.zenoh.certificates import (
        make_certificates,
        renew_certificates,
        replace_authority,
        revoke_names,
    )

    if renew + revoke + new_authority > 1:
        raise InputError("--renew, --revoke and --new-authority exclude each other; give one")
    if revoke:
        revoke_names(directory, names)
        print(f"wrote {directory / REVOKED}; copy it to every agent that runs with --revoked")
        return
    write = make_certificates
    if renew:
        write = renew_certificates
    elif new_authority:
        write = replace_authority
    write(directory, names, host or [], days)
    print(f"wrote {directory}: authority.pem, and NAME.pem and NAME.key of {', '.join(names)}")


def _output(log: Path | None) -> AbstractContextManager[None]:
    return nullcontext() if log is None else output_into(log)


def _secret(out: Path) -> int:
    """Return the secret seed of this agent, the same after a restart."""
    path = out / "secret"
    if not path.exists():
        write_privately(path, str(secrets.randbits(63)).encode())
    content = path.read_text(encoding="utf-8")
    if not content.isdecimal():
        raise InputError(
            f"{path} must hold a number, got {short(content)}; restore it, or delete it if this "
            "agent has not trained yet"
        )
    return int(content)
