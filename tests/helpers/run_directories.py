"""Run directories made by hand, so that a test knows every number in them."""

import json
import random

from sheafed.checkpointing.checkpoint import save_checkpoint
from sheafed.transport.ledger import Ledger

NAMES = ("ada", "bo", "cy", "dee")
HOSTILE = (
    "<script>window.broken=1</script>",
    "<img src=x onerror=window.broken=1>",
    "</script><script>window.broken=1</script>",
    "\"'><b onmouseover='window.broken=1'>bold & %{x} $title {run}",
)


def write_run(
    path, names=NAMES, *, seed=0, epochs=6, rounds_per_epoch=5, config=True, finished=True
):
    """Write what `sheafed run` would on a ring of agents; return the summary."""
    path.mkdir(parents=True)
    random_ = random.Random(seed)
    links = sorted({tuple(sorted((a, names[k - 1]))) for k, a in enumerate(names)})
    pairs = [pair for a, b in links for pair in ((a, b), (b, a))]
    ledger, records = Ledger(), []
    for sender, receiver in pairs:
        ledger.record(0, sender, receiver, "hello", 150, 0)
    for round in range(epochs * rounds_per_epoch):
        for k, (sender, receiver) in enumerate(pairs):
            ledger.record(round, sender, receiver, "round", 100 + k, 4096 * (1 + k))
        if (round + 1) % rounds_per_epoch == 0:
            records.append(
                _record((round + 1) // rounds_per_epoch, round + 1, names, ledger, random_)
            )
    traffic = ledger.per_edge()
    misalignment = {link: 0.1 + 0.3 * random_.random() for link in links}
    summary = {
        "method": "Sheaf-FRL",
        "seed": seed,
        "epochs": epochs,
        **{key: records[-1][key] for key in METRICS},
        "best": None,
        "bytes_sent": ledger.bytes_sent(),
        "payload_bytes": ledger.payload_bytes(),
        "rounds": epochs * rounds_per_epoch,
        "seconds": 12.345678 + seed,
        "peak_memory_bytes": 10**8,
        "agents": {
            name: {
                "dimension": 16,
                "neighbours": sorted({a for pair in links if name in pair for a in pair} - {name}),
                "training_samples": 300,
                **records[-1]["agents"][name],
            }
            for name in names
        },
        "edges": [
            {
                "sender": sender,
                "receiver": receiver,
                "communication_accuracy": 0.5 + 0.3 * random_.random(),
                "oracle_accuracy": 0.6 + 0.3 * random_.random(),
                "misalignment": misalignment[tuple(sorted((sender, receiver)))],
                "bytes_sent": sum(traffic[sender, receiver][1:]),
            }
            for sender, receiver in pairs
        ],
    }
    (path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    if finished:
        (path / "summary.json").write_text(json.dumps(summary, indent=2))
    if config:
        settings = {
            "data": {"name": "digits", "shift": 0.7},
            "method": {"name": "sheaf-frl", "penalty": 0.1 * (1 + seed), "maps": {"every": 1}},
            "training": {"epochs": epochs if finished else 2 * epochs},
            "seed": seed,
        }
        (path / "config.json").write_text(json.dumps(settings))
    state = {
        "identity": {"method": "SheafFRL()", "seed": seed, "agents": list(names), "graph": links},
        "rounds": epochs * rounds_per_epoch,
        "seconds": 11.0,
        "ledger": dict(ledger.state()),
    }
    state["identity"]["graph"] = [list(link) for link in links]
    save_checkpoint(path / "checkpoint.safetensors", state)
    return summary


METRICS = ("private_accuracy", "communication_accuracy", "oracle_accuracy", "misalignment")


def _record(epoch, round, names, ledger, random_):
    grown = 1 - 0.7 / epoch - 0.05 * random_.random()
    return {
        "epoch": epoch,
        "round": round,
        "private_accuracy": grown,
        "communication_accuracy": grown - 0.1,
        "communication_accuracy_degree_weighted": grown - 0.1,
        "oracle_accuracy": grown - 0.05,
        "misalignment": 0.5 / epoch,
        "loss": 2.0 / epoch,
        "penalty": 0.1 / epoch,
        "bytes_sent": ledger.bytes_sent(),
        "payload_bytes": ledger.payload_bytes(),
        "agents": {
            name: {
                "private_accuracy": 0.7 + 0.3 * random_.random(),
                "communication_accuracy": 0.6 + 0.3 * random_.random(),
            }
            for name in names
        },
    }
