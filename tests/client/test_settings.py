"""Client properties: both vocabularies, and what is refused with which words."""

from __future__ import annotations

import ast
import inspect
import pickle
import re

import pytest
from confluent_kafka import Consumer, KafkaException

from penstock.client import ClientSettings, SettingsError, UnsupportedSetting, librdkafka_properties, login, tls
from penstock.client import settings as settings_module
from penstock.client.jaas import parse
from penstock.client.settings import Address

BROKER = {"bootstrap.servers": "localhost:9092"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def settings(**properties: object) -> ClientSettings:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return ClientSettings.from_properties(BROKER | named)


def refused(**properties: object) -> SettingsError:
    with pytest.raises(SettingsError) as caught:
        settings(**properties)
    return caught.value


def test_bootstrap_servers_are_addresses() -> None:
    found = settings(bootstrap_servers=" a:1, SSL://b:2,c ,[::1]:9,[fe80::2]")
    assert found.bootstrap_servers == (
        Address("a", 1), Address("b", 2), Address("c", 9092), Address("::1", 9), Address("fe80::2", 9092),
    )  # fmt: skip
    assert str(found.bootstrap_servers[3]) == "[::1]:9"
    for wrong in ("", " , ", "a:b", "a:99999", ":1", "a:0"):
        assert refused(bootstrap_servers=wrong).name == "bootstrap.servers"


def test_numbers_have_javas_and_librdkafkas_names() -> None:
    assert settings(request_timeout_ms="5").request_timeout_ms == 5
    assert settings(socket_timeout_ms=6).request_timeout_ms == 6
    assert settings(fetch_wait_max_ms="7").fetch_max_wait_ms == 7
    assert refused(fetch_max_bytes="lots").name == "fetch.max.bytes"
    assert refused(fetch_max_bytes="-1").name == "fetch.max.bytes"


def test_a_frame_may_always_be_as_large_as_what_is_fetched() -> None:
    found = settings(fetch_max_bytes=500_000_000)
    assert found.frame_bytes_max > 500_000_000


def test_properties_of_other_trades_are_left_alone() -> None:
    assert settings(group_id="g", acks="all", auto_offset_reset="earliest").security_protocol == "PLAINTEXT"


def test_security_properties_that_are_not_known_are_never_skipped() -> None:
    for name in ("ssl.cipher.suites", "sasl.something", "security.providers", "ssl.engine.factory.class"):
        with pytest.raises(UnsupportedSetting, match=name):
            ClientSettings.from_properties(BROKER | {name: "x"})
    assert refused(security_protocol="TLS").name == "security.protocol"


def test_what_only_librdkafka_can_do_can_be_told_apart() -> None:
    for properties in (
        {"sasl_mechanism": "GSSAPI"},
        {"sasl_mechanism": "AWS_MSK_IAM"},
        {"sasl_mechanism": "PLAIN", "sasl_jaas_config": "com.sun.security.auth.module.Krb5LoginModule required;"},
        {"sasl_mechanism": "PLAIN", "sasl_login_callback_handler_class": "com.example.Handler"},
    ):
        with pytest.raises(UnsupportedSetting):
            settings(security_protocol="SASL_PLAINTEXT", **properties)
    with pytest.raises(UnsupportedSetting):
        settings(security_protocol="SSL", ssl_keystore_location="me.p12", ssl_keystore_type="PKCS12")


def test_settings_travel_and_keep_their_secrets() -> None:
    found = settings(
        security_protocol="sasl_ssl",
        sasl_mechanism="PLAIN",
        sasl_jaas_config=f'{PLAIN} required username="alice" password="open sesame";',
        ssl_keystore_type="PEM",
        ssl_keystore_certificate_chain="CHAIN",
        ssl_keystore_key="KEY-TEXT",
        ssl_key_password="KEY-PASSWORD",
    )
    assert pickle.loads(pickle.dumps(found)) == found
    for secret in ("sesame", "KEY-TEXT", "KEY-PASSWORD"):
        assert secret not in repr(found)
    error = pickle.loads(pickle.dumps(SettingsError("a", "b")))
    assert (error.name, str(error)) == ("a", "a: b")


# Logins


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('m required username="alice" password="p";', {"username": "alice", "password": "p"}),
        ("a.b.M\n required\n username='al\"ice'\n password=a-word;", {"username": 'al"ice', "password": "a-word"}),
        (r'm required password="a\"b\\c\tq\101";', {"password": 'a"b\\c\tqA'}),
        ('m required /* no */ a="1" // gone\n b="2;=" ;', {"a": "1", "b": "2;="}),
        ("m REQUIRED;", {}),
    ],
)
def test_login_strings_are_read_as_java_does(text: str, options: dict[str, str]) -> None:
    assert parse(text).options == options


