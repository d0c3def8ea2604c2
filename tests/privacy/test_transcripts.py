"""What an eavesdropper observes, and the privacy loss of a whole transcript."""

import pytest
import torch
from torch import Tensor, nn

from sheafed import Agent, Distillation, MapPolicy, SheafFRL, train
from sheafed.differential_privacy import epsilon_of
from sheafed.errors import EmptyInputError, GraphError, InputError
from sheafed.methods import GaussianNoise
from sheafed.pilots.policies import PrototypePilots
from sheafed.privacy import (
    Eavesdropper,
    communication_accuracy,
    invert_as_eavesdropper,
    invert_as_neighbour,
    logistic_attack,
    membership_from_latents,
    membership_from_probabilities,
    privacy_loss,
    relative_error,
    threshold_attack,
    train_decoder,
    transmitted_latents,
)
from sheafed.transport import LocalTransport, decode

PILOTS, PER_ROUND, ROUNDS = 20, 6, 8
NOISE = GaussianNoise(epsilon=3.0)


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pair(method: SheafFRL, tap=None):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        team = [
            Agent(
                name,
                nn.Linear(5, d),
                nn.Linear(d, 2),
                data={
                    "train": (normal(seed, 16, 5), torch.arange(16) % 2),
                    "test": (normal(seed + 5, 30, 5), torch.arange(30) % 2),
                },
                batch_size=4,
            )
            for seed, (name, d) in enumerate({"a": 4, "b": 3}.items())
        ]
    wire = LocalTransport(["a", "b"], tap=tap)
    options = {
        "epochs": 2,
        "rounds_per_epoch": ROUNDS // 2,
        "transport": wire,
        "oracle": False,
    }
    return train(team, [("a", "b")], method, normal(9, PILOTS, 5), evaluate_every=9, **options)


@pytest.mark.parametrize("quantisation", ["none", "int8"])
def test_the_eavesdropper_averages_the_latest_releases_of_each_pilot(quantisation: str) -> None:
    seen: list[bytes] = []
    spy = Eavesdropper("b", "a", last=3)

    def tap(data: bytes) -> None:
        seen.append(data)
        spy(data)

    run = pair(SheafFRL(pilots_per_round=PER_ROUND, quantisation=quantisation), tap)
    node = run.nodes["b"]
    rows: dict[int, list[Tensor]] = {}
    for message in map(decode, seen):
        if message.kind == "round" and message.sender == "b" and message.round >= ROUNDS - 3:
            latents = message.tensors["latents"].float()
            if quantisation == "int8":
                latents = latents * message.tensors["scale of latents"][:, None]
            indices = node.pilot_policy.select(message.round).indices
            for index, row in zip(indices, latents, strict=True):
                rows.setdefault(int(index), []).append(row)
    known, means = spy.pilot_latents(node)
    assert known.tolist() == sorted(rows)
    assert len(known) < PILOTS
    for index, row in zip(known.tolist(), means, strict=True):
        torch.testing.assert_close(row, torch.stack(rows[index]).mean(0))


def test_the_eavesdropper_observes_all_pilots_where_all_are_sent() -> None:
    seen: list[bytes] = []
    spy = Eavesdropper("b", "a", last=1)

    def tap(data: bytes) -> None:
        seen.append(data)
        spy(data)

    run = pair(SheafFRL(pilots_per_round=PER_ROUND, maps=MapPolicy(source="all")), tap)
    node = run.nodes["b"]
    *_, last = (m for m in map(decode, seen) if m.kind == "round" and m.sender == "b")
    expected = last.tensors["all"].clone()
    chosen = node.pilot_policy.select(last.round).indices
    expected[chosen] = (expected[chosen] + last.tensors["latents"]) / 2
    known, means = spy.pilot_latents(node)
    assert known.tolist() == list(range(PILOTS))
    torch.testing.assert_close(means, expected)


def test_an_eavesdropper_without_messages_is_an_error() -> None:
    run = pair(SheafFRL(pilots_per_round=PER_ROUND))
    with pytest.raises(EmptyInputError, match="from 'a' to 'b'"):
        Eavesdropper("a", "b").pilot_latents(run.nodes["a"])
    spy = Eavesdropper("a", "b")
    run = pair(SheafFRL(pilots_per_round=PrototypePilots(torch.arange(PILOTS) % 4, seed=0)), spy)
    with pytest.raises(InputError, match="prototype"):
        spy.pilot_latents(run.nodes["a"])


