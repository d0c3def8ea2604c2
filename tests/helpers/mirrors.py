"""A local web server that misbehaves on request, and a tiny data set for it to serve."""

import gzip
import re
import struct
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from sheafed.datasets.cache import RemoteFiles
from sheafed.datasets.sources import DataFile


def idx(shape, values):
    return b"\0\0\x08" + bytes([len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + values


CONTENTS = {
    "train-images": idx((6, 4, 5), bytes(k % 251 for k in range(120))),
    "train-labels": idx((6,), bytes([0, 1, 2, 0, 1, 2])),
    "test-images": idx((2, 4, 5), bytes(range(40))),
    "test-labels": idx((2,), bytes([2, 0])),
}
FILES = tuple(DataFile(n, len(c), sha256(c).hexdigest()) for n, c in CONTENTS.items())


def dataset(*sources):
    return RemoteFiles("tiny", FILES, sources)


@dataclass
class Served:
    """What the server has, what it does, and what it was asked."""

    files: dict = field(
        default_factory=lambda: {f"/{n}.gz": gzip.compress(c) for n, c in CONTENTS.items()}
    )
    resumes: bool = True
    cut: list = field(default_factory=list)  # bytes after which each next answer breaks off
    stall: threading.Event | None = None  # hold the connection open after a cut
    extent: list = field(default_factory=list)  # Content-Range headers to give first
    answer: list = field(default_factory=list)  # status codes to give first
    silent: threading.Event | None = None  # say nothing until it is set
    asked: list = field(default_factory=list)  # (path, Range header)
    base: str = ""


@contextmanager
def serving():
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            wanted = self.headers["Range"]
            served.asked.append((self.path, wanted))
            if served.silent is not None:
                served.silent.wait(10)
                return
            if served.answer:
                self.send_error(served.answer.pop(0))
                return
            if self.path not in served.files:
                self.send_error(404)
                return
            content = served.files[self.path]
            begin = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted else 0
            if begin >= len(content) and begin:
                self.send_error(416)
                return
            if begin and served.resumes:
                self.send_response(206)
                extent = f"bytes {begin}-{len(content) - 1}/{len(content)}"
                self.send_header("Content-Range", served.extent.pop(0) if served.extent else extent)
            else:
                begin = 0
                self.send_response(200)
            body = content[begin:]
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if not served.cut:
                self.wfile.write(body)
                return
            self.wfile.write(body[: served.cut.pop(0)])
            if served.stall is not None:
                served.stall.wait(10)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
    served.base = f"http://127.0.0.1:{server.server_port}/"
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
