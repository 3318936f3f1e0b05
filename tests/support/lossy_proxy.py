"""A network between a client and PostgreSQL that fails while a transaction is committed."""

from __future__ import annotations

import socket
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Self


class Loss(Enum):
    """What becomes of the next commit; the client loses its connection in any case."""

    REQUEST = auto()
    """The server never sees it."""
    ANSWER = auto()
    """The server commits, but the client does not see the answer."""
    LATE = auto()
    """The server sees it after the client has given up: when it is released."""


class LossyProxy:
    """Passes everything on, until the next commit is to be lost.

    Args:
        folder: Where its socket is created.
        server: The socket of the server.
    """

    def __init__(self, folder: Path, server: Path) -> None:
        self.release = Event()
        """Lets a late commit pass."""
        self.folder = folder
        self._server = server
        self._lock = Lock()
        self._loss: Loss | None = None
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / server.name))
        self._listener.listen()
        self._threads = [Thread(target=self._accept)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release.set()
        _end(self._listener)
        for thread in self._threads:
            thread.join()

    def lose_next_commit(self, loss: Loss) -> None:
        """Lose the next commit.

        Args:
            loss: In which way.
        """
        with self._lock:
            self._loss = loss

    def _take_loss(self, request: bytes) -> Loss | None:
        if b"COMMIT" not in request:
            return None
        with self._lock:
            loss = self._loss
            self._loss = None
        return loss

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # the listener is closed
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(str(self._server))
            except OSError:  # the server is down
                _end(server)
                _end(client)
                continue
            link = _Link(client, server)
            for pump in (self._pass_requests, self._pass_answers):
                thread = Thread(target=pump, args=(link,))
                self._threads.append(thread)
                thread.start()

    def _pass_requests(self, link: _Link) -> None:
        while request := _receive(link.client):
            loss = self._take_loss(request)
            if loss is Loss.REQUEST:
                break
            if loss is not None:
                link.answers_are_lost.set()
            if loss is Loss.LATE:
                link.client.shutdown(socket.SHUT_RDWR)
                self.release.wait()
            try:
                link.server.sendall(request)
            except OSError:  # the server has closed the connection
                break
            if loss is not None:
                return  # the server's answer ends the link
        link.end()

    def _pass_answers(self, link: _Link) -> None:
        while answer := _receive(link.server):
            if link.answers_are_lost.is_set():
                break
            try:
                link.client.sendall(answer)
            except OSError:  # the client is gone
                break
        link.end()


class _Link:
    """A client's connection and the server's."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.answers_are_lost = Event()

    def end(self) -> None:
        _end(self.server)
        _end(self.client)


def _receive(connection: socket.socket) -> bytes:
    """The next bytes; none once the connection is closed."""
    try:
        return connection.recv(1 << 16)
    except OSError:
        return b""


def _end(connection: socket.socket) -> None:
    """Close a connection, and wake the thread that waits for it."""
    with suppress(OSError):  # it is closed already
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
