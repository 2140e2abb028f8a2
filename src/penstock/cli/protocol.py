"""Kafka's protocol by hand, for the few requests that the client library does not have.

    with connect_to_coordinator(cluster, group) as coordinator:
        answer = coordinator.call(OffsetDeleteRequest(...), OffsetDeleteResponse)

The connections are those of `penstock.client`, made with what --command-config says; what goes wrong becomes an error
of the command.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock import client
from penstock.cli import exit_codes
from penstock.cli.errors import CliError
from penstock.wire.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.cli.connection import Cluster

CLIENT_ID = "penstock-cli"


class CannotSpeak(CliError):
    """The way to this cluster is one that only the client library knows."""


@contextmanager
def connect(cluster: Cluster) -> Iterator[client.Connection]:
    """A connection to a broker of the bootstrap list."""
    with reach(cluster, "reach a broker") as known:
        yield known.any_broker()


@contextmanager
def connect_to_coordinator(cluster: Cluster, group: str) -> Iterator[client.Connection]:
    """A connection to the broker that coordinates a group; it may take a moment until there is one."""
    with reach(cluster, f"find the coordinator of {group}") as known:
        yield known.coordinator(group)


@contextmanager
def reach(cluster: Cluster, doing: str) -> Iterator[client.Cluster]:
    """The cluster, for requests by hand."""
    try:
        with client.Cluster(client_settings(cluster)) as known:
            yield known
    except client.BrokerError as error:
        raise error_of(error.code, error.message, error.doing or doing) from None
    except client.AuthenticationFailed as error:
        raise CliError(
            f"could not authenticate: {error}", exit_codes.NOT_AUTHORIZED, "check the settings in --command-config"
        ) from None
    except client.ConnectionFailed:
        raise cluster.unreachable() from None
    except client.RequestTimedOut:
        raise cluster.unanswered(doing) from None
    except client.UnsupportedApi as error:
        raise CliError(str(error), exit_codes.REFUSED, "this cluster is too old for that") from None
    except client.ClientError as error:
        raise CliError(f"could not {doing}: {error}", exit_codes.FAILED) from None


def client_settings(cluster: Cluster) -> client.ClientSettings:
    timeout_ms = int(cluster.timeout_s * 1000)
    properties = {
        **cluster.properties,
        "bootstrap.servers": cluster.bootstrap_server,
        "client.id": cluster.properties.get("client.id", CLIENT_ID),
        "request.timeout.ms": timeout_ms,
    }
    try:
        return client.ClientSettings.from_properties(properties)
    except client.UnsupportedSetting as error:
        raise CannotSpeak(
            f"this needs requests that the client library does not have, and here they cannot be sent: {error}",
            exit_codes.REFUSED,
            "use a listener with SASL PLAIN, SCRAM or OAUTHBEARER, TLS or plain text for it",
        ) from None
    except client.SettingsError as error:
        raise CliError(str(error), exit_codes.USAGE, "correct it in the file that --command-config names") from None


def check(code: int, message: str | None, doing: str) -> None:
    """Raises what an error code in an answer means for the command."""
    if code != ErrorCode.NONE:
        raise error_of(code, message, doing)


def error_of(code: int, message: str | None, doing: str) -> CliError:
    """Translate an error code in an answer into a CliError."""
    known = ErrorCode(code) if code in _CODES else ErrorCode.UNKNOWN_SERVER_ERROR
    exit_code, hint = _MEANING.get(known, (exit_codes.FAILED, ""))
    return CliError(f"could not {doing}: {message or known.message}", exit_code, hint)


_CODES = frozenset(ErrorCode)
_MEANING: dict[ErrorCode, tuple[int, str]] = {
    ErrorCode.GROUP_ID_NOT_FOUND: (exit_codes.NOT_FOUND, "`penstock groups list` shows the groups there are"),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: (
        exit_codes.NOT_FOUND,
        "`penstock transactions list` shows the transactional ids there are",
    ),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (exit_codes.NOT_AUTHORIZED, ""),
    ErrorCode.INVALID_REGULAR_EXPRESSION: (exit_codes.USAGE, ""),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        exit_codes.NOT_FOUND,
        "`penstock groups describe` shows where a group has offsets",
    ),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: (
        exit_codes.REFUSED,
        "the group reads this topic: stop its consumers, or have them unsubscribe, and try again",
    ),
    ErrorCode.NON_EMPTY_GROUP: (exit_codes.REFUSED, "stop the consumers of the group and try again"),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: (exit_codes.NOT_AUTHORIZED, ""),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: (exit_codes.NOT_AUTHORIZED, ""),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: (exit_codes.NOT_AUTHORIZED, ""),
    ErrorCode.SASL_AUTHENTICATION_FAILED: (exit_codes.NOT_AUTHORIZED, "check sasl.username and sasl.password"),
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: (exit_codes.NOT_AUTHORIZED, ""),
}
