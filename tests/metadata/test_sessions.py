"""Which brokers are alive, as far as the controller has heard."""

from __future__ import annotations

from penstock.metadata import BrokerSessions


def test_a_broker_lives_as_long_as_it_is_heard_often_enough() -> None:
    sessions = BrokerSessions(100)
    sessions.heard(1, 0)
    sessions.heard(2, 50)
    assert sessions.next_expiry_ms() == 100
    assert sessions.is_alive(1, 99)
    assert not sessions.is_alive(1, 100)
    assert not sessions.is_alive(3, 0)
    assert sessions.expired(99) == []
    assert sessions.expired(120) == [1]
    sessions.heard(1, 120)
    assert sessions.expired(149) == []
    assert sessions.expired(220) == [1, 2]
    sessions.forget(1)
    sessions.forget(2)
    assert sessions.next_expiry_ms() == float("inf")


def test_silence_while_nobody_listened_does_not_count() -> None:
    sessions = BrokerSessions(100)
    sessions.heard(1, 0)
    assert sessions.expired(500, resumed_ms=450) == []
    assert sessions.expired(550, resumed_ms=450) == [1]