@pytest.mark.parametrize(
    "text",
    [
        "",
        "m",
        "m required",
        'm required username="sec',
        'm username="sec";',
        "m required =;",
        'm required username "sec";',
        'm required a="1"; n required b="2";',
    ],
)
def test_login_strings_that_are_none_are_refused_without_repeating_them(text: str) -> None:
    with pytest.raises(SettingsError, match=r"sasl\.jaas\.config") as caught:
        parse(text)
    assert "sec" not in str(caught.value)


def test_names_and_passwords_come_from_either_place() -> None:
    jaas = settings(
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config=f'shaded.{SCRAM} required username="a" password="b" tokenauth="true";',
    ).sasl
    plain = settings(
        security_protocol="SASL_PLAINTEXT", sasl_mechanisms="PLAIN", sasl_username="a", sasl_password="b"
    ).sasl
    assert jaas is not None
    assert plain is not None
    assert (jaas.username, jaas.password, jaas.token_auth) == ("a", "b", True)
    assert (plain.username, plain.password, plain.mechanism) == ("a", "b", "PLAIN")


def test_logins_that_contradict_themselves_are_refused() -> None:
    sasl = {"security_protocol": "SASL_PLAINTEXT"}
    error = refused(**sasl, sasl_mechanism="PLAIN", sasl_jaas_config=f'{SCRAM} required username="a" password="b";')
    assert "ScramLoginModule" in str(error)
    assert "username" in str(refused(**sasl, sasl_mechanism="PLAIN"))
    assert refused(**sasl, sasl_mechanism="OAUTHBEARER").name == "sasl.oauthbearer.token.endpoint.url"
    assert refused(**sasl, sasl_mechanism="PLAIN", sasl_username="a\0b", sasl_password="c").name == "sasl.jaas.config"


def test_oauth_has_its_three_vocabularies() -> None:
    url = "https://id.example/token"
    common = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": url,
    }
    login = 'required clientId="i" clientSecret="s" scope="w" extension_x="y"'
    found = [
        settings(**common, sasl_jaas_config=f"{OAUTH} {login};"),
        settings(
            **common,
            sasl_oauthbearer_client_id="i",
            sasl_oauthbearer_client_secret="s",
            sasl_oauthbearer_scope="w",
            sasl_oauthbearer_extensions="x=y",
            sasl_oauthbearer_method="oidc",
        ),
        settings(
            **common,
            sasl_oauthbearer_client_credentials_client_id="i",
            sasl_oauthbearer_client_credentials_client_secret="s",
            sasl_oauthbearer_scope="w",
            sasl_oauthbearer_extensions="x=y",
        ),
    ]
    assert found[0].sasl == found[1].sasl == found[2].sasl
    oauth = found[0].sasl and found[0].sasl.oauth
    assert oauth is not None
    assert (oauth.client_id, oauth.client_secret, oauth.scope, oauth.extensions) == ("i", "s", "w", (("x", "y"),))


# Certificates


def test_javas_binary_stores_are_refused_with_the_way_out() -> None:
    trust = refused(security_protocol="SSL", ssl_truststore_location="/x/trust.jks", ssl_truststore_password="p")
    assert "keytool -exportcert -rfc -keystore /x/trust.jks" in str(trust)
    assert "ssl.truststore.type=PEM" in str(trust)
    keys = refused(security_protocol="SSL", ssl_keystore_location="/x/key.jks")
    assert "openssl pkcs12" in str(keys)
    assert not isinstance(trust, UnsupportedSetting)
    assert not isinstance(keys, UnsupportedSetting)


