"""A link that can be cut."""

import socket
import threading
from contextlib import suppress


class TcpProxy:
    """Forwards the connections to an endpoint until it is cut, and again after it is restored."""

    def __init__(self, endpoint: str) -> None:
        self._target = ("127.0.0.1", int(endpoint.rpartition(":")[2]))
        self._sockets: list[socket.socket] = []
        self._cut = False
        self.passed: list[bytes] = []
        """What went over the wire, in both directions."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tls/127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._cut = True
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._sockets.clear()

    def restore(self) -> None:
        self._cut = False

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    if self._cut:
                        raise ConnectionRefusedError
                    far = socket.create_connection(self._target)
                except ConnectionRefusedError:
                    near.close()
                    continue
                self._sockets += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError), source, target:
            while data := source.recv(1 << 16):
                self.passed.append(data)
                target.sendall(data)
