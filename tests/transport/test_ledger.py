import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from sheafed.errors import InputError
from sheafed.transport import Ledger, LedgerState, Row

ROWS = [
    Row(0, "a", "b", "latents", 100, 400),
    Row(0, "b", "a", "latents", 110, 300),
    Row(0, "a", "b", "distillation", 90, 40),
    Row(2, "a", "c", "latents", 100, 0),
    Row(2, "a", "b", "latents", 100, 400),
]


def ledger_of(rows: list[Row]) -> Ledger:
    ledger = Ledger()
    for row in rows:
        ledger.record(*row)
    return ledger


def test_totals() -> None:
    ledger = ledger_of(ROWS)
    assert len(ledger) == 5
    assert ledger.bytes_sent() == 1640
    assert ledger.payload_bytes() == 1140
    assert ledger.bytes_sent("distillation") == 130
    assert ledger.payload_bytes("latents") == 1100
    assert ledger.bytes_sent("nothing") == ledger.payload_bytes("nothing") == 0


def test_rows_come_back_in_order() -> None:
    assert list(ledger_of(ROWS).rows()) == ROWS
    assert list(ledger_of(ROWS).rows(1, 3)) == ROWS[1:3]
    assert list(ledger_of(ROWS).rows(3)) == ROWS[3:]


def test_per_edge_and_per_round() -> None:
    ledger = ledger_of(ROWS)
    assert ledger.per_edge() == {
        ("a", "b"): (3, 290, 840),
        ("b", "a"): (1, 110, 300),
        ("a", "c"): (1, 100, 0),
    }
    assert ledger.per_round() == {0: (3, 300, 740), 2: (2, 200, 400)}
    assert list(ledger.per_round()) == [0, 2]
    assert ledger.per_round()[0].payload_bytes == 740


def test_empty() -> None:
    ledger = Ledger()
    assert (ledger.bytes_sent(), ledger.per_edge(), ledger.per_round()) == (0, {}, {})
    assert list(Ledger.from_state(ledger.state()).rows()) == []


def test_a_name_may_be_both_an_agent_and_a_kind() -> None:
    rows = [Row(0, "x", "y", "x", 1, 2)]
    ledger = Ledger.from_state(ledger_of(rows).state())
    assert list(ledger.rows()) == rows
    assert ledger.bytes_sent("x") == 3
    assert ledger.bytes_sent("y") == 0


def test_a_state_survives_a_file_and_is_continued(tmp_path: Path) -> None:
    state = ledger_of(ROWS).state()
    save_file({"rows": state["rows"]}, tmp_path / "ledger.safetensors")
    names = json.loads(json.dumps(state["names"]))
    rows = load_file(tmp_path / "ledger.safetensors")["rows"]
    restored = Ledger.from_state(LedgerState(rows=rows, names=names))
    whole = ledger_of(ROWS * 2)
    for row in ROWS:
        restored.record(*row)
    assert list(restored.rows()) == list(whole.rows())
    assert restored.bytes_sent("latents") == whole.bytes_sent("latents")
    assert torch.equal(restored.state()["rows"], whole.state()["rows"])
    assert restored.state()["names"] == whole.state()["names"]


def test_state_is_a_copy() -> None:
    ledger = ledger_of(ROWS)
    state = ledger.state()
    state["rows"].zero_()
    state["names"].clear()
    ledger.record(*ROWS[0])
    assert list(ledger.rows()) == [*ROWS, ROWS[0]]


def test_large_counts_agree_with_plain_sums() -> None:
    draw = np.random.default_rng(0)
    columns = draw.integers([50, 15, 15, 2, 1000, 10**12], size=(2000, 6)).tolist()
    rows = [Row(r, f"a{i}", f"a{j}", f"k{k}", h, p) for r, i, j, k, h, p in columns]
    ledger = ledger_of(rows)
    payload: Counter[tuple[str, str]] = Counter()
    for row in rows:
        payload[row.sender, row.receiver] += row.payload_bytes
    assert {edge: total.payload_bytes for edge, total in ledger.per_edge().items()} == payload
    assert sum(t.messages for t in ledger.per_round().values()) == 2000
    assert ledger.payload_bytes() == sum(payload.values())


