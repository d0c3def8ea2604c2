"""The exchange of one agent over a network without a server: Zenoh, explicit links, mutual TLS."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from threading import Condition
from typing import TYPE_CHECKING
from urllib.parse import unquote

from sheafed.errors import InputError, MessageError, TransportClosedError, UnknownAgentError
from sheafed.transport.base import Mailbox
from sheafed.transport.codec import decode, encode
from sheafed.transport.ledger import Ledger
from sheafed.transport.message import Message
from sheafed.transport.zenoh.credentials import Credentials
from sheafed.transport.zenoh.outbox import Outbox
from sheafed.transport.zenoh.settings import (
    ALIVE,
    agent_access,
    import_zenoh,
    key,
    open_session,
    settings,
)

if TYPE_CHECKING:
    import zenoh

MESSAGES, ANNOUNCEMENTS = "message", "announcement"
"""The channels between two agents: what belongs to a round, and who one is and where."""
FLUSH_SECONDS = 2.0
LONGEST_WAIT = 1.0

logger = logging.getLogger("sheafed.transport")


class ZenohTransport:
    """Carries the messages of one agent to and from its neighbours, who are other processes.

    Nobody is waited for in sending: a neighbour that does not take what it is sent loses it. The
    first word on a link is the certificate's: a neighbour can speak under its own name only.

    Args:
        name: of the agent here.
        neighbours: whom it talks to.
        credentials: certificate, key and authority; the certificate's common name is `name`.
        listen: endpoints to listen on, e.g. `tls/0.0.0.0:7447`; none for one that only dials.
        connect: endpoints of neighbours, or of a relay, to dial.
        network: agents of different networks do not hear each other.
        relays: certificate names of relays, which are trusted to say from whom a message is.
        limit: the bytes of the largest message.
        capacity: of unread, and of unsent, messages per neighbour.
        staleness: for how many rounds a late message is kept for `receive_stale`.
        lease: seconds of silence after which a neighbour is gone.
        ledger: one to go on with.
    """

    def __init__(
        self,
        name: str,
        neighbours: Collection[str],
        *,
        credentials: Credentials,
        listen: Sequence[str] = (),
        connect: Sequence[str] = (),
        network: str = "default",
        relays: Collection[str] = (),
        limit: int = 1 << 26,
        capacity: int = 16,
        staleness: int = 0,
        lease: float = 5.0,
        ledger: Ledger | None = None,
    ) -> None:
        self._zenoh = import_zenoh()
        from sheafed.transport.zenoh.certificates import check_common_name

        if name in neighbours or len(set(neighbours)) != len(neighbours):
            raise InputError(
                f"{name!r} needs neighbours with different names, got {sorted(neighbours)}"
            )
        check_common_name(credentials.certificate, name)
        self.name = name
        self.neighbours = tuple(sorted(neighbours))
        self.arrivals: Counter[str] = Counter()
        """How many messages and announcements have arrived from each neighbour, valid or not."""
        self.unknown_peers: Counter[str] = Counter()
        """Links whose certificate names neither a neighbour nor a relay, by common name."""
        self._network, self._limit = network, limit
        self._ledger = Ledger() if ledger is None else ledger
        self._box = Mailbox(name, (name, *neighbours), capacity, limit, staleness)
        self._announcements: dict[str, Message] = {}
        self._present: set[str] = set()
        self._news, self._events = Condition(), 0
        self._closed = self._interrupted = False
        self._known = {*self.neighbours, *relays}
        self._session = open_session(
            settings(
                "client" if relays and not listen else "peer",
                listen=listen,
                connect=connect,
                credentials=credentials,
                access=agent_access(network, name, self.neighbours, relays),
                limit=limit,
                lease=lease,
            )
        )
        self._outbox = Outbox(self.neighbours, self._put, capacity, self._unsent)
        # The token comes last: who sees it can be sure that what it sends will be heard.
        session, live = self._session, self._session.liveliness()
        links = session.info.declare_link_events_listener(self._linked, history=True)
        mail = session.declare_subscriber(key(network, "*", name, "*"), self._arrive)
        watched = [key(network, j, ALIVE) for j in self.neighbours]
        watches = [live.declare_subscriber(k, self._notice, history=True) for k in watched]
        self._declared = [links, mail, *watches, live.declare_token(key(network, name, ALIVE))]

    @property
    def ledger(self) -> Ledger:
        """The encoded bytes of every message sent from here."""
        return self._ledger

    @property
    def rejected(self) -> Counter[str]:
        """How many messages were dropped here, by reason."""
        return Counter(self._box.rejected)

    @property
    def present(self) -> frozenset[str]:
        """The neighbours that are known to be alive."""
        with self._news:
            return frozenset(self._present)

    @property
    def interrupted(self) -> bool:
        """Whether nobody waits here any more."""
        return self._interrupted

    def send(self, messages: Iterable[Message]) -> None:
        """Encode, record and post the messages, in this order."""
        self._post(messages, MESSAGES)

    def announce(self, messages: Iterable[Message]) -> None:
        """Send messages of which, per neighbour, only the newest matters, whatever its round."""
        self._post(messages, ANNOUNCEMENTS)

    def announcements(self) -> dict[str, Message]:
        """Return the newest unread greeting of each neighbour that has sent any."""
        self._check_open()
        with self._news:
            newest, self._announcements = self._announcements, {}
        return newest

    def barrier(self, round: int, kind: str) -> None:
        """Do nothing: neighbours on other machines come when they come."""

    def receive(
        self, receiver: str, round: int, kind: str, senders: Collection[str]
    ) -> dict[str, Message]:
        """Return what has come for `receiver` in this round, by sender, sorted by name."""
        self._check_open()
        self._check_known(receiver, *senders)
        if receiver != self.name:
            raise InputError(f"this is the exchange of {self.name!r}, not of {receiver!r}")
        return self._box.take(round, kind, senders)

    def receive_stale(self, kind: str, senders: Collection[str]) -> dict[str, Message]:
        """Return the newest late message of each sender that is within the staleness bound."""
        self._check_open()
        return self._box.take_stale(kind, senders)

    @property
    def events(self) -> int:
        """How many things have happened: arrivals, appearances, departures."""
        with self._news:
            return self._events

    def wait(self, seconds: float, since: int) -> int:
        """Wait until something happens, unless it has: until `events` is not `since`; return it.

        It may return earlier with nothing new, and then again: whoever waits looks what there is.
        """
        with self._news:
            if not self._interrupted and self._events == since:
                # A signal handler runs in this very thread, and what it says between the line
                # above and the next is heard by nobody.
                self._news.wait(min(seconds, LONGEST_WAIT))
            return self._events

    def interrupt(self) -> None:
        """Let nobody wait from now on. May be called from a signal handler."""
        self._interrupted = True
        with self._news:
            self._news.notify_all()

    def flush(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until everything sent has left; False if that took too long."""
        return self._outbox.flush(seconds)

    def close(self) -> None:
        """Send what is unsent, then leave the network; again is fine."""
        if self._closed:
            return
        self.flush()
        self._closed = True
        self._outbox.close()
        self._session.close()  # type: ignore[no-untyped-call]
        self._box.clear()

    def _happened(self) -> None:
        with self._news:
            self._events += 1
            self._news.notify_all()

    def _post(self, messages: Iterable[Message], channel: str) -> None:
        self._check_open()
        for message in messages:
            self._check_known(message.sender, message.receiver)
            if message.sender != self.name:
                raise InputError(f"{message}: {self.name!r} can only send under its own name")
            encoded = encode(message, self._limit)
            self._ledger.count(message, encoded)
            to = message.receiver
            self._outbox.post(to, key(self._network, self.name, to, channel), encoded.data)

    def _put(self, receiver: str, key: str, data: bytes) -> None:
        # DROP: with BLOCK a frozen neighbour would cost the links to healthy ones.
        try:
            self._session.put(key, data, congestion_control=self._zenoh.CongestionControl.DROP)
        except self._zenoh.ZError as problem:
            self._box.reject(MessageError("unsent", f"a message to {receiver!r}: {problem}"))

    def _unsent(self, receiver: str) -> None:
        self._box.reject(
            MessageError("unsent", f"the oldest message to {receiver!r}, who takes none, gives way")
        )

    def _arrive(self, sample: zenoh.Sample) -> None:
        """Take what has come off the wire; Zenoh has checked its key against the certificate."""
        *_, sender, _, channel = str(sample.key_expr).split("/")
        self.deliver(unquote(sender), channel, sample.payload)

    def deliver(self, sender: str, channel: str, payload: zenoh.ZBytes | bytes) -> None:
        """Keep bytes that came from a sender whose name is certain; they may be anything."""
        if len(payload) > self._limit:  # before they are copied
            text = f"{len(payload)} bytes came from {sender!r}, at most {self._limit} are accepted"
            self._box.reject(MessageError("size", text))
        else:
            data = payload if isinstance(payload, bytes) else payload.to_bytes()
            if channel == MESSAGES:
                self._box.put(data, sender)
            else:
                self._keep_announcement(sender, channel, data)
        with self._news:
            self.arrivals[sender] += 1
        self._happened()

    def _keep_announcement(self, sender: str, channel: str, data: bytes) -> None:
        try:
            if channel != ANNOUNCEMENTS:
                raise MessageError("channel", f"there is no channel {channel!r} between agents")
            message = decode(data, self._limit)
            if message.receiver != self.name:
                raise MessageError("receiver", f"{message} came to {self.name!r}")
            if message.sender != sender:
                raise MessageError("sender", f"{message} came from {sender!r}")
        except MessageError as problem:
            self._box.reject(problem)
        else:
            with self._news:
                self._announcements[sender] = message

    def _notice(self, sample: zenoh.Sample) -> None:
        neighbour = unquote(str(sample.key_expr).split("/")[-2])
        here = sample.kind == self._zenoh.SampleKind.PUT
        with self._news:
            (self._present.add if here else self._present.discard)(neighbour)
        if not self._closed:
            level = logging.INFO if here else logging.WARNING
            logger.log(level, "%s: %s is %s", self.name, neighbour, "here" if here else "gone")
        self._happened()

    def _linked(self, event: zenoh.LinkEvent) -> None:
        other = event.link.auth_identifier
        if event.kind == self._zenoh.SampleKind.PUT and other not in self._known:
            level = logging.DEBUG if self.unknown_peers[str(other)] else logging.WARNING
            self.unknown_peers[str(other)] += 1
            text = "%s: %r has a certificate of the authority but is no neighbour; it is not heard"
            logger.log(level, text, self.name, other)

    def _check_open(self) -> None:
        if self._closed:
            raise TransportClosedError("this exchange is closed; make a new one to go on")

    def _check_known(self, *names: str) -> None:
        known = sorted((self.name, *self.neighbours))
        for name in names:
            if name not in known:
                raise UnknownAgentError(
                    f"{name!r} is not in this exchange; expected one of {known}"
                )
