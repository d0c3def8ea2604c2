"""The transport of one agent over a network without a server: Zenoh, explicit links, mutual TLS."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from reprlib import repr as short
from secrets import token_hex
from threading import Condition
from typing import TYPE_CHECKING
from urllib.parse import unquote

from sheafed.errors import InputError, MessageError, TransportClosedError, UnknownAgentError
from sheafed.transport.codec import decode, encode
from sheafed.transport.ledger import Ledger
from sheafed.transport.mailbox import Mailbox
from sheafed.transport.message import Message
from sheafed.transport.zenoh.access_control import ALIVE, ANY, agent_access, key
from sheafed.transport.zenoh.credentials import Credentials
from sheafed.transport.zenoh.guard import LINKS_PER_PEER, SPARE_LINKS, Guard
from sheafed.transport.zenoh.link_problems import link_problems
from sheafed.transport.zenoh.outbox import Outbox
from sheafed.transport.zenoh.presence import Presence
from sheafed.transport.zenoh.renewal import CredentialsWatch
from sheafed.transport.zenoh.settings import import_zenoh, open_session, session_settings

if TYPE_CHECKING:
    import zenoh

MESSAGES, ANNOUNCEMENTS = "message", "announcement"
"""The channels between two agents: messages of a round, and the latest state of an agent."""
FLUSH_SECONDS = 2.0
RETURN_LEASES = 2.0
"""How long a neighbour that opens its links anew is waited for, in leases."""
MAX_WAIT_SECONDS = 1.0
MAX_NAME = 64
"""Characters of the name of an unknown peer that are kept."""
LEDGER_ROWS = 1 << 14
"""An agent may send messages for months: its ledger, and so its checkpoint, must not grow."""

logger = logging.getLogger("sheafed.transport")


class ZenohTransport:
    """Carries the messages of one agent to and from its neighbours, which are other processes.

    Sending never blocks: messages to a neighbour that is absent or too slow are dropped. The sender
    of a message is known from the certificate of its link.

    Args:
        name: of the agent of this process.
        neighbours: the agents with which it exchanges messages.
        credentials: certificate, key and authority; the certificate's common name is `name`.
        listen: endpoints to listen on, e.g. `tls/0.0.0.0:7447`; none for outgoing links only.
        connect: endpoints of neighbours, or of a relay, to connect to.
        network: agents of different networks do not exchange messages.
        relays: certificate names of relays, which are trusted to report the sender of a message.
        limit: bytes of the largest message.
        capacity: unread, and unsent, messages per neighbour.
        staleness: rounds for which a late message is kept for `receive_stale`.
        lease: seconds of silence after which a neighbour counts as absent.
        ledger: one to continue; a new one by default.
        guard: whether a process of its own keeps strangers from the listeners; without it, anybody
            who can connect can keep neighbours out. Zenoh then listens itself.
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
        guard: bool = True,
    ) -> None:
        self._zenoh = import_zenoh()
        from sheafed.transport.zenoh.certificate_checks import check_common_name, check_files

        if name in neighbours or len(set(neighbours)) != len(neighbours):
            raise InputError(
                f"neighbours of {name!r} must be other agents with unique names, got "
                f"{sorted(neighbours)}"
            )
        check_common_name(credentials.certificate, name)
        check_files(credentials)
        self.name, self.lease = name, lease
        self.neighbours = tuple(sorted(neighbours))
        self.arrivals: Counter[str] = Counter()
        """How many messages and announcements have arrived from each neighbour, valid or not."""
        self.unknown_peers: Counter[str] = Counter()
        """Links whose certificate names neither a neighbour nor a relay, by common name."""
        self.revoked = credentials.revoked_names()
        """Names whose certificates are not accepted, as the list was when links were opened."""
        self._network, self._limit = network, limit
        self._ledger = Ledger(LEDGER_ROWS) if ledger is None else ledger
        self._mailbox = Mailbox(name, (name, *neighbours), capacity, limit, staleness)
        self._announcements: dict[str, Message] = {}
        self._presence = Presence(self.neighbours)
        self.instance = token_hex(16)
        """Tells this process from others of the same name."""
        self._news, self._events = Condition(), 0
        self._closed = self._interrupted = False
        self._relays, self._return_seconds = tuple(relays), RETURN_LEASES * lease
        self._credentials, self._connect = credentials, tuple(connect)
        self._watch = CredentialsWatch(credentials, name)
        max_links = LINKS_PER_PEER * len({*self.neighbours, *relays}) + SPARE_LINKS
        self._guard = Guard(name, listen, max_links) if guard and listen else None
        self._settings = partial(
            session_settings,
            "client" if relays and not listen else "peer",
            listen=listen if self._guard is None else self._guard.endpoints,
            connect=connect,
            credentials=credentials,
            limit=limit,
            lease=lease,
        )
        self._session: zenoh.Session | None = None
        self._open(self._guard)
        self._outbox = Outbox(self.neighbours, self._put, capacity, self._count_unsent)

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    @property
    def rejected(self) -> Counter[str]:
        return Counter(self._mailbox.rejected)

    @property
    def failed_connections(self) -> Counter[str]:
        """Connections to this agent that came to nothing, by address, of those with the most."""
        return Counter() if self._guard is None else Counter(self._guard.failed)

    @property
    def present(self) -> frozenset[str]:
        """The neighbours that are alive and linked, or will be in a moment, see `expect_back`."""
        return self._presence.names

    @property
    def appearances(self) -> Counter[str]:
        """How often each neighbour has appeared, for the first time or again."""
        return self._presence.appearances

    def instances(self, neighbour: str) -> frozenset[str]:
        """Return the live processes that have the name and certificate of a neighbour."""
        return self._presence.instances(neighbour)

    @property
    def certificate_state(self) -> str:
        """Until when the certificate is valid, and whether replaced files wait to be usable."""
        return self._watch.describe()

    def link_problems(self) -> list[str]:
        """Try the endpoints to connect to; return why links to some of them fail."""
        return link_problems(self._connect, self._credentials)

    def expect_back(self, neighbour: str) -> None:
        """Let a neighbour count as present for some seconds: it is opening its links anew."""
        self._check_known(neighbour)
        self._presence.expect([neighbour], self._return_seconds)

    def renewal_due(self) -> bool:
        """Whether links should be opened anew, as the files of the credentials were replaced."""
        return self._watch.replaced()

    def renew(self) -> None:
        """Close all links and open them anew, with the files of the credentials as they are now.

        It takes a fraction of a second, in which neighbours count as present. What they send in it
        is lost; announce it to them before, and repeat afterwards what they may have missed.
        """
        self._check_open()
        revoked = self._credentials.revoked_names()
        self.flush()
        self._watch.not_in_use()
        session, self._session = self._session, None
        if session is not None:
            session.close()  # type: ignore[no-untyped-call]
        self.revoked = revoked
        self._presence.forget(self._return_seconds, refused=self.revoked)
        self._open()
        self._watch.taken_up()
        logger.info("%s opened its links anew; certificate %s", self.name, self.certificate_state)

    def send(self, messages: Iterable[Message]) -> None:
        """Encode, record and post the messages, in this order."""
        self._post(messages, MESSAGES)

    def announce(self, messages: Iterable[Message]) -> None:
        """Send messages of which each neighbour keeps only the latest, whatever its round."""
        self._post(messages, ANNOUNCEMENTS)

    def announcements(self) -> dict[str, Message]:
        """Return the latest unread announcement of each neighbour."""
        self._check_open()
        with self._news:
            latest, self._announcements = self._announcements, {}
        return latest

    def barrier(self, round: int, kind: str) -> None:
        """Do nothing: other machines may send at any time, or not at all."""

    def receive(
        self, receiver: str, round: int, kind: str, senders: Collection[str]
    ) -> dict[str, Message]:
        self._check_open()
        self._check_known(receiver, *senders)
        if receiver != self.name:
            raise InputError(f"this is the transport of {self.name!r}, not of {receiver!r}")
        return self._mailbox.take(round, kind, senders)

    def receive_stale(self, kind: str, senders: Collection[str]) -> dict[str, Message]:
        """Return the newest late message of each sender that is within the staleness bound."""
        self._check_open()
        return self._mailbox.take_stale(kind, senders)

    @property
    def events(self) -> int:
        """The number of events so far: arrivals, and neighbours that appeared or disappeared."""
        with self._news:
            return self._events

    def wait(self, seconds: float, since: int) -> int:
        """Wait while `events` equals `since`, at most for these seconds; return `events`.

        It may return earlier without an event, so callers check their condition in a loop.
        """
        with self._news:
            if not self._interrupted and self._events == since:
                # Bounded, because a signal handler runs in this very thread: a notification
                # between the line above and the wait below would be lost.
                self._news.wait(min(seconds, MAX_WAIT_SECONDS))
            return self._events

    @property
    def interrupted(self) -> bool:
        """Whether `interrupt` was called."""
        return self._interrupted

    def interrupt(self) -> None:
        """Let `wait` return at once from now on. Safe in a signal handler."""
        self._interrupted = True
        with self._news:
            self._news.notify_all()

    def flush(self, seconds: float = FLUSH_SECONDS) -> bool:
        """Wait until everything sent has left; False if that takes longer."""
        return self._outbox.flush(seconds)

    def close(self) -> None:
        """Send what is queued, then leave the network; may be repeated."""
        if self._closed:
            return
        self.flush()
        self._closed = True
        self._outbox.close()
        if self._session is not None:
            self._session.close()  # type: ignore[no-untyped-call]
        if self._guard is not None:
            self._guard.close()
        self._mailbox.clear()

    def deliver(self, sender: str, channel: str, payload: zenoh.ZBytes | bytes) -> None:
        """Keep the bytes of a sender whose name is certain, if they are a valid message."""
        if len(payload) > self._limit:  # before they are copied
            text = f"{len(payload)} bytes from {sender!r}, at most {self._limit} are accepted"
            self._mailbox.reject(MessageError("size", text))
        else:
            data = payload if isinstance(payload, bytes) else payload.to_bytes()
            if channel == MESSAGES:
                self._mailbox.put(data, sender)
            else:
                self._keep_announcement(sender, channel, data)
        with self._news:
            self.arrivals[sender] += 1
        self._notify()

    def _open(self, guard: Guard | None = None) -> None:
        """Open a session without the revoked neighbours, to which no rule applies then.

        Args:
            guard: the one to start; a guard that runs goes on in front of the next session.
        """
        neighbours = [j for j in self.neighbours if j not in self.revoked]
        relays = [relay for relay in self._relays if relay not in self.revoked]
        self._known_peers = {*neighbours, *relays}
        access = agent_access(self._network, self.name, neighbours, relays)
        session = self._session = open_session(self._settings(access=access), guard)
        # The token is last: a neighbour that sees it can rely on this agent's subscriptions.
        live = session.liveliness()
        links = session.info.declare_link_events_listener(self._on_link, history=True)
        inbox = key(self._network, ANY, self.name, ANY)
        watched = [key(self._network, j, ALIVE, ANY) for j in neighbours]

        def on_liveliness(sample: zenoh.Sample) -> None:
            if self._session is session:  # not when it is closed to be opened anew
                self._on_liveliness(sample)

        self._declared = [
            links,
            session.declare_subscriber(inbox, self._on_sample),
            *(live.declare_subscriber(k, on_liveliness, history=True) for k in watched),
            live.declare_token(key(self._network, self.name, ALIVE, self.instance)),
        ]

    def _notify(self) -> None:
        with self._news:
            self._events += 1
            self._news.notify_all()

    def _post(self, messages: Iterable[Message], channel: str) -> None:
        self._check_open()
        for message in messages:
            self._check_known(message.sender, message.receiver)
            if message.sender != self.name:
                raise InputError(f"{message}: {self.name!r} can send under its own name only")
            encoded = encode(message, self._limit)
            self._ledger.count(message, encoded)
            to = message.receiver
            self._outbox.post(to, key(self._network, self.name, to, channel), encoded.data)

    def _put(self, receiver: str, key: str, data: bytes) -> None:
        session = self._session
        if session is None or receiver in self.revoked:
            return
        # DROP: with BLOCK a frozen neighbour would cost the links to the others.
        try:
            session.put(key, data, congestion_control=self._zenoh.CongestionControl.DROP)
        except self._zenoh.ZError as problem:
            self._mailbox.reject(MessageError("unsent", f"a message to {receiver!r}: {problem}"))

    def _count_unsent(self, receiver: str) -> None:
        text = f"the oldest message to {receiver!r}, whose queue is full"
        self._mailbox.reject(MessageError("unsent", text))

    def _keep_announcement(self, sender: str, channel: str, data: bytes) -> None:
        try:
            if channel != ANNOUNCEMENTS:
                raise MessageError("channel", f"unknown channel {short(channel)} from {sender!r}")
            message = decode(data, self._limit)
            if message.receiver != self.name:
                raise MessageError("receiver", f"{message} arrived at {self.name!r}")
            if message.sender != sender:
                raise MessageError("sender", f"{message} was sent by {sender!r}")
        except MessageError as problem:
            self._mailbox.reject(problem)
        else:
            with self._news:
                self._announcements[sender] = message

    def _on_sample(self, sample: zenoh.Sample) -> None:
        # Zenoh has checked the key against the name in the certificate of the link.
        *_, sender, _, channel = str(sample.key_expr).split("/")
        self.deliver(unquote(sender), channel, sample.payload)

    def _on_liveliness(self, sample: zenoh.Sample) -> None:
        *_, quoted, _, instance = str(sample.key_expr).split("/")
        neighbour, alive = unquote(quoted), sample.kind == self._zenoh.SampleKind.PUT
        note = self._presence.appear if alive else self._presence.disappear
        if note(neighbour, instance) and not self._closed:
            level = logging.INFO if alive else logging.WARNING
            state = "present" if alive else "gone"
            logger.log(level, "%s: neighbour %s is %s", self.name, neighbour, state)
        self._notify()

    def _on_link(self, event: zenoh.LinkEvent) -> None:
        peer = event.link.auth_identifier
        if event.kind == self._zenoh.SampleKind.PUT and peer not in self._known_peers:
            name = str(peer)[:MAX_NAME]
            level = logging.DEBUG if self.unknown_peers[name] else logging.WARNING
            self.unknown_peers[name] += 1
            text = "%s: unknown peer %r with a valid certificate; nothing is exchanged with it"
            logger.log(level, text, self.name, name)

    def _check_open(self) -> None:
        if self._closed:
            raise TransportClosedError("this transport is closed; make a new one to continue")

    def _check_known(self, *names: str) -> None:
        known = sorted((self.name, *self.neighbours))
        for name in names:
            if name not in known:
                raise UnknownAgentError(f"unknown agent {name!r}; this transport has {known}")
