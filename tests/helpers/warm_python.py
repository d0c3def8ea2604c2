"""A program in the place of `sys.executable`, whose processes are forked where torch is loaded.

It knows `-m sheafed` only. Whoever starts it has its output, its exit code or the signal that
ended it, and may end it by SIGTERM. The process that does the work is a child of the server.
"""

import json
import os
import socket
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

from sheafed.cli import main
from tests.helpers import warm_processes

PROGRAM = """#!{python} -IS
import json, os, signal, socket, sys

server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
socket.send_fds(server, [b"."], [0, 1, 2])
lines = server.makefile("rw")
print(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]), file=lines, flush=True)
worker = int(lines.readline())
signal.signal(signal.SIGTERM, lambda *_: os.kill(worker, signal.SIGTERM))
code = int(lines.readline())
if code < 0:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@contextmanager
def warm_python() -> Iterator[str]:
    """Start the server; return the path of the program."""
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
        program, address = Path(directory, "python"), str(Path(directory, "server"))
        program.write_text(PROGRAM.format(python=sys.executable, address=address))
        program.chmod(0o755)
        listener.bind(address)
        listener.listen()
        server = warm_processes.start(serve, listener)
        try:
            yield str(program)
        finally:
            server.kill()
            server.join()


def serve(listener: socket.socket) -> NoReturn:
    """Fork a worker for every start of the program, and tell it how the worker ended."""
    listener.settimeout(0.02)
    started: dict[int, socket.socket] = {}
    while True:
        with suppress(TimeoutError):
            client, _ = listener.accept()
            worker = os.fork()
            if worker == 0:
                work(client)
            started[worker] = client
            client.sendall(f"{worker}\n".encode())
        worker, status = os.waitpid(-1, os.WNOHANG) if started else (0, 0)
        if worker:
            with started.pop(worker) as client:
                client.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def work(client: socket.socket) -> NoReturn:
    """Be the process that was asked for."""
    _, streams, _, _ = socket.recv_fds(client, 1, 3)
    with client, client.makefile() as lines:
        arguments, directory, environment = json.loads(lines.readline())
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = arguments[arguments.index("-m") + 1 :]
    code = 1
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001, as the interpreter does
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
