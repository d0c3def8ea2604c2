import sys

import pytest

from sheafed.cli import main


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Call the command line from an empty directory; return its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["sheafed", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return call
