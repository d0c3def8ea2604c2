"""What must not matter does not; what is wrong is named, and stops no other agent."""

import copy
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from sheafed import (
    Agent,
    Distillation,
    MapPolicy,
    Network,
    NonCooperative,
    PilotSet,
    SheafFRL,
    train,
)
from sheafed.errors import (
    DisconnectedGraphError,
    HandshakeError,
    LatentSizeError,
    NonFiniteError,
    UndeterminedMapWarning,
)
from sheafed.methods import SWBN, ZCA, DualAscent, IdentityMaps, NoWhitening
from sheafed.methods.node import Node
from sheafed.pilots.policies import AllPilots, PrototypePilots
from sheafed.transport import LocalTransport, encode
from sheafed.transport.message import Message
from tests.helpers.rounds import handshake, one_round
from tests.helpers.small_federations import (
    INPUTS,
    MessageRecorder,
    agent,
    in_double,
    linear_head,
    nodes_of,
    normal,
    orthonormal,
    pilots,
    run_rounds,
    same_weights,
    samples,
    turned,
    weights_of,
)

TRIANGLE = [("a", "b"), ("b", "c"), ("a", "c")]
MIXED, EQUAL = (9, 5, 6), (6, 6, 6)
dims = pytest.mark.parametrize("dims", [MIXED, EQUAL], ids=["heterogeneous", "homogeneous"])
privacy = pytest.mark.parametrize("privacy", ["standard", "strict"])


def three(dims: tuple[int, ...] = MIXED, **options: object) -> list[Agent]:
    return [agent(name, d, 0, **options) for name, d in zip("abc", dims, strict=True)]


def noisy(dims: tuple[int, ...] = MIXED) -> list[Agent]:
    """Agents with dropout and batch norm in encoder and head."""
    return [
        agent(
            name,
            d,
            0,
            nn.BatchNorm1d(16),
            nn.Dropout(0.3),
            head=nn.Sequential(nn.Dropout(0.2), nn.BatchNorm1d(d), linear_head(d, d)),
        )
        for name, d in zip("abc", dims, strict=True)
    ]


def short_run(agents: list[Agent], method: object, **options: object) -> Network:
    given = {"epochs": 2, "rounds_per_epoch": 4, "seed": 5} | options
    edges = given.pop("edges", TRIANGLE)
    shared = given.pop("pilots", pilots().to(agents[0].parameters[0].dtype))
    return train(agents, edges, method, shared, **given)


# A rotation of one agent's latent space


def turned_metrics(dims: tuple[int, ...], method: SheafFRL) -> tuple[list, list]:
    q = orthonormal(8, dims[1], dims[1], torch.float64)
    plain = [in_double(a) for a in three(dims)]
    with_turn = [turned(a, q) if a.name == "b" else a for a in map(in_double, three(dims))]
    return short_run(plain, method).history.records, short_run(with_turn, method).history.records


def flat(record: dict) -> dict[str, float]:
    agents = record["agents"].items()
    return {k: v for k, v in record.items() if k != "agents"} | {
        f"{name} {k}": v for name, values in agents for k, v in values.items()
    }


@dims
@pytest.mark.parametrize("source", ["round", "all", "running"])
def test_a_rotation_of_a_latent_space_changes_no_metric(source: str, dims: tuple[int, ...]) -> None:
    method = SheafFRL(
        whitening=ZCA(), maps=MapPolicy(source=source), pilots_per_round=24, penalty=0.3
    )
    for one, other in zip(*turned_metrics(dims, method), strict=True):
        assert flat(one) == pytest.approx(flat(other), rel=1e-6, abs=1e-9)


def test_a_rotation_matters_to_whitening_that_prefers_coordinates() -> None:
    """The comparison has teeth: SWBN standardises each coordinate by itself."""
    one, other = turned_metrics(MIXED, SheafFRL(whitening=SWBN(), pilots_per_round=24, penalty=0.3))
    assert abs(one[-1]["misalignment"] - other[-1]["misalignment"]) > 1e-4


