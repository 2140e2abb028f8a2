"""OAUTHBEARER tokens: obtained when first needed, reused until shortly before they expire."""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import NamedTuple

from penstock.client.errors import AuthenticationFailed, ConnectionFailed
from penstock.client.sasl import OAuthSettings

ANSWER_BYTES_MAX = 1024 * 1024
# A token is used for this share of its lifetime: Kafka's sasl.login.refresh.window.factor.
LIFE_USED = 0.8
LIFE_UNKNOWN_S = 300.0
SCHEMES = ("https", "http", "file")


class Token(NamedTuple):
    text: str
    use_until_s: float
    """In seconds, as `time.time()`."""


def obtain(oauth: OAuthSettings, context: ssl.SSLContext | None, timeout_s: float) -> Token:
    """A token that is valid now."""
    now_s = time.time()
    url = oauth.token_endpoint_url
    if url is None:
        return Token(unsecured(oauth, now_s), now_s + oauth.unsecured_lifetime_s * LIFE_USED)
    if urllib.parse.urlsplit(url).scheme == "file":
        return _checked(_from_file(url), None, now_s)
    answer = _ask(oauth, url, context, timeout_s)
    token = answer.get("access_token") or answer.get("id_token")
    if not isinstance(token, str):
        raise AuthenticationFailed(f"the token endpoint {url} answered without an access_token")
    life_s = answer.get("expires_in")
    return _checked(token, float(life_s) if isinstance(life_s, int | float) else None, now_s)


def unsecured(oauth: OAuthSettings, now_s: float) -> str:
    """An unsigned token, for brokers configured to accept them in development and tests (KIP-255)."""
    claims = {"iat": now_s, "exp": now_s + oauth.unsecured_lifetime_s, **dict(oauth.unsecured_claims)}
    return f"{_encode({'alg': 'none'})}.{_encode(claims)}."


def _from_file(url: str) -> str:
    path = Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path))
    try:
        with path.open(encoding="ascii") as file:
            return file.read(ANSWER_BYTES_MAX).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise AuthenticationFailed(f"sasl.oauthbearer.token.endpoint.url: {path}: {error}") from None


def _ask(oauth: OAuthSettings, url: str, context: ssl.SSLContext | None, timeout_s: float) -> dict[str, object]:
    form = {"grant_type": "client_credentials"} | ({"scope": oauth.scope} if oauth.scope else {})
    basic = base64.b64encode(f"{oauth.client_id}:{oauth.client_secret}".encode()).decode()
    request = urllib.request.Request(
        url,
        urllib.parse.urlencode(form).encode(),
        {"Authorization": f"Basic {basic}", "Accept": "application/json"},
    )
    # No redirects: they could carry the secret to another host.
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirects())
    try:
        with opener.open(request, timeout=timeout_s) as response:
            body = response.read(ANSWER_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        hint = ": check the client id and secret" if error.code in (400, 401, 403) else ""
        raise AuthenticationFailed(f"the token endpoint {url} answered {error.code} {error.reason}{hint}") from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise AuthenticationFailed(
                f"the token endpoint {url} has a certificate that is not trusted ({reason.verify_message}): name its "
                "authority with ssl.truststore.location in sasl.jaas.config, or with https.ca.location; the brokers' "
                "TLS settings do not apply here"
            ) from None
        raise ConnectionFailed(f"the token endpoint {url} cannot be reached: {reason}") from None
    try:
        answer = json.loads(body) if len(body) <= ANSWER_BYTES_MAX else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise AuthenticationFailed(f"the token endpoint {url} answered with something other than a JSON object")
    return answer


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def _checked(token: str, life_s: float | None, now_s: float) -> Token:
    if not token or any(not "!" <= character <= "~" for character in token):
        raise AuthenticationFailed("the OAUTHBEARER token is empty, or contains invalid characters")
    expires_s = _expiry(token)
    if expires_s is not None and expires_s <= now_s:
        raise AuthenticationFailed("the OAUTHBEARER token has expired: get a new one, or check the clocks")
    if life_s is None:
        life_s = expires_s - now_s if expires_s is not None else LIFE_UNKNOWN_S
    return Token(token, now_s + life_s * LIFE_USED)


def _expiry(token: str) -> float | None:
    """The expiry in a JWT; None for other tokens. The signature is left to the broker to verify."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        return None


def _encode(part: dict[str, str | float] | dict[str, str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()
