import json
import signal
import stat
import sys
from dataclasses import asdict

import pytest

from sheafed.network.status import Status
from tests.helpers.lock_holder import used_by_another
from tests.helpers.zenoh_peers import free_endpoint

OWN = ["--cert", "c/ada.pem", "--key", "c/ada.key", "--ca", "c/authority.pem"]
FILES = ["--cert", "c", "--key", "k", "--ca", "a"]


@pytest.mark.parametrize(
    "command",
    [
        ["agent", "digits", "--name", "ada", "--out", "r", *FILES],
        ["relay", "digits", "--listen", "tls/localhost:1", *FILES],
        ["network", "up", "digits", "--out", "r"],
        ["certs", "r", "ada"],
    ],
)
def test_without_the_packages_each_command_names_the_extra(run, monkeypatch, tmp_path, command):
    for name in [n for n in sys.modules if n.startswith("sheafed.transport.zenoh.certificates")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "zenoh", None)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    code, _, complaint = run(*command)
    assert code == 2
    assert "pip install 'sheafed[network]'" in complaint
    assert not (tmp_path / "r").exists()


def test_certs_writes_files_for_all_names(run, tmp_path):
    code, printed, _ = run("certs", "c", "ada", "bo", "--host", "edge.example")
    assert code == 0
    assert "ada, bo" in printed
    assert sorted(p.stem for p in (tmp_path / "c").glob("*.key")) == ["ada", "authority", "bo"]


def test_certs_renews_revokes_and_replaces_the_authority(run, tmp_path):
    def files():
        return {path.name: path.read_bytes() for path in (tmp_path / "c").iterdir()}

    assert run("certs", "c", "ada", "bo")[0] == 0
    first = files()
    assert run("certs", "c", "ada", "--renew", "--days", "30")[0] == 0
    renewed = files()
    assert {name for name in first if renewed[name] != first[name]} == {"ada.pem", "ada.key"}
    assert run("certs", "c", "ada", "bo", "--new-authority")[0] == 0
    assert {name for name, old in renewed.items() if files()[name] == old} == {"revoked"}
    for _ in range(2):
        code, printed, _ = run("certs", "c", "bo", "--revoke")
        assert (code, (tmp_path / "c" / "revoked").read_text()) == (0, "bo\n")
    assert "copy it to every agent" in printed
    code, _, complaint = run("certs", "c", "bo", "--revoke", "--renew")
    assert code == 2
    assert "exclude each other" in complaint
    assert run("certs", "c", "cy", "--renew")[0] == 2
    assert "cy.pem" not in files()
    code, _, complaint = run("certs", "c", "zed", "bo", "--revoke")
    assert code == 2
    assert "there is no c/zed.pem; check the name" in complaint
    assert files()["revoked"] == b"bo\n"
    code, _, complaint = run("certs", "c", "ada")
    assert code == 2
    assert "c/ada.pem exists already; pass --renew to replace it" in complaint


def test_an_unknown_agent_and_a_missing_file_are_named(run, tmp_path):
    assert run("certs", "c", "ada")[0] == 0
    own = OWN[:-1]
    code, _, complaint = run(
        "agent", "digits", "--name", "zoe", "--out", "r", *own, "c/authority.pem"
    )
    assert code == 2
    assert "unknown agent zoe; agents of this config: ada, bo" in complaint
    assert not (tmp_path / "r").exists()
    code, _, complaint = run(
        "agent", "digits", "--name", "ada", "--out", "r", *own, "c/nothing.pem"
    )
    assert code == 2
    assert "no file c/nothing.pem for the authority" in complaint


def test_a_damaged_secret_is_named(run, tmp_path):
    assert run("certs", "c", "ada")[0] == 0
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "secret").write_text("")
    own = [*OWN, "--listen", free_endpoint()]
    before = signal.getsignal(signal.SIGINT)
    code, _, complaint = run("agent", "digits", "--name", "ada", "--out", "r", *own)
    assert code == 2
    assert "r/secret must hold a number, got ''; restore it" in complaint
    assert signal.getsignal(signal.SIGINT) is before


def test_up_does_not_overwrite_a_directory(run, tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "precious").write_text("x")
    code, _, complaint = run("network", "up", "digits", "--out", "r")
    assert code == 2
    assert "--resume" in complaint


def test_a_second_agent_or_network_in_a_directory_is_refused_before_it_has_a_secret(run, tmp_path):
    assert run("certs", "c", "ada")[0] == 0
    own = [*OWN, "--listen", free_endpoint()]
    with used_by_another(tmp_path / "r"):
        for command in (
            ["agent", "digits", "--name", "ada", "--out", "r", "--resume", *own],
            ["network", "up", "digits", "--out", "r", "--resume"],
        ):
            code, _, complaint = run(*command)
            assert (code, complaint.count("\n")) == (2, 1)
            assert "r is in use: another process or thread writes into it" in complaint
    assert [path.name for path in (tmp_path / "r").iterdir()] == [".lock"]
    assert stat.S_IMODE((tmp_path / "r").stat().st_mode) == 0o700


def test_the_status_names_columns_and_difficulties(run, tmp_path):
    found = Status("ada", "waiting", 3, 9, refused={"bo": "do not agree on the pilot set"})
    (tmp_path / "net" / "ada").mkdir(parents=True)
    (tmp_path / "net" / "ada" / "status.json").write_text(json.dumps(asdict(found)))
    code, printed, _ = run("network", "status", "net")
    assert code == 0
    assert "communication" in printed
    assert "private and communication accuracy" in printed
    assert printed.endswith("ada: does not train with bo: do not agree on the pilot set\n")


@pytest.mark.parametrize(
    ("given", "said"),
    [("none", "none has no agent with a status.json"), ("net/ada", "holds one agent; give net")],
)
def test_a_directory_without_agents_has_no_status(run, tmp_path, given, said):
    (tmp_path / "net" / "ada").mkdir(parents=True)
    (tmp_path / "net" / "ada" / "status.json").touch()
    code, printed, complaint = run("network", "status", given)
    assert (code, printed) == (2, "")
    assert said in complaint


def test_what_cannot_be_linked_or_is_in_use_is_refused_before_anything_is_opened(run, tmp_path):
    assert run("certs", "c", "ada", "bo")[0] == 0
    assert run("certs", "other", "ada")[0] == 0
    agent, listen = (
        ["agent", "digits", "--name", "ada", "--out", "r"],
        ["--listen", "tls/nowhere:1"],
    )
    code, _, complaint = run(*agent, *OWN)
    assert code == 2
    assert "'ada' would be linked to nobody; give --listen, or --connect" in complaint
    files = ["--cert", "c/ada.pem", "--key", "c/bo.key", "--ca", "c/authority.pem"]
    code, _, complaint = run(*agent, *files, *listen)
    assert code == 2
    assert "c/bo.key is not the key of c/ada.pem" in complaint
    files = ["--cert", "c/ada.pem", "--key", "c/ada.key", "--ca", "other/authority.pem"]
    for command in ([*agent, *listen], ["relay", "digits", *listen]):
        code, _, complaint = run(*command, *files)
        assert code == 2
        assert "c/ada.pem was not issued by an authority of other/authority.pem" in complaint
    (tmp_path / "r" / "checkpoint.safetensors").touch()
    code, _, complaint = run(*agent, *OWN, *listen)
    assert code == 2
    assert "r already holds a run; give --resume" in complaint
