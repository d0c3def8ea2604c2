from typing import Any

import numpy as np
import pytest
import torch

from sheafed.errors import EmptyInputError, InputError, ShapeError, UnknownAgentError
from sheafed.pilots.pilot_set import PilotSet, as_pilot_set

INPUTS = torch.arange(12.0).view(4, 3)
IDS = ["w", "x", "y", "z"]


def test_shared_inputs_are_the_same_for_all_agents() -> None:
    pilots = PilotSet(INPUTS)
    assert pilots.total == 4
    assert torch.equal(pilots.of("any agent"), INPUTS)


def test_modalities() -> None:
    views = {"a": INPUTS, "b": torch.zeros(4, 2, 5, 5)}
    pilots = PilotSet(views)
    assert pilots.total == 4
    assert pilots.of("a").shape == (4, 3)
    assert pilots.of("b").shape == (4, 2, 5, 5)
    with pytest.raises(UnknownAgentError, match=r"no pilots for agent 'c', only for \['a', 'b'\]"):
        pilots.of("c")


def test_digests_tell_inputs_and_orders_apart() -> None:
    changed = INPUTS.clone()
    changed[3, 2] += 1e-6 * changed[3, 2]
    digests = [
        PilotSet(x).digest()
        for x in (INPUTS, INPUTS.flip(0), INPUTS[[1, 0, 2, 3]], changed, INPUTS[:3], -INPUTS)
    ]
    assert len(set(digests)) == len(digests)
    assert PilotSet(INPUTS.clone()).digest() == digests[0]


def test_a_digest_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pilots = PilotSet(INPUTS)
    known = pilots.digest()
    monkeypatch.setattr("sheafed.pilots.pilot_set.blake2b", None)
    assert pilots.digest() == known


def test_digests_do_not_depend_on_the_layout_in_memory() -> None:
    transposed = INPUTS.T.contiguous().T
    assert not transposed.is_contiguous()
    assert PilotSet(transposed).digest() == PilotSet(INPUTS).digest()
    assert PilotSet(INPUTS.clone().requires_grad_()).digest() == PilotSet(INPUTS).digest()


def test_digests_tell_ids_apart() -> None:
    digests = [
        PilotSet(INPUTS, ids).digest()
        for ids in (None, IDS, IDS[::-1], ["wx", "y", "z", ""], ["w", "xy", "z", ""], ["é", *"xyz"])
    ]
    assert len(set(digests)) == len(digests)


def test_digests_of_modalities_compare_ids_or_the_number() -> None:
    here, there = {"a": INPUTS}, {"b": torch.zeros(4, 9)}
    assert PilotSet(here).digest() == PilotSet(there).digest()
    assert PilotSet(here, IDS).digest() == PilotSet(there, IDS).digest()
    assert PilotSet(here, IDS).digest() != PilotSet(there, IDS[::-1]).digest()
    assert PilotSet(here, IDS).digest() != PilotSet(there).digest()
    assert PilotSet(here).digest() != PilotSet({"b": torch.zeros(5, 9)}).digest()


def test_different_numbers_of_pilots() -> None:
    with pytest.raises(ShapeError, match=r"same order, got \{'a': 4, 'b': 3\}"):
        PilotSet({"a": INPUTS, "b": INPUTS[:3]})


@pytest.mark.parametrize("inputs", [INPUTS[:0], {}, {"a": INPUTS[:0]}])
def test_no_pilots(inputs: Any) -> None:
    with pytest.raises(EmptyInputError, match="no pilots"):
        PilotSet(inputs)


@pytest.mark.parametrize(
    "ids", [IDS[:3], [*IDS, "v"], ["w", "w", "x", "y"], [], ["w", "x", "y", "z", "z"]]
)
def test_ids_that_do_not_fit(ids: list[str]) -> None:
    expected = rf"4 pilots need as many different ids, got {len(ids)} of which {len(set(ids))}"
    with pytest.raises(ShapeError, match=expected):
        PilotSet(INPUTS, ids)


@pytest.mark.parametrize(
    "ids",
    [
        [7, 10, 8, 9],
        np.array([7, 10, 8, 9]),
        torch.tensor([7, 10, 8, 9]),
        np.array(["7", "10", "8", "9"]),
        list(torch.tensor([7, 10, 8, 9])),
        ("7", 10, np.int32(8), "9"),
    ],
)
def test_ids_are_names_whatever_holds_them(ids: Any) -> None:
    names = ["7", "10", "8", "9"]
    assert PilotSet(INPUTS, ids).ids == names
    assert PilotSet(INPUTS, ids).digest() == PilotSet(INPUTS, names).digest()
    paired = PilotSet.paired({"a": (ids, INPUTS), "b": (names[::-1], INPUTS.flip(0))})
    assert paired.ids == ["10", "7", "8", "9"]
    assert torch.equal(paired.of("a"), INPUTS[[1, 0, 2, 3]])
    assert torch.equal(paired.of("b"), paired.of("a"))
    more = PilotSet({"b": INPUTS.flip(0)}, names[::-1]).with_inputs("a", INPUTS, ids)
    assert torch.equal(more.of("a"), more.of("b"))


@pytest.mark.parametrize("ids", [[0.5, 1.5, 2.5, 3.5], [None, 1, 2, 3], [True, 1, 2, 3], INPUTS])
def test_ids_that_are_no_names(ids: Any) -> None:
    with pytest.raises(InputError, match="the ids of pilots must be strings or whole numbers, got"):
        PilotSet(INPUTS, ids)
    with pytest.raises(InputError, match="the ids of pilots of agent 'a' must be strings"):
        PilotSet.paired({"a": (ids, INPUTS)})