# lambda = 0


@privacy
@dims
def test_no_penalty_is_independent_training_bit_for_bit(
    dims: tuple[int, ...], privacy: str
) -> None:
    alone, together, glued = noisy(dims), noisy(dims), noisy(dims)
    first = short_run(alone, NonCooperative())
    second = short_run(together, SheafFRL(penalty=0.0, privacy=privacy))
    assert same_weights(alone, together)
    for one, other in zip(first.history.records, second.history.records, strict=True):
        assert one["private_accuracy"] == other["private_accuracy"]
        assert one["loss"] == other["loss"]
    assert "penalty" not in second.history.last
    short_run(glued, SheafFRL(penalty=0.1, privacy=privacy))
    assert not same_weights(alone, glued)


def test_distillation_alone_is_not_independent_training() -> None:
    alone, together = three(), three()
    short_run(alone, NonCooperative())
    short_run(together, SheafFRL(penalty=0.0, distillation=Distillation(confidence=0.4)))
    assert not same_weights(alone, together)


# The shared-space special case


def test_identity_maps_pull_latents_directly_towards_each_other() -> None:
    def still(a: Agent, batch: object) -> Tensor:
        return sum(p.sum() * 0 for p in a.parameters)

    options = {"objective": still, "optimizer": lambda p: torch.optim.SGD(p, lr=0.2)}
    agents, method = (
        three(EQUAL, **options),
        SheafFRL(penalty=0.6, maps=IdentityMaps(), whitening=NoWhitening(), pilots_per_round=20),
    )
    encoders = {a.name: copy.deepcopy(a.encoder) for a in agents}
    nodes = nodes_of(agents, TRIANGLE, method)
    chosen = pilots()[nodes["a"].pilot_policy.select(0).indices]
    run_rounds(nodes, 1)
    latents = {name: encoder(chosen) for name, encoder in encoders.items()}
    for a in agents:
        others = [latents[j].detach() for j in "abc" if j != a.name]
        # lambda_i / 2K times the sum of ||A_i - A_j||^2, with lambda_i = lambda / d_i
        loss = sum((latents[a.name] - x).square().sum() for x in others) * 0.6 / 6 / (2 * 20)
        gradients = torch.autograd.grad(loss, list(encoders[a.name].parameters()))
        for old, new, g in zip(
            encoders[a.name].parameters(), a.encoder.parameters(), gradients, strict=True
        ):
            torch.testing.assert_close(new, old - 0.2 * g, atol=1e-6, rtol=1e-5)


def test_in_a_shared_space_latents_grow_together() -> None:
    method = SheafFRL(penalty=5.0, maps=IdentityMaps(), whitening=NoWhitening())
    agents = three(EQUAL)
    before = agents[0].encoder(pilots()) - agents[1].encoder(pilots())
    short_run(agents, method, epochs=10)
    after = agents[0].encoder(pilots()) - agents[1].encoder(pilots())
    assert float(after.detach().norm()) < 0.3 * float(before.detach().norm())


# Order, and randomness from outside


@privacy
@dims
def test_the_order_of_agents_and_edges_does_not_matter(dims: tuple[int, ...], privacy: str) -> None:
    method = SheafFRL(
        privacy=privacy, distillation=Distillation(confidence=0.4), pilots_per_round=24
    )
    one, other = noisy(dims), noisy(dims)[::-1]
    first = short_run(one, method)
    torch.manual_seed(12345)  # nothing may draw from here
    second = short_run(other, method, edges=[(y, x) for x, y in TRIANGLE[::-1]])
    assert same_weights(sorted(one, key=lambda a: a.name), sorted(other, key=lambda a: a.name))
    assert first.history.records == second.history.records


