import random
import socket
import threading
import time

import pytest

from sheafed.datasets.download import download
from sheafed.errors import SourceError
from tests.helpers.mirrors import serving

CONTENT = random.Random(0).randbytes(200_000)


@pytest.fixture
def served():
    with serving() as served:
        served.files["/f"] = CONTENT
        yield served


def get(served, path, **options):
    download(f"{served.base}f", path, **{"limit": 10**6, "pause": 0.01} | options)
    return path.read_bytes()


def test_a_whole_file_arrives_with_one_request(served, tmp_path):
    assert get(served, tmp_path / "f") == CONTENT
    assert served.asked == [("/f", None)]


def test_a_dropped_transfer_goes_on_where_it_stopped(served, tmp_path):
    served.cut = [1000, 70_000]
    assert get(served, tmp_path / "f") == CONTENT
    assert [r for _, r in served.asked] == [None, "bytes=1000-", "bytes=71000-"]


def test_a_partial_file_of_an_earlier_process_is_continued(served, tmp_path):
    (tmp_path / "f").write_bytes(CONTENT[:5000])
    assert get(served, tmp_path / "f") == CONTENT
    assert served.asked == [("/f", "bytes=5000-")]


def test_a_server_that_cannot_resume_is_read_from_the_start(served, tmp_path):
    (tmp_path / "f").write_bytes(b"x" * 5000)
    served.resumes = False
    assert get(served, tmp_path / "f") == CONTENT


def test_a_partial_file_that_is_too_long_is_begun_anew(served, tmp_path):
    (tmp_path / "f").write_bytes(b"x" * 300_000)
    assert get(served, tmp_path / "f") == CONTENT
    assert [r for _, r in served.asked] == ["bytes=300000-", None]


@pytest.mark.parametrize("extent", ["bytes 7-199999/200000", "nonsense"])
def test_a_server_that_sends_another_part_is_not_believed(served, tmp_path, extent):
    (tmp_path / "f").write_bytes(CONTENT[:5000])
    served.extent = [extent]
    assert get(served, tmp_path / "f") == CONTENT
    assert len(served.asked) == 2


def test_a_transfer_that_stalls_is_taken_up_again(served, tmp_path):
    served.cut, served.stall = [1000], threading.Event()
    assert get(served, tmp_path / "f", timeout=0.3) == CONTENT
    assert [r for _, r in served.asked] == [None, "bytes=1000-"]
    served.stall.set()


def test_a_busy_server_is_asked_again(served, tmp_path):
    served.answer = [503, 429]
    assert get(served, tmp_path / "f") == CONTENT


def test_attempts_end_and_keep_what_arrived(served, tmp_path):
    served.cut = [100, 100, 100]
    with pytest.raises(SourceError, match=r"closed after 300 of 200000 bytes.*3 attempts"):
        get(served, tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == CONTENT[:300]
    assert get(served, tmp_path / "f") == CONTENT


def test_a_missing_file_is_not_asked_for_twice(served, tmp_path):
    del served.files["/f"]
    with pytest.raises(SourceError, match="404"):
        get(served, tmp_path / "f")
    assert len(served.asked) == 1


def test_a_file_that_is_too_large_is_given_up(served, tmp_path):
    with pytest.raises(SourceError, match="more than the 150000 bytes"):
        get(served, tmp_path / "f", limit=150_000)
    assert (tmp_path / "f").stat().st_size == 0


def test_a_silent_server_costs_one_timeout(served, tmp_path):
    served.silent = threading.Event()
    begun = time.monotonic()
    with pytest.raises(SourceError, match=r"no answer within 0\.3 s"):
        get(served, tmp_path / "f", timeout=0.3)
    assert time.monotonic() - begun < 2
    served.silent.set()


def test_an_unreachable_server_is_given_up_at_once(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(SourceError, match="refused"):
        download(f"http://127.0.0.1:{port}/f", tmp_path / "f", limit=10, pause=60)