def test_pem_stores_are_read_from_files_and_from_the_properties() -> None:
    files = settings(
        security_protocol="SSL",
        ssl_truststore_type="PEM",
        ssl_truststore_location="ca.pem",
        ssl_keystore_type="PEM",
        ssl_keystore_location="me.pem",
        ssl_endpoint_identification_algorithm="",
    ).tls
    assert files is not None
    assert (files.ca_path, files.certificate_path, files.key_path) == ("ca.pem", "me.pem", "me.pem")
    assert not files.check_hostname
    assert refused(security_protocol="SSL", ssl_keystore_type="PEM", ssl_keystore_key="k").name == (
        "ssl.keystore.certificate.chain"
    )
    for name in ("ssl.truststore.password", "ssl.keystore.password"):
        store = name.split(".")[1]
        with pytest.raises(SettingsError, match=name):
            settings(
                security_protocol="SSL",
                **{f"ssl_{store}_type": "PEM", f"ssl_{store}_location": "x", name.replace(".", "_"): "p"},
            )


@pytest.mark.parametrize(
    "name", ["ssl.truststore.location", "ssl.truststore.certificates", "ssl.ca.location", "ssl.ca.pem"]
)
def test_an_empty_trust_store_is_not_the_systems(name: str) -> None:
    empty = refused(security_protocol="SSL", ssl_truststore_type="PEM", **{name.replace(".", "_"): " "})
    assert (empty.name, empty.reason[:8]) == (name, "is empty")


# For librdkafka


@pytest.mark.parametrize(
    "properties",
    [
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "ssl.endpoint.identification.algorithm": "",
         "sasl.jaas.config": f'{PLAIN} required username="a" password="b";', "key.deserializer": "x"},
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER",
         "sasl.jaas.config": f'{OAUTH} required unsecuredLoginStringClaim_sub="me";'},
        {"fetch.max.wait.ms": "100", "receive.buffer.bytes": 65536, "client.dns.lookup": "use_all_dns_ips"},
        {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"},
    ],
)  # fmt: skip
def test_translated_properties_are_taken_by_librdkafka(properties: dict[str, str]) -> None:
    translated = librdkafka_properties(BROKER | properties | {"group.id": "g"})
    assert complaint(translated) is None


# A value that Java takes, for each name of the two vocabularies; "x" where any text will do.
VALUES = {
    "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.mechanisms": "PLAIN",
    "ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM", "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
    "ssl.endpoint.identification.algorithm": "https", "enable.ssl.certificate.verification": "true",
    "sasl.login.callback.handler.class": "", "sasl.client.callback.handler.class": "", "sasl.login.class": "",
    "sasl.oauthbearer.jwt.retriever.class": "", "sasl.oauthbearer.method": "oidc", "security.providers": "",
    "sasl.oauthbearer.token.endpoint.url": "https://id.example/token", "sasl.kerberos.kinit.cmd": "/usr/bin/kinit",
    "sasl.jaas.config": f'{PLAIN} required username="a" password="b";', "sasl.oauthbearer.extensions": "x=y",
    "enable.sasl.oauthbearer.unsecure.jwt": "false", "sasl.kerberos.min.time.before.relogin": "60000",
    "https.ca.location": "probe", "ssl.ca.location": "probe",
}  # fmt: skip
# What is read as a file at once, or together with others: see test_trust and test_secured.
FILES = ("ssl.ca.", "ssl.certificate.", "ssl.key.", "ssl.keystore.", "ssl.truststore.", "https.ca.pem")