@dims
def test_the_order_in_which_programs_run_does_not_matter(dims: tuple[int, ...]) -> None:
    found = []
    for order in ("abc", "cab", "bca"):
        nodes = nodes_of(noisy(dims), TRIANGLE, SheafFRL(pilots_per_round=24))
        run_rounds({name: nodes[name] for name in order}, 6)
        found.append([nodes[name].agent for name in "abc"])
    assert same_weights(found[0], found[1])
    assert same_weights(found[0], found[2])


# Lost messages


def crosses(message: Message, *endpoints: str) -> bool:
    return message.kind == "round" and {message.sender, message.receiver} == set(endpoints)


@privacy
@dims
@pytest.mark.parametrize("source", ["round", "all", "running"])
def test_a_dead_link_is_as_good_as_none(source: str, dims: tuple[int, ...], privacy: str) -> None:
    method = SheafFRL(
        privacy=privacy,
        maps=MapPolicy(source=source),
        pilots_per_round=24,
        distillation=Distillation(confidence=0.4),
    )
    dead, absent = noisy(dims), noisy(dims)
    nodes = nodes_of(dead, TRIANGLE, method)
    recorder = run_rounds(nodes, 6, MessageRecorder(nodes, drop=lambda m: crosses(m, "a", "b")))
    run_rounds(nodes_of(absent, [("a", "c"), ("b", "c")], method), 6)
    assert same_weights(dead, absent)
    assert not recorder.transport.rejected
    assert not any(node.rejected for node in nodes.values())


@privacy
def test_when_all_messages_are_lost_every_agent_learns_alone(privacy: str) -> None:
    lonely, alone = noisy(), noisy()
    method = SheafFRL(privacy=privacy, distillation=Distillation(confidence=0.0))
    nodes = nodes_of(lonely, TRIANGLE, method)
    run_rounds(nodes, 6, MessageRecorder(nodes, drop=lambda m: m.kind == "round"))
    run_rounds(nodes_of(alone, TRIANGLE, NonCooperative()), 6)
    assert same_weights(lonely, alone)


@pytest.mark.parametrize(("dims", "privacy"), [(MIXED, "strict"), (EQUAL, "standard")])
def test_training_survives_links_that_lose_a_third_of_the_messages(
    dims: tuple[int, ...], privacy: str
) -> None:
    random = np.random.default_rng(0)
    transport = LocalTransport("abc", drop=lambda m: m.kind == "round" and random.random() < 1 / 3)
    method = SheafFRL(privacy=privacy, pilots_per_round=32, penalty=0.3)
    run = short_run(three(dims), method, transport=transport, epochs=12)
    assert run.history.last["misalignment"] < 0.3
    assert run.history.last["communication_accuracy"] > 0.75


def logs_with_a_loss(
    method: SheafFRL, dims: tuple[int, int], lost: Callable[[Message], bool], rounds: int
) -> list[dict[str, dict[str, float]]]:
    agents = [agent(name, d) for name, d in zip("ab", dims, strict=True)]
    nodes = nodes_of(agents, [("a", "b")], method)
    transport = LocalTransport("ab", drop=lost)
    handshake(nodes, transport)
    logs = []
    for round in range(rounds):
        for node in nodes.values():
            transport.send(node.send(round))
        logs.append(
            {
                name: node.receive(round, transport.receive(name, round, "round", node.neighbours))
                for name, node in nodes.items()
            }
        )
    return logs


@pytest.mark.parametrize(
    ("method", "dims"),
    [
        (SheafFRL(privacy="strict", pilots_per_round=24), (9, 5)),
        (SheafFRL(privacy="strict", pilots_per_round=24), (6, 6)),
        (SheafFRL(maps=MapPolicy(every=3), pilots_per_round=24), (9, 5)),
        (SheafFRL(maps=MapPolicy(every=3), pilots_per_round=24), (6, 6)),
    ],
)
def test_a_map_that_was_never_fitted_is_not_read_by(
    method: SheafFRL, dims: tuple[int, int]
) -> None:
    """The tail misses the first message, and with it the first fit."""
    logs = logs_with_a_loss(
        method, dims, lambda m: (m.kind, m.round, m.receiver) == ("round", 0, "b"), 6
    )
    misfit = [r for r in range(6) if "penalty" in logs[r]["b"]]
    fits = [r for r in range(6) if method.maps.fit_number(r, 4) is not None]
    if method.privacy == "strict":
        fits = [r for r in fits if method.maps.fit_number(r, 4) % 2 == 0]  # the tail's turns
    assert misfit == list(range(fits[1], 6))
    assert "penalty" in logs[5]["a"]


