"""Where messages go: a webhook. (The log and the topic are written by `following`.)

A webhook is called on a thread of its own, so that a receiver that is slow or down never holds up the monitor. Messages
wait in a bounded queue; a message is tried again with growing pauses, and given up after `ATTEMPTS_MAX`.
"""

from __future__ import annotations

import http.client
import queue
import ssl
import threading
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from penstock.alerts.notices import Notice

QUEUE_MAX: Final = 1_000
ATTEMPTS_MAX: Final = 6
FIRST_PAUSE_S: Final = 1.0
TIMEOUT_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 65_536


class WebhookRefused(ValueError):
    """The address of a webhook makes no sense; the message says why."""


class Webhook:
    """POSTs messages to a URL until it is closed."""

    def __init__(self, url: str, say: Callable[[str], object], *, first_pause_s: float = FIRST_PAUSE_S) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise WebhookRefused(f"{url}: a webhook is an address that begins with http:// or https://")
        self._host, self._secure = parts.hostname, parts.scheme == "https"
        self._port = parts.port or (443 if self._secure else 80)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._say = say
        self._first_pause_s = first_pause_s
        self._queue: queue.Queue[Notice | None] = queue.Queue(QUEUE_MAX)
        self._stop = threading.Event()
        self.sent = self.given_up = self.dropped = 0
        self._thread = threading.Thread(target=self._run, name="penstock-webhook", daemon=True)
        self._thread.start()

    def put(self, notice: Notice) -> None:
        """Takes a message; returns at once. If too many wait, the message is dropped and counted."""
        try:
            self._queue.put_nowait(notice)
        except queue.Full:
            self.dropped += 1

    def close(self, timeout_s: float = 2.0) -> None:
        """Sends what is left, if that is quick, and ends the thread."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            self._stop.set()
        self._thread.join(timeout_s)
        self._stop.set()
        self._thread.join(0.1)

    def _run(self) -> None:
        while (notice := self._queue.get()) is not None and not self._stop.is_set():
            self._deliver(notice)

    def _deliver(self, notice: Notice) -> None:
        body, pause_s, problem = notice.webhook(), self._first_pause_s, ""
        for attempt in range(ATTEMPTS_MAX):
            if attempt and self._stop.wait(pause_s):
                return
            if attempt:
                pause_s *= 2
            try:
                status = self._post(body)
            except (OSError, http.client.HTTPException) as error:
                problem = str(error) or type(error).__name__
                continue
            if status < 300:
                self.sent += 1
                return
            problem = f"it answered {status}"
            if 400 <= status < 500 and status not in (408, 429):
                break
        self.given_up += 1
        self._say(f"could not tell the webhook at {self._host}:{self._port} about {notice.rule}: {problem}")

    def _post(self, body: bytes) -> int:
        connection: http.client.HTTPConnection
        if self._secure:
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(self._host, self._port, timeout=TIMEOUT_S, context=context)
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            connection.request("POST", self._path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read(ANSWER_BYTES_MAX)
            return answer.status
        finally:
            connection.close()
