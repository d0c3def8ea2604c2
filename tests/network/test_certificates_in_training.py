"""Certificates that are renewed, replaced and revoked while processes train together."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from sheafed.checkpointing.checkpoint import load_checkpoint
from sheafed.config.federation import build_federation
from sheafed.config.reading import read_experiment
from sheafed.network.launcher import CERTIFICATES, LOG
from sheafed.network.status import Status, read_statuses
from sheafed.training import train
from sheafed.transport.zenoh.certificates import (
    make_certificates,
    renew_certificates,
    replace_authority,
    revoke_names,
)
from tests.helpers.preloaded_launcher import PreloadedLauncher

CONFIG = """
[data]
name = "digits"
partition = "iid"
samples = 400
pilot_fraction = 0.2
split = [0.5, 0.1, 0.4]

[[model.agents]]
name = "a"
encoder = "mlp"
widths = [16]

[[model.agents]]
name = "b"
encoder = "mlp"
widths = [12]

[[model.agents]]
name = "c"
encoder = "mlp"
widths = [8]

[graph]
kind = "complete"

[method]
name = "custom"
factory = "unhurried:Unhurried"

[training]
epochs = {epochs}
batch_size = 16
evaluate_every = {epochs}
checkpoint_every = 1000
oracle = false
"""
CODE = """
import time
from pathlib import Path
from sheafed import SheafFRL

class Unhurried(SheafFRL):
    def node(self, context):
        node, go = super().node(context), Path(__file__).with_name("go")
        send = node.send
        def unhurried(round):
            if not go.exists():
                time.sleep(0.01 if round < 40 else 0.3)
            return send(round)
        node.send = unhurried
        return node
"""
"""Rounds take their time until the file `go` exists, so that others can be replaced before."""
NAMES = ("a", "b", "c")


def launch(directory: Path, epochs: int) -> PreloadedLauncher:
    config, code = directory / "config.toml", directory / "unhurried.py"
    config.write_text(CONFIG.format(epochs=epochs))
    code.write_text(CODE)
    make_certificates(directory / CERTIFICATES, NAMES)
    experiment = read_experiment(config, ["method.name=sheaf-frl"])
    graph = build_federation(experiment, only=[]).graph
    options = ["--allow-code", str(code), "--deadline", "60"]
    return PreloadedLauncher(str(config), graph, directory, options)


def wait_until(out: Path, condition: Callable[[dict[str, Status]], bool]) -> None:
    end = time.monotonic() + 120
    while not condition(read_statuses(out)):
        assert time.monotonic() < end, logs(out)
        time.sleep(0.02)


def logs(out: Path) -> str:
    return "\n".join(path.read_text()[-3000:] for path in sorted(out.glob(f"*/{LOG}")))


def opened_anew(out: Path, name: str) -> int:
    return (out / name / LOG).read_text().count("opened its links anew")


def in_one_process(config: Path) -> dict[str, dict[str, torch.Tensor]]:
    experiment = read_experiment(config, ["method.name=sheaf-frl"])
    built = build_federation(experiment)
    network = train(
        *(built.agents, built.graph, built.method, built.pilots),
        epochs=experiment.training.epochs,
        seed=experiment.seed,
        evaluate_every=experiment.training.evaluate_every,
        oracle=False,
        progress=False,
    )
    return {name: agent.encoder.state_dict() for name, agent in network.agents.items()}


def test_new_certificates_and_a_new_authority_cost_no_message(tmp_path: Path) -> None:
    """Without a restart, and with the weights of a training that nothing disturbed."""
    with launch(tmp_path, epochs=22) as launcher:
        launcher.start()
        wait_until(tmp_path, lambda s: len(s) == 3 and all(a.round >= 5 for a in s.values()))
        renew_certificates(tmp_path / CERTIFICATES, "b")
        wait_until(tmp_path, lambda _: opened_anew(tmp_path, "b") == 1)
        replace_authority(tmp_path / CERTIFICATES, NAMES)
        wait_until(
            tmp_path, lambda _: all(opened_anew(tmp_path, n) == 1 + (n == "b") for n in NAMES)
        )
        assert all(a.state == "training" for a in read_statuses(tmp_path).values())
        (tmp_path / "go").touch()
        assert set(launcher.wait(100).values()) == {0}, logs(tmp_path)
    expected = in_one_process(tmp_path / "config.toml")
    for name in NAMES:
        summary: dict[str, Any] = json.loads((tmp_path / name / "summary.json").read_text())
        faults = {key: summary[key] for key in ("missed_rounds", "left_out", "reused")}
        assert faults == {"missed_rounds": 0, "left_out": {}, "reused": {}}, logs(tmp_path)
        weights = load_checkpoint(tmp_path / name / "last.safetensors")["encoder"]
        torch.testing.assert_close(weights, expected[name], rtol=0, atol=0)


def test_the_others_go_on_without_a_revoked_agent_and_refuse_its_return(tmp_path: Path) -> None:
    with launch(tmp_path, epochs=100_000) as launcher:
        launcher.start()
        wait_until(tmp_path, lambda s: len(s) == 3 and all(a.round >= 5 for a in s.values()))
        revoke_names(tmp_path / CERTIFICATES, "c")
        wait_until(tmp_path, lambda s: s["a"].absent == s["b"].absent == ["c"])
        launcher.processes["c"].kill()
        launcher.processes["c"].wait()
        before = read_statuses(tmp_path)
        launcher.start("c")  # from its checkpoint, with its own key and certificate
        wait_until(tmp_path, lambda s: s["a"].unknown_peers.get("c", 0) > 0)
        wait_until(tmp_path, lambda s: all(s[n].round > before[n].round + 2 for n in "ab"))
        after = read_statuses(tmp_path)
        assert after["a"].absent == after["b"].absent == ["c"]
        assert (after["a"].present, after["b"].present) == (["b"], ["a"])
    assert "a: neighbour c is revoked" in (tmp_path / "a" / LOG).read_text()