# Pilots are encoded deterministically


def test_pilots_are_encoded_without_a_trace() -> None:
    agents = noisy()
    nodes = nodes_of(
        agents, TRIANGLE, SheafFRL(maps=MapPolicy(source="all"), distillation=Distillation())
    )
    handshake(nodes, LocalTransport("abc"))
    for a in agents:
        a.encoder[2].eval()  # a mode of its own, to be kept
    node = nodes["a"]
    modes = [m.training for m in (*agents[0].encoder.modules(), *agents[0].head.modules())]
    before, outside = weights_of(agents), torch.get_rng_state()
    own, position = agents[0].state()["rng_state"].clone(), agents[0].order.position
    first, again = node.pilot_latents(), node.pilot_latents()
    messages = list(node.send(0))
    node.white_pilots()
    assert torch.equal(first, again)
    assert len(messages) == 2
    after = weights_of(agents)
    assert all(torch.equal(after[n][k], before[n][k]) for n in before for k in before[n])
    assert torch.equal(torch.get_rng_state(), outside)
    assert torch.equal(agents[0].state()["rng_state"], own)
    assert agents[0].order.position == position
    assert modes == [m.training for m in (*agents[0].encoder.modules(), *agents[0].head.modules())]


def test_batch_norm_sees_training_batches_only() -> None:
    agents = noisy()
    run_rounds(nodes_of(agents, TRIANGLE, SheafFRL(penalty=0.2)), 7)
    assert {int(a.encoder[2].num_batches_tracked) for a in agents} == {7}
    assert {int(a.head[1].num_batches_tracked) for a in agents} == {7}


def test_latents_on_the_wire_are_those_of_the_inference_mode() -> None:
    agents = noisy(EQUAL)
    nodes = nodes_of(
        agents, TRIANGLE, SheafFRL(whitening=NoWhitening(), pilots_per_round=AllPilots(48))
    )
    recorder = run_rounds(nodes, 3)
    for node in nodes.values():
        node.agent.encoder.eval()
        with torch.no_grad():
            expected = node.agent.encoder(pilots())
        node.agent.encoder.train()
        for message in node.send(3):
            endpoint = node.endpoints[message.receiver]
            torch.testing.assert_close(endpoint.incoming(message.tensors["latents"]), expected)
    assert len(recorder.of_round(2)) == 6


def test_prototypes_work_as_pilots() -> None:
    assignment = torch.arange(48) % 12
    method = SheafFRL(pilots_per_round=PrototypePilots(assignment, seed=0, subset=2))
    run = short_run(three(), method)
    rows = [row for row in run.history.ledger.rows() if row.kind == "round"]
    assert {row.payload_bytes for row in rows} == {4 * 12 * d for d in MIXED}


# Bad input


def test_nan_in_a_training_batch_names_agent_and_round() -> None:
    for method in (SheafFRL(), NonCooperative()):
        agents = three()
        agents[1].data.train.inputs[40, 1] = float("nan")
        agents[1].reset_rng(5)
        order = [agents[1].order.next() for _ in range(4)]
        round = next(r for r, batch in enumerate(order) if 40 in batch.tolist())
        expected = rf"agent 'b', round {round}: .* 1 non-finite of {16 * INPUTS} inputs; clean"
        with pytest.raises(NonFiniteError, match=expected):
            short_run(agents, method)


