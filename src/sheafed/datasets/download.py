"""Downloads that resume where they stopped."""

import queue
import re
import time
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from threading import Thread
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from sheafed.errors import SourceError

CHUNK = 1 << 16
RETRIED = {408, 416, 429}  # the status codes below 500 after which a retry may succeed


class _DroppedError(Exception):
    """A transfer failed in a way that a retry may mend."""


def download(
    url: str,
    partial: Path,
    *,
    limit: int,
    attempts: int = 3,
    timeout: float = 5.0,
    pause: float = 0.5,
) -> None:
    """Complete the file `partial` from `url`, resuming from the bytes that it already holds.

    After a dropped transfer or from a busy server it is tried again, `attempts` times in all, after
    growing pauses; an unreachable server is not, since another source is faster. On failure
    `partial` keeps what has arrived, so that the next call resumes from there.

    Args:
        url: where the file is.
        partial: the unfinished file; it need not exist.
        limit: the largest size in bytes that the file may have.
        attempts: how often to try.
        timeout: seconds without an answer or without a byte after which to give up an attempt.
        pause: seconds before the second attempt; doubled before each further one.
    """
    name, reason = url.rpartition("/")[2], ""
    for attempt in range(attempts):
        if attempt:
            time.sleep(pause * 2 ** (attempt - 1))
        try:
            _resume(url, partial, limit, timeout)
        except _DroppedError as error:
            reason = str(error)
        else:
            return
    raise SourceError(f"{name}: {reason} (gave up after {attempts} attempts)")


def _resume(url: str, partial: Path, limit: int, timeout: float) -> None:
    name = url.rpartition("/")[2]
    held = partial.stat().st_size if partial.exists() else 0
    headers = {"User-Agent": "sheafed", "Accept-Encoding": "identity"}
    if held:
        headers["Range"] = f"bytes={held}-"
    try:
        response = _open(Request(url, headers=headers), timeout)
    except HTTPError as error:
        with error:
            if error.code == 416:  # what is held is not a beginning of what the server has
                partial.unlink(missing_ok=True)
            if error.code >= 500 or error.code in RETRIED:
                raise _DroppedError(f"the server answered {error.code} {error.reason}") from error
            raise SourceError(f"{name}: the server answered {error.code} {error.reason}") from error
    except URLError as error:
        raise SourceError(f"{name}: {error.reason}") from error
    with response:
        begin, total = _extent(response)
        if begin not in (0, held):
            partial.unlink()
            raise _DroppedError(f"requested the bytes from {held} on, got those from {begin} on")
        with partial.open("ab" if begin else "wb") as file:
            for chunk in _chunks(response):
                if file.tell() + len(chunk) > limit:
                    file.truncate(0)
                    raise SourceError(f"{name}: sent more than the {limit} bytes expected")
                file.write(chunk)
                if file.tell() == total:  # some servers do not close the connection
                    break
            arrived = file.tell()
    if total is not None and arrived < total:
        raise _DroppedError(f"the connection closed after {arrived} of {total} bytes")


def _extent(response: HTTPResponse) -> tuple[int, int | None]:
    """Return where the answer begins in the file, and the file's size if it is known."""
    if response.status == 206:
        extent = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers["Content-Range"] or "")
        if extent is None:
            raise _DroppedError("the server sent a part of the file without a valid Content-Range")
        return int(extent[1]), None if extent[2] == "*" else int(extent[2])
    length = response.headers["Content-Length"]
    return 0, int(length) if length and length.isdigit() else None


def _chunks(response: HTTPResponse) -> Iterator[bytes]:
    while True:
        try:
            chunk = response.read1(CHUNK)  # what has arrived, so that a stall loses nothing
        except (OSError, HTTPException) as error:
            raise _DroppedError(f"the transfer broke off ({error!r})") from error
        if not chunk:
            return
        yield chunk


def _open(request: Request, timeout: float) -> HTTPResponse:
    """Open a URL within `timeout` seconds in all.

    The timeout of `urlopen` holds for each address of a host anew and not for the look-up of its
    name: behind a firewall that drops packets a minute could pass. Hence the thread.
    """
    answer: queue.SimpleQueue[HTTPResponse | URLError | _DroppedError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answer.put(urlopen(request, timeout=timeout))
        except URLError as error:
            answer.put(error)
        except (OSError, HTTPException) as error:
            answer.put(_DroppedError(f"no answer came ({error!r})"))

    Thread(target=ask, daemon=True).start()
    try:
        got = answer.get(timeout=timeout)
    except queue.Empty:
        raise URLError(f"no answer within {timeout:g} s") from None
    if isinstance(got, Exception):
        raise got
    return got
