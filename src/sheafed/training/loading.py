"""A network from a file, with agents, maps and whitening as they were when it was written."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

import networkx as nx

from sheafed.agents.agent import Agent
from sheafed.checkpointing.state_tree import moved
from sheafed.errors import InputError, NetworkMismatchError, UncheckedEncoderWarning
from sheafed.methods.build_node import build_node
from sheafed.methods.method_table import method_from_table
from sheafed.methods.node import Method, Node
from sheafed.pilots.absent_pilots import AbsentPilots
from sheafed.pilots.pilot_set import PilotSet, as_pilot_set
from sheafed.tensor_tree import describe
from sheafed.training.arguments import agents_by_name
from sheafed.training.encoder_check import changed_layers, check_encoder
from sheafed.training.history import RunHistory, Schedule
from sheafed.training.live_network import Network
from sheafed.training.metadata import agent_metadata
from sheafed.training.network_file import WHICH, read_network
from sheafed.training.process_group import SingleProcess
from sheafed.training.run_identity import agent_identity, method_identity, model_identity
from sheafed.training.single_round import handshake
from sheafed.transport import Barrier, LocalTransport

Which = Literal["last", "best"]


def load_network(
    directory: str | Path,
    agents: Iterable[Agent],
    *,
    which: Which = "last",
    method: Method | None = None,
    pilots: Any = None,
) -> Network:
    """Return the network of a run directory; see `sheafed.load`."""
    if which not in WHICH:
        raise InputError(f"which must be 'last' or 'best', got {which!r}")
    file = NetworkFile(*read_network(Path(directory), which))
    team = agents_by_name(agents)
    file.check_agents(team)
    method, pilots = file.method(method), file.pilots(pilots)
    nodes = file.build_nodes(team, method, pilots)
    for node in nodes.values():
        file.load(node)
        file.check_encoder(node)
    return file.network(nodes, method, pilots)


@dataclass(frozen=True)
class NetworkFile:
    """What a file says of a network; every method raises where it contradicts what was given."""

    path: Path
    state: Mapping[str, Any]

    @property
    def identity(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.state["identity"]
        return found

    def check_agents(self, agents: Mapping[str, Agent]) -> None:
        if list(agents) != self.identity["agents"]:
            self._refuse("agents", self.identity["agents"], list(agents))
        for name, agent in agents.items():
            for what, value in model_identity(agent_metadata(agent, rank=0)).items():
                self._compare(f"{what} of agent {name!r}", value)
            classes = self.state["agents"][name]["classes"]
            if agent.classes is None and classes is not None:
                agent.classes = tuple(classes)
            elif classes is not None and list(agent.classes or ()) != classes:
                self._refuse(f"classes of agent {name!r}", classes, list(agent.classes or ()))

    def method(self, given: Method | None) -> Method:
        """Return the method, with options that its version did not have at their defaults."""
        table = self.state["method"]
        if table is None and given is None:
            raise InputError(
                f"{self.path} was trained by a method that only code can describe, "
                f"{self.identity['method']}; give it as method="
            )
        if table is None and given is not None:
            self._compare("method", method_identity(given)["method"])
            return given
        method = method_from_table(table)
        if given is not None and given != method:
            was, now = method_identity(method), method_identity(given)
            what = next(w for w in {**now, **was} if was.get(w) != now.get(w))
            self._refuse(what, was.get(what), now.get(what))
        return method

    def pilots(self, given: Any) -> PilotSet:
        digest = self.identity["pilot set"]
        if given is None:
            return AbsentPilots(digest=digest, **self.state["pilots"])
        pilots = as_pilot_set(given, agents=self.identity["agents"])
        count = self.state["pilots"]["total"]
        if pilots.total != count:
            self._refuse("number of pilots", count, pilots.total)
        if pilots.digest() != digest:
            raise NetworkMismatchError(
                f"{self.path} was trained with other pilots than those given, {count} too; give "
                "the same inputs in the same order and of the same type (dtype); given: "
                f"{describe(pilots.inputs)}"
            )
        return pilots

    def graph(self) -> nx.Graph[str]:
        graph: nx.Graph[str] = nx.Graph()  # agents that left may have left it disconnected
        graph.add_nodes_from(self.identity["agents"])
        graph.add_edges_from(self.identity["graph"])
        return graph

    def build_nodes(
        self, agents: Mapping[str, Agent], method: Method, pilots: PilotSet
    ) -> dict[str, Node]:
        """Return the nodes of the agents, after their handshake."""
        graph = self.graph()
        nodes = {
            name: build_node(
                method,
                agent,
                graph.neighbors(name),
                pilots,
                seed=self.identity["seed"],
                rounds_per_epoch=self.identity["rounds per epoch"],
                homogeneous=self.state["homogeneous"],
            )
            for name, agent in agents.items()
        }
        handshake(nodes, Barrier(LocalTransport(list(nodes))))
        for node in nodes.values():
            node.shows_pilots &= not isinstance(pilots, AbsentPilots)
        return nodes

    def load(self, node: Node) -> None:
        """Put an agent and its node into the states of the file.

        An agent with another optimiser, objective or amount of data has its weights only.
        """
        saved, agent = self.state["agents"][node.name], node.agent
        try:
            if self.difference(agent) is None:
                agent.load_state(saved["agent"])
            else:
                agent.load_weights(saved["agent"])
            node.load_state(moved(saved["node"], agent.device))
        except (RuntimeError, ValueError, LookupError, TypeError, AttributeError) as problem:
            reason = " ".join(str(problem).split())
            raise NetworkMismatchError(
                f"{self.path} has other weights for agent {node.name!r} ({reason}); build its "
                "encoder and head as they were in the run"
            ) from problem

    def difference(self, agent: Agent) -> str | None:
        """Return what prevents an agent from training on, if anything does."""
        for what, value in agent_identity(agent_metadata(agent, rank=0)).items():
            was = self.identity.get(f"{what} of agent {agent.name!r}")
            if was != value:
                return f"the {what} of agent {agent.name!r} is {value!r} and was {was!r}"
        return None

    def check_encoder(self, node: Node) -> None:
        """Raise if an encoder gives other latents of the pilots than it did in the run.

        Without pilots, and of heads, layers that the run did not have are warned of.
        """
        agent, saved = node.agent, self.state["agents"][node.name]
        layers = saved.get("layers", {})  # files of earlier versions have none
        head = changed_layers(agent, "head", layers.get("head"))
        if head is not None:
            self._warn(
                f"the head of agent {agent.name!r} has other layers than in {self.path}: {head}; "
                "build it as it was in the run"
            )
        if not isinstance(node.context.pilots, AbsentPilots):
            check_encoder(self.path, node, saved["latents"])
            return
        encoder = changed_layers(agent, "encoder", layers.get("encoder"))
        if not agent.encoder.state_dict():
            self._warn(
                f"the encoder of agent {agent.name!r} has no weights in {self.path}: nothing "
                "tells whether it is the one of the run; give pilots= to check it"
            )
        elif encoder is not None:
            self._warn(
                f"the encoder of agent {agent.name!r} has other layers than in {self.path}: "
                f"{encoder}; build it as it was in the run, or give pilots= to check it"
            )

    def network(self, nodes: dict[str, Node], method: Method, pilots: PilotSet) -> Network:
        rounds, length = self.state["rounds"], self.identity["rounds per epoch"]
        schedule = Schedule(epochs=rounds // length, rounds_per_epoch=length)
        transport = LocalTransport(list(nodes))
        history = RunHistory(
            self.identity["seed"],
            schedule,
            transport.ledger,
            rounds=rounds,
            stopped=self.state["stopped"],
            records=self.state["metrics"],
            changes=self.state.get("changes", []),
        )
        metadata = {name: agent_metadata(node.agent, rank=0) for name, node in nodes.items()}
        differences = [self.difference(node.agent) for node in nodes.values()]
        return Network(
            nodes,
            metadata,
            self.graph(),
            pilots,
            method,
            history,
            SingleProcess(),
            difference=next(filter(None, differences), None),
        )

    def _warn(self, message: str) -> None:
        warnings.warn(message, UncheckedEncoderWarning, stacklevel=5)

    def _compare(self, what: str, value: Any) -> None:
        if self.identity[what] != value:
            self._refuse(what, self.identity[what], value)

    def _refuse(self, what: str, was: Any, given: Any) -> NoReturn:
        raise NetworkMismatchError(
            f"{self.path} is of another network; {what}: {was!r} in the file, {given!r} given; "
            "give what the run had"
        )
