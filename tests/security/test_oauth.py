"""OAUTHBEARER: which tokens are accepted. Everything else is refused."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from broker.session import Session, expect_no_surprise
from penstock.broker.starting import StartRefused
from penstock.sim import SimRuntime, World
from penstock.sim.broker import SimBroker
from penstock.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from security.logins import WITH_LOGINS, connected, handshake

URL = "https://issuer.example/jwks"
WITH_TOKENS = {
    **WITH_LOGINS,
    "listener.name.logins.sasl.enabled.mechanisms": "OAUTHBEARER",
    "sasl.oauthbearer.jwks.endpoint.url": URL,
    "sasl.oauthbearer.expected.audience": "penstock,other",
    "sasl.oauthbearer.expected.issuer": "https://issuer.example",
}
EC_KEY = ec.generate_private_key(ec.SECP256R1())
OTHER_KEY = ec.generate_private_key(ec.SECP256R1())
RSA_KEY = rsa.generate_private_key(65537, 2048)
REFUSED = 58

Make = Callable[..., str]


def jwks(*entries: tuple[str, Any, str]) -> bytes:
    keys = []
    for kid, key, algorithm in entries:
        kind = jwt.algorithms.ECAlgorithm if algorithm.startswith("ES") else jwt.algorithms.RSAAlgorithm
        keys.append({**json.loads(kind.to_jwk(key.public_key())), "kid": kid, "alg": algorithm, "use": "sig"})
    return json.dumps({"keys": keys}).encode()


BOTH = jwks(("ec", EC_KEY, "ES256"), ("rsa", RSA_KEY, "RS256"))


def with_keys(keys: bytes | None = BOTH) -> Callable[[Callable[[Session], Any]], Callable[[], None]]:
    """A test with a broker whose issuer publishes these keys."""

    def decorate(scenario: Callable[[Session], Any]) -> Callable[[], None]:
        def test() -> None:
            with World(1) as world:
                node = SimBroker(world, WITH_TOKENS)
                if keys is not None:
                    node.host.files[URL] = keys
                node.start()

                async def main(runtime: SimRuntime) -> None:
                    await scenario(await Session.open(runtime, node))

                world.execute(main)
                expect_no_surprise(node)

        test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
        return test

    return decorate


def claims(s: Session, **changes: Any) -> dict[str, Any]:
    now_s = s.node.process.runtime.wall_ms() // 1000
    good = {"sub": "alice", "iss": "https://issuer.example", "aud": "penstock", "exp": now_s + 600, "iat": now_s}
    return {name: value for name, value in {**good, **changes}.items() if value is not None}


def signed(found: dict[str, Any], key: Any = EC_KEY, algorithm: str = "ES256", kid: str | None = "ec") -> str:
    return jwt.encode(found, key, algorithm=algorithm, headers={} if kid is None else {"kid": kid})


async def log_in(s: Session, token: str, header: str = "n,,") -> Any:
    client = await connected(s)
    assert (await handshake(client, "OAUTHBEARER")).error_code == 0
    message = f"{header}\x01auth=Bearer {token}\x01\x01".encode()
    return await client.call(SaslAuthenticateRequest(auth_bytes=message), 2)


@with_keys()
async def test_a_signed_token_logs_in_and_the_login_lasts_as_long_as_the_token(s: Session) -> None:
    answer = await log_in(s, signed(claims(s)))
    assert answer.error_code == 0
    assert 0 < answer.session_lifetime_ms <= 600_000
    assert (await log_in(s, signed(claims(s), RSA_KEY, "RS256", "rsa"))).error_code == 0
    assert (await log_in(s, signed(claims(s, aud=["x", "other"])))).error_code == 0


@with_keys()
async def test_claims_that_are_wrong_are_refused(s: Session) -> None:
    now_s = s.node.process.runtime.wall_ms() // 1000
    for changes in (
        {"exp": now_s - 31},
        {"exp": None},
        {"exp": "soon"},
        {"exp": True},
        {"nbf": now_s + 60},
        {"iat": now_s + 60},
        {"iss": "https://other.example"},
        {"iss": None},
        {"aud": "somebody"},
        {"aud": None},
        {"sub": None},
        {"sub": " "},
    ):
        assert (await log_in(s, signed(claims(s, **changes)))).error_code == REFUSED, changes
    assert (await log_in(s, signed(claims(s, exp=now_s - 20)))).error_code == 0, "within the clock skew"


@with_keys()
async def test_tokens_that_the_issuer_did_not_sign_are_refused(s: Session) -> None:
    public = RSA_KEY.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    unsigned = jwt.encode(claims(s), "", algorithm="none", headers={"kid": "ec"})
    good = signed(claims(s))
    head, body, signature = good.split(".")
    other_body = signed(claims(s, sub="admin"), OTHER_KEY).split(".")[1]
    # The library itself refuses to sign with a public key as a shared secret: so by hand.
    hs_head = jwt.utils.base64url_encode(b'{"alg":"HS256","kid":"rsa","typ":"JWT"}').decode()
    mac = hmac.digest(public, f"{hs_head}.{body}".encode(), "sha256")
    hs_signature = jwt.utils.base64url_encode(mac)
    for token in (
        unsigned,
        unsigned.rpartition(".")[0] + ".",
        signed(claims(s), OTHER_KEY),
        signed(claims(s), OTHER_KEY, kid="unknown"),
        signed(claims(s), OTHER_KEY, kid=None),
        signed(claims(s), RSA_KEY, "RS512", "rsa"),
        signed(claims(s), RSA_KEY, "RS256", "ec"),
        f"{head}.{other_body}.{signature}",
        f"{hs_head}.{body}.{hs_signature.decode()}",
        "nonsense",
        "a.b.c",
    ):
        assert (await log_in(s, token)).error_code == REFUSED, token
    told = str(s.node.events.named("login failed"))
    assert signature not in told, "a token is as good as a password"


@with_keys()
async def test_a_token_does_not_log_in_as_somebody_else(s: Session) -> None:
    assert (await log_in(s, signed(claims(s)), "n,a=admin,")).error_code == REFUSED


@with_keys()
async def test_keys_are_rotated_while_the_broker_runs(s: Session) -> None:
    renewed = signed(claims(s), OTHER_KEY, kid="new")
    s.node.host.files[URL] = jwks(("new", OTHER_KEY, "ES256"))
    assert (await log_in(s, renewed)).error_code == REFUSED, "the keys were fetched a moment ago"
    await s.runtime.sleep(11_000)
    assert (await log_in(s, renewed)).error_code == 0
    assert (await log_in(s, signed(claims(s)))).error_code == REFUSED, "the old key is gone"


@with_keys()
async def test_while_the_issuer_is_away_its_keys_stay_in_use(s: Session) -> None:
    del s.node.host.files[URL]
    await s.runtime.sleep(11_000)
    assert (await log_in(s, signed(claims(s), OTHER_KEY, kid="new"))).error_code == REFUSED
    assert (await log_in(s, signed(claims(s)))).error_code == 0


@pytest.mark.parametrize("keys", [None, b"", b"[]", b'{"keys": []}', b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}'])
def test_a_broker_without_keys_does_not_start(keys: bytes | None) -> None:
    with World(1) as world:
        node = SimBroker(world, WITH_TOKENS)
        if keys is not None:
            node.host.files[URL] = keys
        world.tolerate_errors = True
        with pytest.raises(StartRefused, match=r"jwks|JWKS"):
            node.start()