def test_the_privacy_loss_counts_rows_and_releases() -> None:
    run = pair(SheafFRL(pilots_per_round=PER_ROUND, noise=NOISE, exchange_every=2))
    node = run.nodes["a"]
    times = [0] * PILOTS
    for round in (0, 2, 4, 6):
        for index in node.pilot_policy.select(round).indices.tolist():
            times[index] += 1
    found = privacy_loss(node, ROUNDS)
    assert (found.release, found.delta) == (3.0, 1e-5)
    assert found.pilot == pytest.approx(epsilon_of(NOISE.mu * max(times) ** 0.5, 1e-5))
    assert found.agent == pytest.approx(epsilon_of(NOISE.mu * (4 * PER_ROUND) ** 0.5, 1e-5))
    assert found.release < found.pilot < found.agent


def test_sending_all_pilots_adds_to_the_privacy_loss() -> None:
    method = SheafFRL(
        pilots_per_round=PER_ROUND, noise=NOISE, maps=MapPolicy(every=4, source="all")
    )
    found = privacy_loss(pair(method).nodes["b"], ROUNDS)
    rows = ROUNDS * PER_ROUND + 3 * PILOTS  # fits in rounds 0, 3 and 7
    assert found.agent == pytest.approx(epsilon_of(NOISE.mu * rows**0.5, 1e-5))


def test_without_noise_or_with_distillation_there_is_no_bound() -> None:
    distilling = pair(
        SheafFRL(pilots_per_round=PER_ROUND, noise=NOISE, distillation=Distillation())
    )
    assert privacy_loss(distilling.nodes["a"], ROUNDS).agent is None
    assert privacy_loss(pair(SheafFRL(pilots_per_round=PER_ROUND)).nodes["a"], ROUNDS) is None


@pytest.fixture(scope="module")
def observed():
    spy = Eavesdropper("a", "b")
    run = pair(SheafFRL(pilots_per_round=PILOTS, privacy="strict"), spy)
    return run, run.nodes["a"], spy.pilot_latents(run.nodes["a"])


def test_private_latents_leave_exact_unless_noised(observed) -> None:
    _, node, _ = observed
    latents = node.agent.encode(node.agent.data.test.inputs).detach()
    white = node.whitening.eval()(latents)
    exact = transmitted_latents(node, node.agent.data.test, "b")
    torch.testing.assert_close(exact, white @ node.endpoints["b"].map.mT)
    noised = transmitted_latents(node, node.agent.data.test, "b", NOISE)
    short = white * (NOISE.bound(4) / white.norm(dim=1, keepdim=True)).clamp(max=1)
    noise = (noised @ node.endpoints["b"].map - short).flatten()
    assert float(noise.std()) == pytest.approx(NOISE.scale(4), rel=0.2)


def test_the_attacks_use_what_is_transmitted(observed) -> None:
    run, node, observed_pilots = observed
    train_set, test_set = node.agent.data.train, node.agent.data.test
    found = invert_as_eavesdropper(node, "b", observed_pilots)
    average = node.context.pilots.inputs.mean(0)
    assert found.error == relative_error(found.reconstructions, test_set.inputs, average)
    assert found.error < 1  # four of five numbers, seen through twenty pilots
    reader = run.nodes["b"]
    decoder = train_decoder(reader.pilot_latents().detach(), normal(9, PILOTS, 5))
    received = reader.interpret(transmitted_latents(node, test_set, "b"), "a")
    assert torch.equal(invert_as_neighbour(node, reader).reconstructions, decoder(received))
    classes = reader.agent.head(received).argmax(-1)
    right = float((classes == test_set.targets).double().mean())
    assert (
        communication_accuracy(node, reader)
        == right
        == run.history.evaluation.communication["a", "b"]
    )
    sent = (transmitted_latents(node, samples, "b") for samples in (train_set, test_set))
    assert membership_from_latents(node, "b") == logistic_attack(*sent)
    sure = [
        node.agent.head(node.agent.encode(s.inputs)).softmax(-1).max(-1).values.detach()
        for s in (train_set, test_set)
    ]
    assert membership_from_probabilities(node) == threshold_attack(*sure)


def test_what_cannot_be_attacked_is_named(observed) -> None:
    run, node, observed_pilots = observed
    whole = node.agent
    for missing, attack in (
        ("no head", lambda: membership_from_probabilities(node)),
        ("no head to evaluate", lambda: communication_accuracy(run.nodes["b"], node)),
        ("no test samples", lambda: invert_as_eavesdropper(node, "b", observed_pilots)),
    ):
        data = {"train": (normal(0, 16, 5), torch.arange(16) % 2)}
        node.agent = Agent("a", whole.encoder, None, data=data)
        with pytest.raises(InputError, match=missing):
            attack()
    node.agent = whole
    for use in (
        lambda: membership_from_latents(node, "turin"),
        lambda: invert_as_eavesdropper(node, "turin", observed_pilots),
    ):
        with pytest.raises(
            GraphError, match=r"'a' sends nothing to 'turin'; its neighbours are \['b"
        ):
            use()
