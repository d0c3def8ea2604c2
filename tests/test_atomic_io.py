import os
import stat
from pathlib import Path
from urllib.parse import unquote

import pytest

from sheafed.atomic_io import (
    UNFINISHED,
    file_name,
    make_directory,
    write_atomically,
    write_privately,
    written_atomically,
)
from sheafed.errors import OutputError


def fail(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_writes_and_replaces(tmp_path: Path) -> None:
    path = tmp_path / "state"
    for content in (b"first, and longer", b"second", b""):
        write_atomically(path, content)
        assert path.read_bytes() == content
        assert os.listdir(tmp_path) == ["state"]


def test_takes_over_what_a_killed_writer_left(tmp_path: Path) -> None:
    (tmp_path / f"state{UNFINISHED}").write_bytes(b"left over, and longer than what follows")
    write_atomically(tmp_path / "state", b"new")
    assert os.listdir(tmp_path) == ["state"]
    assert (tmp_path / "state").read_bytes() == b"new"


@pytest.mark.parametrize(("owner", "step"), [(os, "fsync"), (Path, "replace")])
def test_a_failure_keeps_the_old_content_and_cleans_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, step: str
) -> None:
    path = tmp_path / "state"
    write_atomically(path, b"old")
    monkeypatch.setattr(owner, step, fail)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert os.listdir(tmp_path) == ["state"]
    assert path.read_bytes() == b"old"


def test_the_content_is_durable_before_the_rename_and_the_rename_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "state", []
    fsync = os.fsync

    def watch(descriptor: int) -> None:
        kind = "directory" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        seen.append((kind, os.fstat(descriptor).st_size if kind == "file" else 0, path.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    write_atomically(path, b"12345")
    assert seen == [("file", 5, False), ("directory", 0, True)]


def test_a_system_that_cannot_open_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_DIRECTORY")
    write_atomically(tmp_path / "state", b"new")
    assert (tmp_path / "state").read_bytes() == b"new"


class Killed(BaseException):
    """Nothing of the writer runs after it."""


def test_a_private_file_is_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def kill(_: int) -> None:
        raise Killed

    path = tmp_path / "secret"
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", kill)
        with pytest.raises(Killed):
            write_privately(path, b"42")
    assert not path.exists()
    (tmp_path / f"secret{UNFINISHED}").chmod(0o644)
    write_privately(path, b"43")
    assert os.listdir(tmp_path) == ["secret"]
    assert path.read_bytes() == b"43"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(FileExistsError, match="secret exists already"):
        write_privately(path, b"44")
    assert path.read_bytes() == b"43"


def test_a_private_file_replaces_one_that_others_could_read(tmp_path: Path) -> None:
    path, left = tmp_path / "state", tmp_path / f"state{UNFINISHED}"
    for old in (path, left):
        old.write_bytes(b"old")
        old.chmod(0o644)
    write_atomically(path, b"new", private=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["state"]


def test_a_private_directory_is_closed_and_those_above_are_not(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        make_directory(tmp_path / "runs" / "mine", private=True)
        make_directory(tmp_path / "figures")
    finally:
        os.umask(before)
    modes = [
        stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("runs", "runs/mine", "figures")
    ]
    assert modes == [0o755, 0o700, 0o755]


def test_what_cannot_be_written_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "none" / "state"
    with pytest.raises(OutputError, match=r"cannot write .*none.state: No such file.*; make room"):
        write_atomically(missing, b"new")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(
        OutputError, match=r"cannot write .*state: No space left on device"
    ) as found:
        write_atomically(tmp_path / "state", b"new")
    assert found.value.strerror == "No space left on device"
    with (
        pytest.raises(OutputError, match=r"cannot write .*parts: No space"),
        written_atomically(tmp_path / "parts") as file,
    ):
        file.write(b"new")


def test_a_file_written_in_parts_replaces_the_old_one_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")
    with written_atomically(path) as file:
        file.write(b"ne")
        assert path.read_bytes() == b"old"
        file.write(b"w")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["state"]


@pytest.mark.parametrize("problem", [OSError, KeyboardInterrupt])
def test_a_failure_between_parts_keeps_the_old_content(
    tmp_path: Path, problem: type[BaseException]
) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")

    def write() -> None:
        with written_atomically(path) as file:
            file.write(b"ne")
            raise problem

    with pytest.raises(problem):
        write()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state"]


@pytest.mark.parametrize(
    "name", ["con", "NUL.txt", "lpt1", "aux ", "a/b", "a:b", "..", "x.", "%41"]
)
def test_a_file_name_is_one_that_windows_and_unix_accept(name: str) -> None:
    made = file_name(name)
    assert not set(made) & set('<>:"/\\|?*')
    assert made[-1] not in ". "
    assert made.partition(".")[0].strip().lower() not in {"con", "nul", "aux", "lpt1"}
    assert unquote(made) == name  # so no two names share a file