def test_every_name_that_is_known_here_is_known_to_librdkafka_or_translated() -> None:
    names = [name for name in tls.KNOWN | login.KNOWN if name == "ssl.key.password" or not name.startswith(FILES)]
    given = BROKER | {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "a"}
    given |= {"sasl.password": "b", "group.id": "g", "log_level": "0"}
    told = {name: complaint(librdkafka_properties(given | {name: VALUES.get(name, "x")})) for name in names}
    assert {name: why for name, why in told.items() if why is not None} == {}


def complaint(properties: dict[str, str]) -> str | None:
    """What librdkafka says against them."""
    try:
        Consumer(properties).close()
    except KafkaException as error:
        return str(error)
    return None


def test_javas_stores_never_reach_librdkafka_under_their_own_names() -> None:
    stores = {name: "x" for name in tls.JAVA if ".truststore." in name or ".keystore." in name}
    assert librdkafka_properties(BROKER | stores) == BROKER


def test_a_kerberos_login_is_translated_whole() -> None:
    krb5 = "com.sun.security.auth.module.Krb5LoginModule required"
    common = BROKER | {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.kerberos.ticket.renew.window.factor": "0.8",
        "sasl.kerberos.ticket.renew.jitter": "0.05",
        "sasl.kerberos.kinit.cmd": "/usr/bin/kinit",
    }
    options = 'useKeyTab=true storeKey=true keyTab="/etc/u.keytab" principal="u@R" serviceName="kafka"'
    assert librdkafka_properties(common | {"sasl.jaas.config": f"{krb5} {options};"}) == BROKER | {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.kerberos.keytab": "/etc/u.keytab",
        "sasl.kerberos.principal": "u@R",
        "sasl.kerberos.service.name": "kafka",
    }
    cached = librdkafka_properties(common | {"sasl.jaas.config": f"{krb5} useTicketCache=true;"})
    assert cached["sasl.kerberos.min.time.before.relogin"] == "0", "there is no key to get a ticket with"


def test_a_number_that_is_none_is_refused_before_it_is_translated() -> None:
    with pytest.raises(SettingsError, match=r"buffer\.memory: '32m' is not a whole number"):
        librdkafka_properties(BROKER | {"buffer.memory": "32m"})


def test_java_code_is_refused_for_librdkafka_too() -> None:
    with pytest.raises(SettingsError, match=r"com\.example\.Handler is Java code"):
        librdkafka_properties(
            BROKER | {"security.protocol": "SASL_SSL", "sasl.login.callback.handler.class": "com.example.Handler"}
        )


def test_javas_oauth_names_are_enough_for_librdkafka() -> None:
    translated = librdkafka_properties(
        BROKER
        | {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": "https://id.example/token",
            "sasl.oauthbearer.client.credentials.client.id": "i",
            "sasl.oauthbearer.client.credentials.client.secret": "s",
        }
    )
    assert translated["sasl.oauthbearer.method"] == "oidc"
    assert (translated["sasl.oauthbearer.client.id"], translated["sasl.oauthbearer.client.secret"]) == ("i", "s")


def test_translation_keeps_what_matters() -> None:
    translated = librdkafka_properties(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{SCRAM} required username="a" password="b";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "ca.pem",
            "enable.idempotence": True,
        }
    )
    assert translated == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanisms": "SCRAM-SHA-256",
        "sasl.username": "a",
        "sasl.password": "b",
        "ssl.ca.location": "ca.pem",
        "enable.idempotence": "true",
    }


def test_every_property_that_is_read_is_known_and_every_known_one_is_read() -> None:
    """The names are listed once more, to tell misspelt ones: the two lists stay the same."""
    module = ast.parse(inspect.getsource(settings_module))
    listed = {node for top in module.body if isinstance(top, ast.Assign) for node in ast.walk(top)}
    texts = [node.value for node in ast.walk(module) if isinstance(node, ast.Constant) and node not in listed]
    read = {text for text in texts if isinstance(text, str) and re.fullmatch(r"[a-z]+(\.[a-z]+)+", text)}
    mentioned = settings_module.READ - tls.KNOWN - login.KNOWN
    assert read - settings_module.READ == set()
    assert mentioned - read <= {"security.providers"}, "known, and of no use"