def test_nan_in_the_first_samples_is_found_by_the_probe() -> None:
    inputs, targets = samples(1, 64)
    inputs[0] = float("nan")
    with pytest.raises(
        NonFiniteError, match=r"agent 'b': .* its own training inputs.* first in row 0"
    ):
        agent("b", 5, data=(inputs, targets))


@pytest.mark.parametrize("source", ["round", "all", "running"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_bad_pilots_name_the_agent(value: str, source: str) -> None:
    shared = pilots()
    shared[:, 3] = float(value)
    method = SheafFRL(maps=MapPolicy(source=source))
    # Units that saturate hide infinite inputs, until the first gradient.
    round = 0 if value == "nan" else 1
    expected = rf"agent 'a', round {round}: .*pilots.* 48 non-finite .* clean the pilots"
    with pytest.raises(NonFiniteError, match=expected):
        short_run(three(), method, pilots=shared)


def test_nan_in_a_pilot_that_is_drawn_late_names_agent_and_round() -> None:
    method = SheafFRL(pilots_per_round=8, maps=MapPolicy(source="running", every=2))
    nodes = nodes_of(three((4, 4, 4)), TRIANGLE, method)
    chosen = [set(nodes["a"].pilot_policy.select(r).indices.tolist()) for r in range(40)]
    row, late = next((k, r) for r in range(2, 40) for k in chosen[r] - set().union(*chosen[:r]))
    shared = pilots()
    shared[row] = float("nan")
    nodes = nodes_of(three((4, 4, 4)), TRIANGLE, method, shared)
    recorder = run_rounds(nodes, late)
    with pytest.raises(NonFiniteError, match=rf"agent 'a', round {late}: .* clean the pilots"):
        one_round(nodes, recorder.transport, late)


def test_nan_in_one_agents_view_of_the_pilots_names_that_agent() -> None:
    views = {name: pilots() for name in "abc"}
    views["c"][7] = float("nan")
    with pytest.raises(NonFiniteError, match=r"agent 'c', round 0: .* clean the pilots"):
        short_run(three(), SheafFRL(), pilots=views)


def test_an_encoder_that_explodes_is_not_blamed_on_the_pilots() -> None:
    agents = three()
    nodes = nodes_of(agents, TRIANGLE, SheafFRL())
    recorder = run_rounds(nodes, 1)
    agents[2].encoder[0].weight.data.fill_(float("nan"))
    with pytest.raises(NonFiniteError, match=r"agent 'c', round 1: .* 0 non-finite .* lower"):
        one_round(nodes, recorder.transport, 1)


class Growing(nn.Module):
    """An encoder whose latents get wider after some training passes."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.inner, self.left = nn.Linear(INPUTS, 5), after

    def forward(self, x: Tensor) -> Tensor:
        self.left -= self.training
        z = self.inner(x)
        return z if self.left >= 0 else torch.cat([z, z[:, :1]], dim=1)


@pytest.mark.parametrize("method", [SheafFRL(), SheafFRL(privacy="strict"), NonCooperative()])
def test_an_encoder_that_changes_its_output_size_is_named(method: object) -> None:
    agents = [agent("a", 9), agent("b", 5, encoder=Growing(3))]
    nodes = nodes_of(agents, [("a", "b")], method)
    recorder = run_rounds(nodes, 3)
    expected = r"agent 'b': the encoder gave latents of shape \(\d+, 6\) .* expected \(\d+, 5\)"
    with pytest.raises(LatentSizeError, match=expected):
        one_round(nodes, recorder.transport, 3)


def test_an_isolated_agent_is_named() -> None:
    with pytest.raises(DisconnectedGraphError, match=r"2 components: \[\['a', 'b'\], \['c'\]\]"):
        short_run(three(), SheafFRL(), edges=[("a", "b")])


@pytest.mark.parametrize("method", [SheafFRL(distillation=Distillation()), NonCooperative()])
def test_a_single_agent_is_a_network(method: object) -> None:
    run = short_run([agent("a", 9)], method, edges=[])
    assert run.history.last["private_accuracy"] > 0.5
    assert run.history.last["communication_accuracy"] is None
    assert len(run.history.ledger) == 0


# Fewer pilots than dimensions


@privacy
@dims
def test_too_few_pilots_warn_by_name_and_training_goes_on(
    dims: tuple[int, ...], privacy: str
) -> None:
    method = SheafFRL(privacy=privacy, pilots_per_round=4, maps=MapPolicy(source="round"))
    with pytest.warns(UndeterminedMapWarning) as caught:
        run = short_run(three(dims), method)
    said = sorted(str(w.message) for w in caught)
    assert len(said) == 3  # once per edge
    tail, needed = ("b -> a", 5) if dims == MIXED else ("b -> a", 6)
    # Four centred pilots span three dimensions.
    expected = f"edge {tail}: 4 pilots leave the map undetermined on a subspace of dimension "
    assert any(s.startswith(expected + f"{needed - 3} of {needed}; ") for s in said)
    assert all("running cross-covariance" in s for s in said)
    assert len(run.history.records) == 2
    assert np.isfinite(run.history.last["misalignment"])


def test_too_few_pilots_altogether_ask_for_more() -> None:
    with pytest.warns(UndeterminedMapWarning, match="4 pilots .* use more pilots"):
        run = short_run(three(), SheafFRL(), pilots=pilots(4))
    assert np.isfinite(run.history.last["misalignment"])


@pytest.mark.parametrize("whitening", [ZCA(), SWBN(), NoWhitening()])
@pytest.mark.parametrize("spare", [0, 1])
def test_the_warning_tells_the_truth_about_the_rank(spare: int, whitening: object) -> None:
    """As many pilots as dimensions are one too few once whitening has centred them."""
    agents = [agent("a", 9), agent("b", 5)]
    method = SheafFRL(
        pilots_per_round=5 + spare, maps=MapPolicy(source="round"), whitening=whitening
    )
    nodes = nodes_of(agents, [("a", "b")], method)
    short = spare == 0 and not isinstance(whitening, NoWhitening)
    if short:
        with pytest.warns(UndeterminedMapWarning, match="edge b -> a: 5 pilots .* 1 of 5"):
            recorder = run_rounds(nodes, 1)
    else:
        recorder = run_rounds(nodes, 1)  # any warning would be an error
    sent = recorder.of_round(0)
    m = sent["a", "b"].tensors["latents"].mT @ sent["b", "a"].tensors["latents"]
    assert int(torch.linalg.matrix_rank(m, rtol=1e-5)) == 5 - short


def test_an_undetermined_map_stays_near_the_previous_one() -> None:
    """It is still an isometry, and the same at both ends."""
    method = SheafFRL(pilots_per_round=4, maps=MapPolicy(source="round"))
    nodes = nodes_of([agent("a", 9), agent("b", 7)], [("a", "b")], method)
    with pytest.warns(UndeterminedMapWarning):
        run_rounds(nodes, 5)
    v = nodes["a"].endpoints["b"].map
    assert torch.equal(v, nodes["b"].endpoints["a"].map)
    torch.testing.assert_close(v.mT @ v, torch.eye(7), atol=1e-5, rtol=0)


# Agents that do not mean the same


def refused(nodes: dict[str, Node]) -> str:
    with pytest.raises(HandshakeError) as caught:
        handshake(nodes, LocalTransport(list(nodes)))
    return str(caught.value)


def two(a: object = None, b: object = None, **options: object) -> dict[str, Node]:
    methods = {"a": a or SheafFRL(), "b": b or SheafFRL()}
    return nodes_of([agent("a", 9), agent("b", 5)], [("a", "b")], methods, **options)


@pytest.mark.parametrize(
    "other",
    [
        PilotSet(pilots(48, seed=8)),
        PilotSet(pilots().flip(0)),
        PilotSet(pilots()[:-1]),
        PilotSet(pilots(), ids=[str(k) for k in range(48)]),
    ],
    ids=["content", "order", "number", "ids"],
)
@pytest.mark.parametrize("method", [SheafFRL(), NonCooperative()])
def test_other_pilots_are_refused(other: PilotSet, method: object) -> None:
    nodes = two(method, method, shared={"a": PilotSet(pilots()), "b": other})
    assert "agents 'a' and 'b' do not agree on the pilot set" in refused(nodes)


def test_views_of_other_events_are_refused() -> None:
    ids = [f"event {k}" for k in range(48)]
    shared = {
        "a": PilotSet({"a": normal(1, 48, INPUTS)}, ids=ids),
        "b": PilotSet({"b": normal(2, 48, INPUTS)}, ids=ids[::-1]),
    }
    assert "do not agree on the pilot set" in refused(two(shared=shared))
    shared["b"] = PilotSet({"b": normal(2, 48, INPUTS)}, ids=ids)
    run_rounds(two(shared=shared), 1)


def test_other_draws_of_the_same_pilots_are_refused() -> None:
    """The number of pilots agrees, but with another seed they are not the same ones."""
    assert "do not agree on the pilots of the first rounds" in refused(
        two(SheafFRL(pilots_per_round=8), SheafFRL(pilots_per_round=8), seeds={"a": 1, "b": 2})
    )
    run_rounds(
        two(SheafFRL(pilots_per_round=48), SheafFRL(pilots_per_round=48), seeds={"a": 1, "b": 2}), 1
    )


@pytest.mark.parametrize(
    ("what", "other"),
    [
        ("pilots per round", SheafFRL(pilots_per_round=8)),
        ("privacy", SheafFRL(privacy="strict")),
        ("map policy", SheafFRL(maps=MapPolicy(every=3))),
        ("map policy", SheafFRL(maps=MapPolicy(decay=0.5))),
        ("map policy", SheafFRL(maps=IdentityMaps())),
        ("method", NonCooperative()),
    ],
)
def test_other_configurations_are_refused_by_name(what: str, other: object) -> None:
    assert f"agents 'a' and 'b' do not agree on the {what}: " in refused(two(b=other))


def test_other_precisions_are_refused_by_name() -> None:
    nodes = nodes_of(
        [agent("a", 9), in_double(agent("b", 5))],
        [("a", "b")],
        shared={"a": PilotSet(pilots()), "b": PilotSet(pilots())},
    )
    told = refused(nodes)
    assert "do not agree on the latent precision: 'torch.float32 none'" in told
    assert "all agents of a network compute in one precision, float32 by encoder.float()" in told


def test_settings_that_concern_one_agent_may_differ() -> None:
    mine = SheafFRL(penalty=0.5, whitening=SWBN())
    run_rounds(two(mine, SheafFRL(penalty=DualAscent(0.1))), 3)


def test_a_neighbour_that_does_not_answer_is_named() -> None:
    nodes = two()
    transport = LocalTransport("ab", drop=lambda m: m.sender == "b")
    with pytest.raises(HandshakeError, match=r"agent 'a' got no hello from .* \['b'\]"):
        handshake(nodes, transport)


# Bad messages


def forged(node: Node, tensors: dict[str, Tensor], **changes: object) -> bytes:
    given = {"kind": "round", "round": 1, "sender": "b", "receiver": node.name}
    return encode(Message(tensors=tensors, fields={"fitted": True}, **(given | changes))).data


BAD = {
    "shape": {"latents": torch.ones(24, 6)},
    "dtype": {"latents": torch.ones(24, 5, dtype=torch.float64)},
    "non-finite": {"latents": torch.full((24, 5), float("nan"))},
    "names": {"latents": torch.ones(24, 5), "weights": torch.ones(3)},
}


@pytest.mark.parametrize("reason", BAD)
def test_a_bad_message_is_counted_left_out_and_stops_no_agent(reason: str) -> None:
    """Sent in the name of b before b sends, it counts as b's; the edge is then left out."""
    attacked, deaf = noisy(), noisy()
    method = SheafFRL(pilots_per_round=24)
    nodes = nodes_of(attacked, TRIANGLE, method)
    recorder = run_rounds(nodes, 1)
    recorder.transport.deliver("a", forged(nodes["a"], BAD[reason]))
    for round in range(1, 5):
        one_round(nodes, recorder.transport, round)
    assert dict(nodes["a"].rejected) == {reason: 1}
    assert not nodes["b"].rejected
    assert not nodes["c"].rejected
    lost = nodes_of(deaf, TRIANGLE, method)
    key = ("round", 1, "b", "a")
    run_rounds(
        lost,
        5,
        MessageRecorder(lost, drop=lambda m: (m.kind, m.round, m.sender, m.receiver) == key),
    )
    assert same_weights(attacked, deaf)


def test_bytes_that_are_no_message_change_nothing() -> None:
    attacked, calm = noisy(), noisy()
    method = SheafFRL(pilots_per_round=24)
    nodes = nodes_of(attacked, TRIANGLE, method)
    recorder = run_rounds(nodes, 1)
    good = forged(nodes["a"], BAD["shape"])
    for bad in (b"", b"GET / HTTP/1.1", good[:-3], good[: len(good) // 4], good + b"x"):
        recorder.transport.deliver("a", bad)
    recorder.transport.deliver("a", forged(nodes["a"], {}, sender="mallory"))
    recorder.transport.deliver("a", forged(nodes["a"], BAD["shape"], receiver="c"))
    recorder.transport.deliver("a", forged(nodes["a"], BAD["shape"], kind="alignment"))
    for round in range(1, 4):
        one_round(nodes, recorder.transport, round)
    assert sum(recorder.transport.rejected.values()) == 8  # the one of another kind as late
    assert not nodes["a"].rejected
    run_rounds(nodes_of(calm, TRIANGLE, method), 4)
    assert same_weights(attacked, calm)


def test_a_strict_message_of_the_raw_size_is_refused() -> None:
    """Latents of the tail's own width are not what a strict head expects."""
    nodes = nodes_of(three(), TRIANGLE, SheafFRL(privacy="strict", pilots_per_round=24))
    recorder = run_rounds(nodes, 1)
    recorder.transport.deliver("a", forged(nodes["a"], {"latents": torch.ones(24, 5)}))
    one_round(nodes, recorder.transport, 1)
    assert dict(nodes["a"].rejected) == {"shape": 1}


def test_without_a_penalty_exchanges_do_not_matter() -> None:
    rarely, alone = noisy(), noisy()
    run_rounds(nodes_of(rarely, TRIANGLE, SheafFRL(penalty=0.0, exchange_every=2)), 6)
    run_rounds(nodes_of(alone, TRIANGLE, NonCooperative()), 6)
    assert same_weights(rarely, alone)


@pytest.mark.parametrize("privacy", ["standard", "strict"])
@pytest.mark.parametrize("source", ["round", "all", "running"])
def test_map_policies_count_exchanges(privacy: str, source: str) -> None:
    """Rounds without an exchange do not use up the turns of strict privacy, or the rhythm."""
    maps = MapPolicy(every=2, source=source)
    nodes = nodes_of(three(), TRIANGLE, SheafFRL(privacy=privacy, maps=maps, exchange_every=3))
    changed, recorder = [], MessageRecorder(nodes)
    handshake(nodes, recorder.transport)
    for round in range(13):
        before = {(n, j): e.map.clone() for n, o in nodes.items() for j, e in o.endpoints.items()}
        one_round(nodes, recorder.transport, round)
        if any(not torch.equal(m, nodes[n].endpoints[j].map) for (n, j), m in before.items()):
            changed.append(round)
    assert changed == [0, 3, 9]


def test_the_rhythm_of_exchanges_is_agreed() -> None:
    nodes = two(SheafFRL(exchange_every=2), SheafFRL(exchange_every=3))
    assert "do not agree on the rounds between exchanges: 2 against 3" in refused(nodes)
