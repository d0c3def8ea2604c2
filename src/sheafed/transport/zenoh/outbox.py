"""Sending without waiting: a bounded queue and a thread for every receiver."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection
from threading import Condition, Thread


class Outbox:
    """Hands over what was posted, in order, from threads of its own.

    A receiver that takes nothing holds up nobody but itself: when its queue is full, the oldest
    bytes in it are dropped.

    Args:
        receivers: who can be posted to.
        deliver: called with the receiver, the key and the bytes; may take its time.
        capacity: of each queue.
        on_drop: called with the receiver, once for everything that is dropped.
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
        self._change = Condition()
        self._threads = [
            Thread(target=self._work, args=(name,), name=f"outbox to {name}", daemon=True)
            for name in receivers
        ]
        for thread in self._threads:
            thread.start()

    def post(self, receiver: str, key: str, data: bytes) -> None:
        """Put bytes into the queue of a receiver; returns at once."""
        with self._change:
            queue = self._queues[receiver]
            queue.append((key, data))
            if len(queue) > self._capacity:
                queue.popleft()
                self._on_drop(receiver)
            self._change.notify_all()

    def flush(self, seconds: float) -> bool:
        """Wait until everything has been handed over; False if that took too long."""
        end = time.monotonic() + seconds
        with self._change:
            while self._busy or any(self._queues.values()):
                left = end - time.monotonic()
                if left <= 0:
                    return False
                self._change.wait(left)
        return True

    def close(self) -> None:
        """Stop; what is still in the queues is forgotten."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self, receiver: str) -> None:
        queue = self._queues[receiver]
        while True:
            with self._change:
                while not queue and not self._closed:
                    self._change.wait()
                if self._closed:
                    return
                key, data = queue.popleft()
                self._busy.add(receiver)
            try:
                self._deliver(receiver, key, data)
            finally:
                with self._change:
                    self._busy.discard(receiver)
                    self._change.notify_all()