def test_digests_of_ids_stay() -> None:
    assert PilotSet(INPUTS, IDS).digest() == "10694f492c2afb89a68ae7e72d97df36"


def test_as_pilot_set() -> None:
    pilots = PilotSet(INPUTS)
    assert as_pilot_set(pilots) is pilots
    assert as_pilot_set(INPUTS).digest() == pilots.digest()
    assert as_pilot_set(INPUTS.numpy()).digest() == pilots.digest()
    views = as_pilot_set({"a": INPUTS.numpy(), "b": INPUTS})
    assert torch.equal(views.of("a"), INPUTS)


@pytest.mark.parametrize("given", [None, "pilots", 3, [1, 2]])
def test_what_are_no_pilots(given: Any) -> None:
    with pytest.raises(InputError, match=f"pilots must be .*got {type(given).__name__}"):
        as_pilot_set(given)


def test_integers_are_pilots() -> None:
    tokens = np.arange(8).reshape(4, 2)
    assert as_pilot_set(tokens).of("a").dtype == torch.int64


TOKENS = {"input_ids": torch.arange(8).view(4, 2), "mask": torch.ones(4, 2)}


def test_inputs_of_several_tensors() -> None:
    shared = PilotSet(TOKENS, shared=True)
    assert shared.total == 4
    assert shared.of("anyone") == TOKENS
    assert PilotSet((INPUTS, INPUTS)).of("anyone")[1] is INPUTS
    own = PilotSet({"a": TOKENS, "b": INPUTS})
    assert own.of("a") == TOKENS
    assert own.total == 4
    with pytest.raises(ShapeError, match=r"got \{'a': 4, 'b': 3\}"):
        PilotSet({"a": TOKENS, "b": INPUTS[:3]})
    with pytest.raises(ShapeError, match=r"4 in inputs\['x'\], 3 in inputs\['y'\]"):
        PilotSet({"x": INPUTS, "y": INPUTS[:3]}, shared=True)
    with pytest.raises(InputError, match="must be a mapping from agents to inputs, got Tensor"):
        PilotSet(INPUTS, shared=False)


def test_a_mapping_is_by_agent_if_a_key_is_an_agent_s_name() -> None:
    assert as_pilot_set(TOKENS, agents=["a", "b"]).of("a") == TOKENS
    assert not as_pilot_set({"a": TOKENS, "later": TOKENS}, agents=["a"]).shared
    with pytest.raises(UnknownAgentError, match="no pilots for agent 'b', only for"):
        as_pilot_set({"a": TOKENS, "B": TOKENS}, agents=["a", "b"]).of("b")


def test_digests_tell_the_names_of_parts_apart_but_not_their_order() -> None:
    renamed = {"tokens": TOKENS["input_ids"], "mask": TOKENS["mask"]}
    swapped = dict(zip(TOKENS, reversed(TOKENS.values()), strict=True))
    given = (TOKENS, renamed, swapped, tuple(TOKENS.values()))
    digests = [PilotSet(inputs, shared=True).digest() for inputs in given]
    assert len(set(digests)) == len(digests)
    turned = dict(reversed(TOKENS.items()))
    assert PilotSet(turned, shared=True).digest() == digests[0]


def test_several_tensors_are_paired_by_id() -> None:
    pilots = PilotSet.paired({"a": (IDS, TOKENS), "b": (["z", "w"], INPUTS[:2])})
    assert pilots.of("a")["input_ids"].tolist() == [[0, 1], [6, 7]]
    assert pilots.of("b").tolist() == INPUTS[[1, 0]].tolist()


def test_views_are_paired_by_id_whatever_their_order() -> None:
    eye, ear = torch.arange(5.0), 10 * torch.arange(4.0)
    pilots = PilotSet.paired({"eye": (list("dbace"), eye), "ear": (list("xabd"), ear)})
    assert pilots.ids == ["a", "b", "d"]
    assert pilots.of("eye").tolist() == [2, 1, 0]
    assert pilots.of("ear").tolist() == [10, 20, 30]
    more = pilots.with_inputs("nose", torch.tensor([7.0, 8.0, 9.0, 6.0]), list("dbaq"))
    assert more.of("nose").tolist() == [9, 8, 7]
    assert more.digest() == pilots.digest()


def test_views_that_cannot_be_paired() -> None:
    x = torch.zeros(2)
    with pytest.raises(InputError, match="agent 'a' has pilots with the same id"):
        PilotSet.paired({"a": (["u", "u"], x), "b": (["u", "v"], x)})
    with pytest.raises(EmptyInputError, match=r"\['a', 'b'\] have no pilot id in common"):
        PilotSet.paired({"a": (["u", "v"], x), "b": (["w", "x"], x)})
    with pytest.raises(ShapeError, match="2 pilots need as many ids, got 3"):
        PilotSet.paired({"a": (["u", "v", "w"], x), "b": (["u", "v"], x)})
    paired = PilotSet.paired({"a": (["u", "v"], x)})
    with pytest.raises(InputError, match="have ids, those of agent 'b' have none"):
        paired.with_inputs("b", x)
    with pytest.raises(InputError, match="agent 'b' lacks 1 of the 2 pilots, 'v'"):
        paired.with_inputs("b", x, ["u", "w"])