def test_a_hundred_thousand_rows_take_little_memory() -> None:
    ledger = Ledger()
    for number in range(100_000):
        ledger.record(number // 84, "a", "b", "latents", 128, 4096)
    state = ledger.state()
    assert state["rows"].nbytes == 4_800_000
    assert state["names"] == ["a", "b", "latents"]
    assert ledger.bytes_sent() == 100_000 * 4224
    assert len(ledger.per_round()) == 1191


def test_a_limit_bounds_rows_and_keeps_sums() -> None:
    """Against a ledger that keeps every message, for many more rounds than the limit has rows."""
    bounded, whole = Ledger(limit=64), Ledger()
    draw, largest = np.random.default_rng(0), 0
    for round in range(3000):
        for receiver, kind in (("b", "latents"), ("c", "latents"), ("b", "answers")):
            sent = (round, "a", receiver, kind, *draw.integers(1, 10**6, 2).tolist())
            bounded.record(*sent)
            whole.record(*sent)
        state = bounded.state()
        largest = max(largest, len(state["rows"]) + len(state.get("sums", ())))
        if round == 1500:
            bounded = Ledger(limit=64)
            bounded.restore(state)
    assert largest <= 64 + 32
    assert bounded.per_edge() == whole.per_edge()
    for kind in (None, "latents", "answers"):
        assert bounded.bytes_sent(kind) == whole.bytes_sent(kind)
        assert bounded.payload_bytes(kind) == whole.payload_bytes(kind)
    found, exact = bounded.per_round(), whole.per_round()
    width = bounded.state()["width"]
    assert 3000 / 32 <= width <= 1024, "merged as few rounds as it takes"
    for first in range(0, 2048, 1024):
        rounds = range(first, first + 1024)
        pooled = [sum(column) for column in zip(*(exact[r] for r in rounds), strict=True)]
        merged = [found[r] for r in rounds if r in found]
        assert [sum(column) for column in zip(*merged, strict=True)] == pooled


def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    bounded = Ledger(limit=len(ROWS) + 1)
    for row in ROWS:
        bounded.record(*row)
    assert list(bounded.rows()) == ROWS
    assert sorted(bounded.state()) == ["names", "rows"]


def test_more_edges_than_the_limit_are_all_kept() -> None:
    ledger = Ledger(limit=4)
    for round in range(3):
        for receiver in "bcdefghij":
            ledger.record(round, "a", receiver, "latents", 1, 10)
    assert {edge: total.messages for edge, total in ledger.per_edge().items()} == {
        ("a", receiver): 3 for receiver in "bcdefghij"
    }


@pytest.mark.parametrize("bad", [(-1, 0, 0), (0, -1, 0), (0, 0, -1)])
def test_negative_counts_are_refused(bad: tuple[int, int, int]) -> None:
    round, header, payload = bad
    ledger = Ledger()
    with pytest.raises(InputError, match="at least 0, got"):
        ledger.record(round, "a", "b", "latents", header, payload)
    assert len(ledger) == 0


@pytest.mark.parametrize(
    ("rows", "names", "explanation"),
    [
        (torch.zeros(2, 5, dtype=torch.int64), ["a"], r"shape \(n, 6\), got .* \(2, 5\)"),
        (torch.zeros(6, dtype=torch.int64), ["a"], r"shape \(n, 6\), got .* \(6,\)"),
        (torch.zeros(2, 6), ["a"], "must be int64 .* got torch.float32"),
        (torch.zeros(2, 6, dtype=torch.int64), [], "the 0 names"),
        (torch.full((2, 6), 2), ["a", "b"], "the 2 names, got 2 .* and 2"),
        (torch.full((2, 6), -1), ["a", "b"], "at least 0"),
        (torch.zeros(2, 6, dtype=torch.int64), ["a", "a"], r"must be unique, got \['a', 'a'\]"),
    ],
)
def test_a_broken_state_is_refused(rows: torch.Tensor, names: list[str], explanation: str) -> None:
    with pytest.raises(InputError, match=explanation):
        Ledger.from_state(LedgerState(rows=rows, names=names))
