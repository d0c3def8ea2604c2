"""Sending without waiting: a bounded queue and a thread per receiver."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection
from threading import Condition, Thread


class Outbox:
    """Delivers what was posted, in order, from a thread per receiver.

    A slow receiver delays only itself: when its queue is full, the oldest bytes are dropped.

    Args:
        receivers: their names.
        deliver: called with the receiver, the key and the bytes; may block.
        capacity: of each queue.
        on_drop: called with the receiver whenever bytes are dropped.
    """

    def __init__(
        self,
        receivers: Collection[str],
        deliver: Callable[[str, str, bytes], None],
        capacity: int,
        on_drop: Callable[[str], None],
    ) -> None:
        self._deliver, self._capacity, self._on_drop = deliver, capacity, on_drop
        self._queues: dict[str, deque[tuple[str, bytes]]] = {name: deque() for name in receivers}
        self._busy: set[str] = set()
        self._closed = False
        self._changed = Condition()
        self._threads = [
            Thread(target=self._work, args=(name,), name=f"outbox to {name}", daemon=True)
            for name in receivers
        ]
        for thread in self._threads:
            thread.start()

    def post(self, receiver: str, key: str, data: bytes) -> None:
        """Append bytes to the queue of a receiver; returns at once."""
        with self._changed:
            queue = self._queues[receiver]
            queue.append((key, data))
            if len(queue) > self._capacity:
                queue.popleft()
                self._on_drop(receiver)
            self._changed.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait until all queues are delivered; False if that takes longer."""
        end = time.monotonic() + seconds
        with self._changed:
            while self._busy or any(self._queues.values()):
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def close(self) -> None:
        """Stop the threads; what is still queued is lost."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self, receiver: str) -> None:
        queue = self._queues[receiver]
        while True:
            with self._changed:
                while not queue and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                key, data = queue.popleft()
                self._busy.add(receiver)
            try:
                self._deliver(receiver, key, data)
            finally:
                with self._changed:
                    self._busy.discard(receiver)
                    self._changed.notify_all()
