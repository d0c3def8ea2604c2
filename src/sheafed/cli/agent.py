"""`sheafed agent | relay | certs`: one agent per process, on any machine, without a server."""

import logging
import secrets
import sys
from contextlib import closing
from pathlib import Path
from reprlib import repr as short
from threading import Event
from typing import Annotated

import torch
import typer

from sheafed.atomic_io import write_privately
from sheafed.config.federation import agent_names
from sheafed.config.presets import read_experiment
from sheafed.config.single_agent import build_single_agent, build_single_node
from sheafed.errors import InputError
from sheafed.network.deadline import Timeouts
from sheafed.network.graceful_shutdown import GracefulShutdown
from sheafed.network.peer_agent import PeerAgent
from sheafed.transport.zenoh.credentials import Credentials
from sheafed.transport.zenoh.relay import open_relay
from sheafed.transport.zenoh.settings import LOG_LEVEL, import_zenoh
from sheafed.transport.zenoh.transport import ZenohTransport

Cert = Annotated[Path, typer.Option(help="the certificate; its common name is the agent's")]
Key = Annotated[Path, typer.Option(help="the private key of the certificate")]
Authority = Annotated[Path, typer.Option("--ca", help="the certificate of the authority")]
Network = Annotated[str, typer.Option(help="agents of different networks do not meet")]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="table.key=value, repeatable")]
MaxMessage = Annotated[int, typer.Option(help="MiB of the largest message that is accepted")]


def agent(
    config: Annotated[str, typer.Argument(help="the config, the same for all agents")],
    name: Annotated[str, typer.Option(help="which agent of the config this is")],
    cert: Cert,
    key: Key,
    ca: Authority,
    out: Annotated[Path, typer.Option(help="directory for checkpoint, metrics and status")],
    listen: Annotated[
        list[str] | None, typer.Option(help="tls/HOST:PORT to be dialled at, repeatable")
    ] = None,
    connect: Annotated[
        list[str] | None, typer.Option(help="tls/HOST:PORT of a neighbour to dial, repeatable")
    ] = None,
    relay: Annotated[
        list[str] | None,
        typer.Option(help="certificate name of a relay that may speak for neighbours"),
    ] = None,
    resume: Annotated[
        bool, typer.Option(help="go on from the checkpoint, if there is one")
    ] = False,
    deadline: Annotated[float, typer.Option(help="seconds to wait for a neighbour")] = 10.0,
    staleness: Annotated[int, typer.Option(help="rounds for which a message may stand in")] = 2,
    join_timeout: Annotated[
        float, typer.Option(help="seconds to wait for all neighbours before the first round")
    ] = 600.0,
    final_timeout: Annotated[
        float, typer.Option(help="seconds to wait for absent neighbours in the last evaluation")
    ] = 30.0,
    lease: Annotated[float, typer.Option(help="seconds after which a silent link is broken")] = 5.0,
    network: Network = "default",
    max_message: MaxMessage = 64,
    overrides: Overrides = None,
    seed: Annotated[int | None, typer.Option(help="instead of the config's")] = None,
) -> None:
    """Run one agent: it trains with whichever of its neighbours are there."""
    import_zenoh().init_log_from_env_or(LOG_LEVEL)
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    with GracefulShutdown(sys.exit) as ending:  # as long as there is nothing to save
        experiment = read_experiment(config, overrides or [], seed)
        timeouts = Timeouts(
            deadline=deadline, staleness=staleness, join=join_timeout, final=final_timeout
        )
        torch.set_num_threads(experiment.training.threads)
        federation = build_single_agent(experiment, name)
        credentials = Credentials(cert, key, ca)
        node = build_single_node(federation, name, experiment.seed, _secret(out))
        ending.act = lambda: None  # until there is something to stop
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
            )
        ) as transport:
            edge = PeerAgent(
                node,
                transport,
                method=federation.method,
                epochs=experiment.training.epochs,
                out=out,
                timeouts=timeouts,
                evaluate_every=experiment.training.evaluate_every,
                checkpoint_every=experiment.training.checkpoint_every,
            )
            ending.act = edge.stop
            if ending.asked:
                edge.stop()
            history = edge.train(resume).history
    rounds = f"{history.rounds} of {history.schedule.total}"
    print(f"{name}: {edge.state} after round {rounds}, wrote {out}")


def relay(
    config: Annotated[str, typer.Argument(help="the config of the agents")],
    listen: Annotated[list[str], typer.Option(help="tls/HOST:PORT, repeatable")],
    cert: Cert,
    key: Key,
    ca: Authority,
    network: Network = "default",
    max_message: MaxMessage = 64,
    overrides: Overrides = None,
) -> None:
    """Carry messages between agents that can only dial out; TLS ends here."""
    import_zenoh().init_log_from_env_or(LOG_LEVEL)
    names = agent_names(read_experiment(config, overrides or [], None))
    session = open_relay(
        names,
        credentials=Credentials(cert, key, ca),
        listen=listen,
        network=network,
        limit=max_message << 20,
    )
    over = Event()
    try:
        with GracefulShutdown(over.set):
            print(f"carrying messages of {', '.join(names)} on {', '.join(listen)}", flush=True)
            over.wait()
    finally:
        session.close()  # type: ignore[no-untyped-call]


def certs(
    directory: Annotated[Path, typer.Argument(help="where the files go")],
    names: Annotated[list[str], typer.Argument(help="of the agents, and of relays")],
    host: Annotated[
        list[str] | None, typer.Option(help="name or address they are dialled at, repeatable")
    ] = None,
    days: Annotated[int, typer.Option(help="how long they are good")] = 365,
) -> None:
    """Make a test authority and a certificate per agent."""
    from sheafed.transport.zenoh.certificates import make_certificates

    make_certificates(directory, names, host or [], days)
    print(f"wrote {directory}: authority.pem, and NAME.pem and NAME.key of {', '.join(names)}")


def _secret(out: Path) -> int:
    """Return the seed that only this agent knows, the same after a restart."""
    path = out / "secret"
    if not path.exists():
        out.mkdir(parents=True, exist_ok=True)
        write_privately(path, str(secrets.randbits(63)).encode())
    content = path.read_text()
    if not content.isdecimal():
        raise InputError(
            f"{path} holds {short(content)} instead of a number; restore it, or delete it if this "
            "agent has not begun"
        )
    return int(content)
