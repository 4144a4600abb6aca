"""The configuration: where values come from, what is refused, and that it is closed by default."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.broker.access import AccessError, Identity
from rove.broker.limits import Limits
from rove.serve.config import (
    ConfigError,
    changes,
    check,
    described,
    example,
    find_problems,
    keys,
    listeners,
    load,
    load_access,
    load_with_origins,
    toml_value,
    value_of,
)
from rove.serve.passwords import set_password
from rove.serve.settings import Channel, Config

ROOT = Path(__file__).resolve().parents[2]


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "rove.toml"
    path.write_text(text)
    return path


# --- where values come from -------------------------------------------------------------------


def test_without_anything_it_is_the_defaults() -> None:
    assert load() == Config()
    assert check(Config()) == []
    assert set(load_with_origins().origins.values()) == {"default"}


def test_the_command_line_goes_before_the_environment_before_the_file(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "[listen]\nmqtt_port = 1\nhttp_port = 1\nmqtts_port = 1\n[limits]\nreceive_max = 7\n",
    )
    environment = {"ROVE_LISTEN__MQTT_PORT": "2", "ROVE_LISTEN__HTTP_PORT": "2", "HOME": "/"}
    config, origins = load_with_origins(
        path, environment, {"listen.mqtt_port": 3, "data.folder": None}
    )
    assert (config.listen.mqtt_port, config.listen.http_port, config.listen.mqtts_port) == (3, 2, 1)
    assert config.limits == Limits(receive_max=7)
    assert origins["listen.mqtt_port"] == "command line"
    assert origins["listen.http_port"] == "ROVE_LISTEN__HTTP_PORT"
    assert origins["listen.mqtts_port"] == str(path)
    assert origins["listen.https_port"] == origins["data.folder"] == "default"


def test_every_key_can_be_set_in_the_environment() -> None:
    environment = {key.variable: as_variable(key.default) for key in keys().values()}
    config, origins = load_with_origins(None, environment)
    assert config == Config()
    assert "default" not in origins.values()


def as_variable(value: Any) -> str:
    return value if isinstance(value, str) else toml_value(value)


@pytest.mark.parametrize(
    ("variable", "text", "path", "value"),
    [
        ("ROVE_LISTEN__MQTT_PORT", "off", "listen.mqtt_port", "off"),
        ("ROVE_DATA__FOLDER", "7", "data.folder", "7"),
        ("ROVE_DATA__FOLDER", "/tmp/with space", "data.folder", "/tmp/with space"),
        ("ROVE_MQTT__TOPIC_TEXT", "true", "mqtt.topic_text", True),
        ("ROVE_LIMITS__CONNECT_TIMEOUT_S", "0.5", "limits.connect_timeout_s", 0.5),
        (
            "ROVE_LAKE__CHANNELS",
            '[{ name = "a", topics = ["a/#"] }]',
            "lake.channels",
            (Channel("a", ("a/#",)),),
        ),
    ],
)
def test_values_of_the_environment(variable: str, text: str, path: str, value: Any) -> None:
    assert value_of(load(None, {variable: text}), keys()[path]) == value


def test_paths_in_a_file_are_relative_to_it(tmp_path: Path) -> None:
    path = written(
        tmp_path, '[access]\npassword_file = "users"\nacl_file = ""\n[tls]\nkey = "/etc/key"\n'
    )
    config = load(path, {"ROVE_TLS__CERTIFICATE": "here.pem"})
    assert config.access.password_file == str(tmp_path / "users")
    assert config.access.acl_file == ""
    assert config.tls.key == "/etc/key"
    assert config.tls.certificate == "here.pem"
    assert config.data.folder == "rove-data"
    assert config.lake_location == "rove-data/lake"


def test_urls_in_a_file_are_no_paths(tmp_path: Path) -> None:
    path = tmp_path / "rove.toml"
    for written, meant in (
        ("metrics.db", str(tmp_path / "metrics.db")),
        ("mysql+pymysql://there/x", "mysql+pymysql://there/x"),
        ("", ""),
    ):
        path.write_text(f'[metrics]\ndatabase = "{written}"\n')
        assert load(path).metrics.database == meant


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[listen", "is not TOML: "),
        ("[lisen]", "there is no section `lisen`; did you mean `listen`?"),
        ("listen = 3", "`listen` is a section, to be written as [listen]"),
        (
            "[limits]\nconections_max = 1",
            "[limits] there is no key `conections_max`; did you mean `connections_max`?",
        ),
        ("[log]\nzzz = 1", "[log] there is no key `zzz`; `rove config` lists all there are"),
        (
            "[listen]\nmqtt_port = 70000",
            '[listen] mqtt_port = 70000: allowed is an integer from 0 up to 65_535 or "off"',
        ),
        ("[log]\nlevel = 3", '[log] level = 3: allowed is "debug" or "error" or "info" or "warn'),
        ("[limits]\nreceive_max = true", "receive_max = true: allowed is an integer from 1 up to"),
        ("[mqtt]\ntopic_text = 'yes'", '[mqtt] topic_text = "yes": allowed is true or false'),
        ("[data]\nfolder = 3", "[data] folder = 3: allowed is a text"),
        (
            "[[lake.channels]]\nname = 'a'\ntopics = ['x']\nkeep = ['all']",
            "(in [0].keep[0]): allowed is a list, each a table of name, topics, keep",
        ),
        (
            "[limits]\nmemory_bytes_low = 600_000_000",
            "[limits] memory_bytes_low is 600_000_000; it may be at most memory_bytes_high",
        ),
        (
            "[matchers]\nlayout = 'flat'",
            'layout = "flat": allowed is "hierarchical" or "partitioned" or "replicated"',
        ),
        ("[matchers]\nmin = -1", "[matchers] min = -1: allowed is an integer from 0"),
        ("[matchers]\nmax = 'all'", 'max = "all": allowed is an integer from 0 or "auto"'),
        ("[matchers]\nmin = 3\nmax = 2", "[matchers] min is 3; it may be at most max, 2"),
        ("[matchers]\nmerge_above = 1", "merge_above = 1: allowed is a number above 0 below 1"),
        (
            "[matchers]\nsplit_below = 0.7",
            "[matchers] split_below is 0.7; it must be below merge_above, 0.7",
        ),
        ("[policies]\nisolation = 'jail'", 'allowed is "none" or "process"'),
        ("[policies]\nworkers = -1", "[policies] workers = -1: allowed is an integer from 0"),
        ("[policies]\ntime_ms = 0", "[policies] time_ms = 0: allowed is an integer from 1"),
        ("[policies]\nshare = 2", "share = 2: allowed is a number above 0 up to 1"),
        ("[policies]\ntime_s = 1", "there is no key `time_s`; did you mean `time_ms`?"),
        ("[matchers]\npause_s = inf", "pause_s = Infinity: allowed is a number above 0 up to"),
    ],
)
def test_a_wrong_file(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert message in str(caught.value)
    # What contradicts itself may have come from several places.
    assert str(path) in str(caught.value) or " is " in message
    assert "\n" not in str(caught.value)


def test_a_missing_file() -> None:
    with pytest.raises(ConfigError, match=r"cannot read nowhere.toml: No such"):
        load(Path("nowhere.toml"))


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"ROVE_LISTEN__MQT_PORT": "1"}, "did you mean `ROVE_LISTEN__MQTT_PORT`?"),
        ({"ROVE_LISTEN_MQTT_PORT": "1"}, "did you mean `ROVE_LISTEN__MQTT_PORT`?"),
        ({"ROVE_ZZZZ__QQ": "1"}, "there is no variable `ROVE_ZZZZ__QQ`; `rove config` lists"),
        ({"ROVE_LISTEN__MQTT_PORT": "many"}, 'ROVE_LISTEN__MQTT_PORT = "many": allowed is an'),
        ({"ROVE_LISTEN__MQTT_PORT": "-1"}, "ROVE_LISTEN__MQTT_PORT = -1: allowed is an integer"),
    ],
)
def test_a_wrong_environment(environment: Mapping[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, environment)
    assert message in str(caught.value)


def test_variables_of_others_are_left_alone() -> None:
    assert load(None, {"ROVE_HOME": "/x", "ROVER": "fido", "LISTEN__MQTT_PORT": "1"}) == Config()


def test_a_wrong_override() -> None:
    with pytest.raises(ConfigError, match=r"did you mean `listen.mqtt_port`"):
        load(overrides={"listen.mqttport": 1})


@given(st.dictionaries(st.sampled_from(sorted(keys())), st.text() | st.integers() | st.booleans()))
def test_whatever_is_given_is_taken_or_refused_in_one_line(overrides: dict[str, Any]) -> None:
    try:
        config = load(overrides=overrides)
    except ConfigError as error:
        message = str(error)
    else:
        message = ""
        assert msgspec.convert(msgspec.to_builtins(config), Config) == config
    assert "\n" not in message


# --- closed by default ------------------------------------------------------------------------

TLS = {"tls.certificate": "c.pem", "tls.key": "k.pem"}
USERS = {"access.password_file": "users"}


def problems(**settings: Any) -> str:
    overrides = {name.replace("__", "."): value for name, value in settings.items()}
    return "\n".join(find_problems(load(overrides=overrides)))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "broker.example", ""])
@pytest.mark.parametrize("listener", ["mqtt", "http"])
def test_a_public_address_needs_users_and_tls(host: str, listener: str) -> None:
    public = {f"listen.{listener}_host": host}
    for overrides in (public, public | USERS, public | TLS):
        with pytest.raises(ConfigError, match="can be reached from other machines"):
            check(load(overrides=overrides))
    with pytest.raises(ConfigError, match=f"listen there with {listener}s_host"):
        check(load(overrides=public | USERS))


def test_the_ways_out_that_are_named_work() -> None:
    public = {"listen.mqtts_host": "0.0.0.0", "listen.mqtts_port": 8883} | TLS
    assert "rove passwd FILE USER" in "\n".join(find_problems(load(overrides=public)))
    assert check(load(overrides=public | USERS)) == []
    assert check(load(overrides=public | {"tls.client_ca": "ca.pem"})) == []
    plain = {"listen.mqtt_host": "0.0.0.0", "listen.plain_text_in_public": True}
    assert "passwords may be sent unprotected" in check(load(overrides=plain | USERS))[0]
    assert (
        "anybody who reaches a listener may connect"
        in check(load(overrides=public | {"access.anonymous": "always"}))[0]
    )


def test_an_address_of_a_listener_that_is_off_does_not_matter() -> None:
    assert problems(listen__mqtt_host="0.0.0.0", listen__mqtt_port="off") == ""


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listen__mqtt_port": "off", "listen__http_port": "off"}, "every listener is off"),
        ({"listen__mqtt_port": 8080}, "two listeners at 127.0.0.1:8080"),
        ({"listen__mqtts_port": 0}, "need [tls] certificate and key"),
        ({"tls__certificate": "c"}, "[tls] certificate is set but key is not"),
        ({"tls__key": "k"}, "[tls] key is set but certificate is not"),
        ({"tls__client_certificates": "required"}, "needs client_ca"),
        ({"lake__channels": '[{name="a", topics=["x/#/y"]}]'}, "channel 'a': # is the last level"),
        ({"lake__channels": '[{name="", topics=[]}]'}, "a channel needs a name"),
        (
            {"lake__channels": '[{name="a", topics=[]}, {name="a", topics=[]}]'},
            "two channels are called 'a'",
        ),
        (
            {"lake__channels": f'[{{name="{"ü" * 41}", topics=[]}}]'},
            "channel 'üüüüüüüüü'…: a name has at most 80 bytes, not 82",
        ),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, Any], message: str) -> None:
    assert message in problems(**settings)


def test_any_number_of_listeners_may_take_a_free_port() -> None:
    config = load(overrides={"listen.mqtt_port": 0, "listen.http_port": 0})
    assert check(config) == []
    assert [(each.name, each.port) for each in listeners(config)] == [("mqtt", 0), ("http", 0)]


def test_what_is_unwise_is_said() -> None:
    assert "the machine crashes" in check(load(overrides={"data.durability": "process"}))[0]
    assert "the broker crashes" in check(load(overrides={"data.durability": "none"}))[0]
    assert "are off" in check(load(overrides=TLS))[0]


# --- access files -----------------------------------------------------------------------------


def test_on_ones_own_machine_the_anonymous_do_everything() -> None:
    door, rules, warnings = load_access(Config())
    who = door.identify("c", "127.0.0.1", None, None)
    assert who == Identity(None, "c")
    assert rules.allowed(who, "publish", "a")
    assert rules.allowed(who, "admin")
    assert warnings == []


def test_with_users_only_they_come_in_and_admin_administers(tmp_path: Path) -> None:
    path = tmp_path / "users"
    set_password(path, "admin", b"secret")
    config = load(overrides={"access.password_file": str(path)})
    door, rules, _ = load_access(config)
    assert door.identify("c", "127.0.0.1", None, None) is None
    who = door.identify("c", "192.0.2.1", "admin", b"secret")
    assert who is not None
    assert rules.allowed(who, "admin")
    assert not rules.allowed(Identity(None), "admin")


def test_whom_always_lets_in_does_not_administer() -> None:
    _, rules, _ = load_access(load(overrides={"access.anonymous": "always"}))
    assert not rules.allowed(Identity(None), "admin")
    _, rules, _ = load_access(load(overrides={"tls.client_ca": "ca"}))
    assert not rules.allowed(Identity(None), "admin")


def test_rules_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "acl"
    path.write_text("allow anonymous publish a\n")
    _, rules, _ = load_access(load(overrides={"access.acl_file": str(path)}))
    assert rules.allowed(Identity(None), "publish", "a")
    assert not rules.allowed(Identity(None), "admin")
    path.write_text("allow all")
    with pytest.raises(AccessError, match=f"{path}:1: "):
        load_access(load(overrides={"access.acl_file": str(path)}))
    path.write_bytes(b"\xff")
    with pytest.raises(AccessError, match="not text in UTF-8"):
        load_access(load(overrides={"access.acl_file": str(path)}))
    path.unlink()
    with pytest.raises(AccessError, match="cannot read the access rules"):
        load_access(load(overrides={"access.acl_file": str(path)}))


def test_warnings_about_the_password_file(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.touch(mode=0o600)
    _, _, warnings = load_access(load(overrides={"access.password_file": str(path)}))
    assert warnings == [f"{path} names no user; `rove passwd {path} USER` adds one"]
    if os.name == "posix":
        path.chmod(0o644)
        _, _, warnings = load_access(load(overrides={"access.password_file": str(path)}))
        assert "can be read by every user" in warnings[0]


# --- reload -----------------------------------------------------------------------------------


def test_what_can_be_reloaded_and_what_cannot() -> None:
    assert changes(Config(), Config()) == ([], [])
    new = load(
        overrides={
            "limits.receive_max": 9,
            "access.acl_file": "x",
            "log.level": "debug",
            "tls.certificate": "c",
            "tls.client_ca": "ca",
            "listen.mqtt_port": 9,
            "data.folder": "d",
            "matchers.layout": "partitioned",
            "matchers.max": 1,
            "policies.time_ms": 1,
            "policies.isolation": "process",
        }
    )
    assert changes(Config(), new) == (
        [
            "access.acl_file",
            "tls.certificate",
            "log.level",
            "matchers.layout",
            "policies.time_ms",
            "limits.receive_max",
        ],
        ["listen.mqtt_port", "data.folder", "tls.client_ca", "matchers.max", "policies.isolation"],
    )


# --- the example and the page -------------------------------------------------------------------


def test_the_example_is_up_to_date_and_equal_to_the_defaults() -> None:
    """`rove config --example > rove.example.toml` mends it."""
    text = (ROOT / "rove.example.toml").read_text()
    assert text == example()
    tables = tomllib.loads(text)
    assert {f"{section}.{name}" for section, table in tables.items() for name in table} == set(
        keys()
    )
    config = load(ROOT / "rove.example.toml")
    assert changes(Config(), config) == ([], ["data.folder"])
    assert config.data.folder == str(ROOT / "rove-data")


def test_every_key_is_explained() -> None:
    assert [key.path for key in keys().values() if not key.explanation] == []


def test_the_page_has_every_key_with_its_default_and_its_explanation() -> None:
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    rows = {
        key.path: f"| `{key.name}` | `{toml_value(key.default)}` | {key.explanation} |"
        for key in keys().values()
    }
    assert [row for row in rows.values() if row not in page] == []


@pytest.mark.parametrize("key", keys().values(), ids=lambda key: key.path)
def test_what_is_allowed_can_be_said(key: Any) -> None:
    assert described(key.kind)


@given(st.text() | st.integers(0) | st.booleans() | st.floats(0, 1e9))
def test_values_are_written_as_toml(value: Any) -> None:
    assert tomllib.loads(f"x = {toml_value(value)}")["x"] == value
