import gzip

import pytest
import torch

from sheafed.datasets.idx import gunzip, parse_idx
from sheafed.errors import DataFormatError
from tests.helpers.mirrors import idx

GOOD = idx((2, 3), bytes([1, 2, 3, 4, 5, 255]))


@pytest.mark.parametrize("content", [GOOD, gzip.compress(GOOD, mtime=0)], ids=["plain", "gzip"])
def test_reads_bytes_in_their_shape(content):
    read = parse_idx(content, "f")
    assert read.dtype == torch.uint8
    assert read.tolist() == [[1, 2, 3], [4, 5, 255]]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not an IDX file.*got nothing"),
        (b"PK\3\4....", "not an IDX file.*50 4b 03 04"),
        (b"\0\0\x08\0", "not an IDX file"),
        (b"\0\0\x0d\1\0\0\0\1....", "0x0d"),
        (GOOD[:9], "2 sizes.*ends after 9 bytes"),
        (GOOD[:-1], r"6 bytes for its shape \(2, 3\), got 5"),
        (GOOD + b"?", "got 7"),
        (idx((0, 3), b""), "empty"),
        (gzip.compress(GOOD, mtime=0)[:-9], "cut short"),
        (b"\x1f\x8bnonsense", "cannot be decompressed"),
    ],
)
def test_anything_else_is_an_error_that_names_the_file(content, said):
    with pytest.raises(DataFormatError, match=f"(?s)^some-file.*{said}"):
        parse_idx(content, "some-file")


def test_a_small_file_cannot_unpack_to_a_huge_one():
    with pytest.raises(DataFormatError, match="more than the 100 bytes"):
        gunzip(gzip.compress(bytes(10**7), mtime=0), "bomb", limit=100)
    assert gunzip(gzip.compress(bytes(100), mtime=0), "just", limit=100) == bytes(100)
