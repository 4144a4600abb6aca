"""The configuration: what can be set, where it comes from, and what is refused.

A value comes from the command line, else from the environment, else from the file, else it is the
default. The classes below are the reference: their fields are the keys, the text below a field is
what `rove config` prints and what stands in `rove.example.toml`, both read from this file, so that
there is one explanation of each key.

Every value is converted on its own, so that an error names the file, the section, the key, the
value and what would be allowed; a name that does not exist is refused with the nearest that does,
because a limit that is misspelt is a limit that is not set.

**Closed by default**: listeners are on loopback. `check` refuses a configuration that would open
the broker to the network without authentication or without TLS, and names the ways out.

Reading all of it takes a few milliseconds and happens at the start and on SIGHUP.
"""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
import json
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from rove.base.documents import nearest, read_tables
from rove.base.files import Readers
from rove.base.http import is_loopback
from rove.broker.access import AccessError, AccessRules
from rove.broker.limits import Limits
from rove.elastic.view import Layout
from rove.errors import RoveError
from rove.lake.storage import NAME_BYTES_MAX
from rove.mqtt.topics import filter_fault
from rove.policy.limits import PolicyLimits
from rove.serve.passwords import Authenticator, Passwords, permissions_warning
from rove.serve.workers.policy_settings import PolicySettings

Port = Annotated[int, Meta(ge=0, le=65_535)] | Literal["off"]
Kind = Literal["publications", "notifications", "states", "metrics"]
NotNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(gt=0, lt=1)]

ENVIRONMENT_PREFIX: Final = "ROVE_"
COMMENT_WIDTH: Final = 96
RELOADABLE_SECTIONS: Final = frozenset({"limits", "access", "log"})
RELOADABLE_KEYS: Final = frozenset(
    {"matchers.layout", "tls.certificate", "tls.key"}
    | {f"policies.{name}" for name in PolicyLimits.__struct_fields__}
)
PATH_KEYS: Final = frozenset({
    "access.acl_file", "access.password_file", "data.folder", "lake.folder", "metrics.database",
    "tls.certificate", "tls.client_ca", "tls.key",
})  # fmt: skip
"""Relative ones in a file are meant relative to that file."""


class ConfigError(RoveError):
    """The configuration cannot be understood, or is refused."""


class _Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file."""


class ListenSettings(_Section, frozen=True):
    """Where clients connect. A host is an address of this machine, `127.0.0.1` only for programs
    on it; a port is a number, 0 for any free port, or "off"."""

    mqtt_host: str = "127.0.0.1"
    """MQTT over TCP, in plain text."""
    mqtt_port: Port = 1883
    """1883 is the default of MQTT clients."""
    mqtts_host: str = "127.0.0.1"
    """MQTT over TLS; needs a certificate in `[tls]`."""
    mqtts_port: Port = "off"
    """Usually 8883."""
    http_host: str = "127.0.0.1"
    """HTTP in plain text; MQTT over WebSocket is there too, at `/mqtt`."""
    http_port: Port = 8080
    """One port for the interface, server-sent events and WebSockets."""
    https_host: str = "127.0.0.1"
    """The same over TLS; needs a certificate in `[tls]`."""
    https_port: Port = "off"
    """Usually 8443."""
    plain_text_in_public: bool = False
    """Dangerous: lets `mqtt_host` and `http_host` be addresses that others can reach. Passwords
    and publications then travel unprotected, unless a proxy or a private network protects them."""


class DataSettings(_Section, frozen=True):
    """What survives a restart."""

    folder: str = "rove-data"
    """Sessions, queues and what is retained. One broker at a time."""
    durability: Literal["full", "process", "none"] = "full"
    """What acknowledged changes survive: `full` a power failure, `process` a crash of the broker
    but not of the machine, `none` neither (all data are in memory)."""


class AccessSettings(_Section, frozen=True):
    """Who may connect, and what they may do."""

    password_file: str = ""
    """Users and hashes of their passwords, written by `rove passwd`. Empty: no passwords."""
    acl_file: str = ""
    """Access rules. Empty: every client that may connect may publish and subscribe, and the user
    `admin` is the administrator."""
    anonymous: Literal["loopback", "never", "always"] = "loopback"
    """Clients without a user name: `loopback` accepts them from this machine, and only while
    there are neither passwords nor client certificates; `never`; `always` is dangerous, because
    it accepts them from anywhere."""


class TlsSettings(_Section, frozen=True):
    """Certificates, as PEM files."""

    certificate: str = ""
    """The broker's certificate, followed by the intermediate certificates."""
    key: str = ""
    """Its private key, not encrypted, readable by the broker only."""
    client_ca: str = ""
    """The authority whose client certificates are trusted. Empty: the broker requests none."""
    client_certificates: Literal["optional", "required"] = "optional"
    """Whether clients need a certificate when there is a `client_ca`."""
    user_from: Literal["common-name", "alternative-name"] = "common-name"
    """Which name of a client's certificate is the user name: the common name of its subject, or
    its first alternative name (email, DNS or URI)."""


class LogSettings(_Section, frozen=True):
    """What is written to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The least important events to write."""
    format: Literal["text", "json"] = "text"
    """`text` for people, `json` for programs: one object per line."""


class Channel(_Section, frozen=True):
    """A part of the lake with a name."""

    name: str
    topics: tuple[str, ...]
    """Topic filters."""
    keep: tuple[Kind, ...] = ("publications",)


class LakeSettings(_Section, frozen=True):
    """The Delta table for analysis."""

    enabled: bool = True
    """Whether channels are written at all."""
    folder: str = ""
    """Where: a folder, or a URI such as `s3://bucket/lake`. Empty: `lake` in the folder of
    `[data]`."""
    readers: Readers = "owner"
    """Who on this machine may read it: `owner` the broker's user, `group` its group as well (for
    Spark under another user), `everybody`. The rest of `[data]` is always private."""
    channels: tuple[Channel, ...] = ()
    """What is kept: `{ name = "air", topics = ["air/#"], keep = ["publications"] }` each; `keep`
    names any of publications, notifications, states and metrics (of the whole broker, whatever the
    topics). None: nothing is written."""
    subscriptions: bool = True
    """Whether the lake also has the events of subscriptions and the subscribers' states, from
    which the pipeline computes who was notified. They are never deleted."""
    keep_days: NotNegative = 0
    """Files older than this are deleted; 0 keeps them forever."""
    keep_bytes: Annotated[int, Meta(ge=0)] = 0
    """If all files together are larger, the oldest are deleted; 0 is no limit."""
    rows_per_file: Annotated[int, Meta(ge=1)] = 65_536
    """A file is closed when it has as many rows,"""
    seconds_per_file: Annotated[float, Meta(gt=0)] = 1.0
    """or when its first row has waited that long."""
    metrics_every_s: Annotated[float, Meta(gt=0)] = 10.0
    """How often the broker writes a row to a channel that keeps metrics."""


class MetricsSettings(_Section, frozen=True):
    """What is recorded in a metrics database, for charts and comparisons."""

    database: str = ""
    """A file of SQLite, or a URL such as `postgresql+psycopg://user:password@host/name` or
    `mysql+pymysql://…`. Empty: nothing is recorded."""
    every_s: Annotated[float, Meta(gt=0)] = 1.0
    """How often."""
    record: tuple[str, ...] = ("*",)
    """Which metrics, by name; `*` is any characters: `rove_publications_*`."""
    leave_out: tuple[str, ...] = ()
    """Which of these to leave out, by name likewise."""
    broker: str = ""
    """The value of the label `broker`. Empty: there is no such label; if several brokers share a
    database, each needs a name."""
    buffer: Annotated[int, Meta(ge=1)] = 100_000
    """The maximum of readings in memory while the database cannot be written. Beyond it, the
    oldest are dropped and counted."""
    keep_raw_hours: NotNegative = 24
    """Readings older than this are deleted from the database, also those of other writers; 0
    leaves that to the pipeline."""


class MatcherSettings(_Section, frozen=True):
    """Processes that match for the broker when it has too little time left for everything else."""

    layout: Layout = "replicated"
    """How subscriptions are spread over them: `replicated`, each has all and gets some of the
    publications; `partitioned`, each has some and gets all publications; `hierarchical`, one has
    those that cover the others, which get only what these let through."""
    min: Annotated[int, Meta(ge=0)] = 0
    """The least number of them; 0 lets the broker match by itself as long as it has time."""
    max: Annotated[int, Meta(ge=0)] | Literal["auto"] = "auto"
    """The greatest number of them. `auto`: one for each core, none where there is only one core."""
    window_messages: Annotated[int, Meta(ge=1)] = 10_000
    """A matcher is judged by its last messages, so many of them."""
    split_below: Share = 0.2
    """When less than this share of their time was idle there are to be more matchers,"""
    merge_above: Share = 0.7
    """and fewer when it was more than this."""
    pause_s: Annotated[float, Meta(gt=0, le=86_400)] = 2.0
    """The least time between two rearrangements."""

    def __post_init__(self) -> None:
        if isinstance(self.max, int) and self.min > self.max:
            raise ValueError(f"min is {self.min}; it may be at most max, {self.max}")
        if self.split_below >= self.merge_above:
            raise ValueError(
                f"split_below is {self.split_below:g}; it must be below merge_above,"
                f" {self.merge_above:g}"
            )


class MqttSettings(_Section, frozen=True):
    """Extensions of the protocol."""

    topic_text: bool = False
    """Whether `topic?text` in a SUBSCRIBE of version 3.1.1 is a topic filter and a filter
    expression. Off by default, because a question mark is an ordinary character of a topic."""


class Config(_Section, frozen=True):
    """All of it."""

    listen: ListenSettings = ListenSettings()
    data: DataSettings = DataSettings()
    access: AccessSettings = AccessSettings()
    tls: TlsSettings = TlsSettings()
    log: LogSettings = LogSettings()
    mqtt: MqttSettings = MqttSettings()
    lake: LakeSettings = LakeSettings()
    metrics: MetricsSettings = MetricsSettings()
    matchers: MatcherSettings = MatcherSettings()
    policies: PolicySettings = PolicySettings()
    limits: Limits = Limits()

    @property
    def lake_location(self) -> str:
        return self.lake.folder or str(Path(self.data.folder) / "lake")

    @property
    def has_users(self) -> bool:
        """Whether anybody could prove who they are."""
        return bool(self.access.password_file or self.tls.client_ca)


# --- the keys -----------------------------------------------------------------------------------


class Key(NamedTuple):
    """One thing that can be set."""

    section: str
    name: str
    kind: Any
    default: Any
    explanation: str

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        """The name of it in the environment."""
        return f"{ENVIRONMENT_PREFIX}{self.section}__{self.name}".upper()

    @property
    def is_reloadable(self) -> bool:
        """Whether SIGHUP is enough, or a restart is needed."""
        return self.section in RELOADABLE_SECTIONS or self.path in RELOADABLE_KEYS


@functools.cache
def keys() -> Mapping[str, Key]:
    """Every key by its path, `listen.mqtt_port` for example, in the order of the file."""
    found = {}
    for section in msgspec.structs.fields(Config):
        texts = _explanations(section.type)
        # What a section adds to what it took over comes first.
        own, fields = section.type.__annotations__, msgspec.structs.fields(section.type)
        for field in sorted(fields, key=lambda each: each.name not in own):
            default, text = field.default, texts.get(field.name, "")
            key = Key(section.name, field.name, field.type, default, text)
            found[key.path] = key
    return found


def section_explanation(section: str) -> str:
    """What a section is about."""
    kinds = {field.name: field.type for field in msgspec.structs.fields(Config)}
    return " ".join((inspect.getdoc(kinds[section]) or "").split())


def _explanations(struct: type) -> dict[str, str]:
    """The texts below the fields of a class; Python itself forgets them, the source does not."""
    try:
        source = inspect.getsource(struct)
    except OSError:  # installed without sources: it works, unexplained
        return {}
    (definition,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(definition, ast.ClassDef)
    base = struct.__bases__[0]
    found = {} if base in (msgspec.Struct, _Section) else _explanations(base)
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=text)):
                found[name] = " ".join(str(text).split())
    return found


def value_of(config: Config, key: Key) -> Any:
    """What is set."""
    return getattr(getattr(config, key.section), key.name)


def described(kind: Any) -> str:
    """What a type allows, for people."""
    return _described(msgspec.inspect.type_info(kind))


def _described(info: msgspec.inspect.Type) -> str:
    match info:
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            number = "an integer" if isinstance(info, msgspec.inspect.IntType) else "a number"
            bounds = (
                f" {word} {bound:_}"
                for word, bound in (
                    ("above", info.gt), ("from", info.ge), ("up to", info.le), ("below", info.lt),
                )
                if bound is not None
            )  # fmt: skip
            return number + "".join(bounds)
        case msgspec.inspect.LiteralType(values=values):
            return " or ".join(sorted(map(json.dumps, values)))
        case msgspec.inspect.UnionType(types=types):
            return " or ".join(map(_described, types))
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.VarTupleType(item_type=item):
            return f"a list, each {_described(item)}"
        case msgspec.inspect.StructType(fields=fields):
            return f"a table of {', '.join(field.name for field in fields)}"
    return "a text"


# --- loading ------------------------------------------------------------------------------------


class Loaded(NamedTuple):
    """A configuration, and where each of its values came from."""

    config: Config
    origins: Mapping[str, str]
    """By key: `default`, the name of the file, of the variable, or `command line`."""


def load(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Config:
    """The configuration of a file, the environment and the command line.

    `overrides` are by key (`{"listen.mqtt_port": 0}`); one that is None says nothing.
    """
    return load_with_origins(path, environment, overrides).config


def load_with_origins(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Loaded:
    """The same, with where everything came from."""
    values: dict[str, Any] = {}
    origins = dict.fromkeys(keys(), "default")
    sources = (
        _from_file(path) if path is not None else iter(()),
        _from_environment(environment or {}),
        _from_command_line(overrides or {}),
    )
    for source in sources:
        for key, value, origin in source:
            values[key.path] = value
            origins[key.path] = origin
    return Loaded(_built(values), origins)


Setting = tuple[Key, Any, str]


def _from_file(path: Path) -> Iterator[Setting]:
    tables = read_tables(path, ConfigError)
    known_sections = {key.section for key in keys().values()}
    for section, table in tables.items():
        if section not in known_sections:
            raise ConfigError(f"{path}: {_unknown('section', section, known_sections)}")
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: `{section}` is a section, to be written as [{section}]")
        for name, value in table.items():
            key = keys().get(f"{section}.{name}")
            if key is None:
                known = [each.name for each in keys().values() if each.section == section]
                raise ConfigError(f"{path}: [{section}] {_unknown('key', name, known)}")
            found = _converted(key, value, f"{path}: [{section}] {name}")
            if key.path in PATH_KEYS and found and "://" not in found:
                found = str(path.parent / found)
            yield key, found, str(path)


def _from_environment(environment: Mapping[str, str]) -> Iterator[Setting]:
    by_variable = {key.variable: key for key in keys().values()}
    for variable, text in environment.items():
        key = by_variable.get(variable)
        if key is not None:
            yield key, _converted_text(key, text, variable), variable
        elif variable.startswith(ENVIRONMENT_PREFIX) and _is_meant_for_us(variable, by_variable):
            raise ConfigError(_unknown("variable", variable, by_variable))


def _is_meant_for_us(variable: str, known: Mapping[str, Key]) -> bool:
    """Other programs may have variables that begin likewise: only what looks like a key counts."""
    near = difflib.get_close_matches(variable, known, n=1, cutoff=0.85)
    return "__" in variable or bool(near)


def _from_command_line(overrides: Mapping[str, Any]) -> Iterator[Setting]:
    for path, value in overrides.items():
        if value is None:
            continue
        key = keys().get(path)
        if key is None:
            raise ConfigError(_unknown("key", path, keys()))
        convert = _converted_text if isinstance(value, str) else _converted
        yield key, convert(key, value, path), "command line"


def _converted_text(key: Key, text: str, where: str) -> Any:
    """A value that came as text: as it is where a text is allowed, otherwise as TOML has it."""
    try:
        return msgspec.convert(text, key.kind)
    except msgspec.ValidationError:
        pass
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    return _converted(key, value, where)


def _converted(key: Key, value: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, key.kind)
    except msgspec.ValidationError as error:
        inner = str(error).partition(" - at `$")[2].strip("`.")
        place = f" (in {inner})" if inner else ""
        allowed = described(key.kind)
        raise ConfigError(f"{where} = {_shown(value)}{place}: allowed is {allowed}") from None


def _built(values: Mapping[str, Any]) -> Config:
    sections = {}
    for field in msgspec.structs.fields(Config):
        prefix = f"{field.name}."
        given = {
            path.removeprefix(prefix): v for path, v in values.items() if path.startswith(prefix)
        }
        try:
            sections[field.name] = field.type(**given)
        except ValueError as error:
            raise ConfigError(f"[{field.name}] {error}") from None
    return Config(**sections)


def _unknown(what: str, name: str, known: Mapping[str, Any] | set[str] | list[str]) -> str:
    advice = nearest(name, known, "`rove config` lists all there are")
    return f"there is no {what} `{name}`; {advice}"


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


# --- checking -----------------------------------------------------------------------------------


class ListenerAddress(NamedTuple):
    """One of the places where clients come in."""

    name: str
    """`mqtt`, `mqtts`, `http` or `https`."""
    host: str
    port: int

    @property
    def is_encrypted(self) -> bool:
        return self.name.endswith("s")


def listeners(config: Config) -> list[ListenerAddress]:
    """Those that are not off."""
    found = []
    for name in ("mqtt", "mqtts", "http", "https"):
        port = getattr(config.listen, f"{name}_port")
        if port != "off":
            found.append(ListenerAddress(name, getattr(config.listen, f"{name}_host"), port))
    return found


def check(config: Config) -> list[str]:
    """Refuse what is unsafe or cannot work; return warnings about what is allowed but unwise."""
    problems = list(find_problems(config))
    if problems:
        raise ConfigError("; ".join(problems))
    return list(_warnings(config))


def find_problems(config: Config) -> Iterator[str]:
    """What keeps a broker with this configuration from starting, one line each."""
    open_ones = listeners(config)
    if not open_ones:
        yield "every listener is off: nobody could connect; set one of the ports in [listen]"
    for listener in open_ones:
        yield from _exposure(config, listener)
    places = [(each.host, each.port) for each in open_ones if each.port]
    for place in sorted({place for place in places if places.count(place) > 1}):
        yield f"[listen] two listeners at {place[0]}:{place[1]}; give each its own port"
    yield from _tls_problems(config, any(each.is_encrypted for each in open_ones))
    yield from _lake_problems(config)


def _exposure(config: Config, listener: ListenerAddress) -> Iterator[str]:
    """Why a listener must not be opened to the network as it is."""
    if is_loopback(listener.host):
        return
    where = f"[listen] {listener.name}_host = {listener.host!r} can be reached from other machines"
    if not listener.is_encrypted and not config.listen.plain_text_in_public:
        yield (
            f"{where} and would show them passwords and publications in plain text; listen there"
            f" with {listener.name}s_host and {listener.name}s_port (and [tls] certificate, key),"
            f" or use 127.0.0.1, or set plain_text_in_public = true if a proxy or a private"
            f" network protects it"
        )
    if not config.has_users and config.access.anonymous != "always":
        yield (
            f"{where} but nobody has a user name; make a password file with `rove passwd FILE"
            f" USER` and name it in [access] password_file, or give [tls] client_ca, or use"
            f" 127.0.0.1"
        )


def _tls_problems(config: Config, has_encrypted_listener: bool) -> Iterator[str]:
    tls = config.tls
    if has_encrypted_listener and not tls.certificate:
        yield "[listen] mqtts_port and https_port need [tls] certificate and key"
    if bool(tls.certificate) != bool(tls.key):
        given, missing = ("certificate", "key") if tls.certificate else ("key", "certificate")
        yield f"[tls] {given} is set but {missing} is not; both are needed"
    if tls.client_certificates == "required" and not tls.client_ca:
        yield '[tls] client_certificates = "required" needs client_ca, the authority to trust'


def _lake_problems(config: Config) -> Iterator[str]:
    names = [channel.name for channel in config.lake.channels]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"[lake] two channels are called {name!r}"
    for channel in config.lake.channels:
        if not channel.name:
            yield "[lake] a channel needs a name"
        if (size := len(channel.name.encode())) > NAME_BYTES_MAX:
            name = channel.name[:9]
            yield f"[lake] channel {name!r}…: a name has at most {NAME_BYTES_MAX} bytes, not {size}"
        for topic_filter in channel.topics:
            if fault := filter_fault(topic_filter):
                yield f"[lake] channel {channel.name!r}: {fault}"


def _warnings(config: Config) -> Iterator[str]:
    if config.access.anonymous == "always":
        yield '[access] anonymous = "always": whoever reaches a listener is let in without a name'
    if config.listen.plain_text_in_public:
        yield "[listen] plain_text_in_public: passwords may travel unprotected"
    if config.data.durability != "full":
        loss = "the machine" if config.data.durability == "process" else "the broker"
        yield f"[data] durability: what was acknowledged is lost when {loss} stops suddenly"
    if config.tls.certificate and not any(each.is_encrypted for each in listeners(config)):
        yield "[tls] certificate is set but mqtts_port and https_port are off"


def changes(old: Config, new: Config) -> tuple[list[str], list[str]]:
    """The keys that differ: those that take effect on SIGHUP, and those that need a restart."""
    differing = [key for key in keys().values() if value_of(old, key) != value_of(new, key)]
    return (
        [key.path for key in differing if key.is_reloadable],
        [key.path for key in differing if not key.is_reloadable],
    )


def load_access(config: Config) -> tuple[Authenticator, AccessRules, list[str]]:
    """Who is let in and what they may do, from the files that the configuration names; warnings
    about those files besides. Called again on SIGHUP."""
    settings = config.access
    passwords, warnings = None, []
    if settings.password_file:
        path = Path(settings.password_file)
        passwords = Passwords.load(path)
        if warning := permissions_warning(path):
            warnings.append(warning)
        if not passwords.users:
            warnings.append(f"{path} names no user; `rove passwd {path} USER` adds one")
    door = Authenticator(
        passwords, settings.anonymous, trusts_certificates=bool(config.tls.client_ca)
    )
    only_ours = settings.anonymous == "loopback" and not config.has_users
    rules = AccessRules.without_file(anonymous_is_admin=only_ours)
    if settings.acl_file:
        rules = AccessRules.parse(_access_text(Path(settings.acl_file)), settings.acl_file)
    return door, rules, warnings


def _access_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise AccessError(f"cannot read the access rules {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise AccessError(f"the access rules {path} are not text in UTF-8") from None


# --- the example --------------------------------------------------------------------------------


def example() -> str:
    """`rove.example.toml`: every key with its default and its explanation."""
    lines = [
        "# Every key of Rove's configuration with its default. Keep only what you change.",
        "# Written by `rove config --example`; `docs/operations.md` says more.",
    ]
    section = ""
    for key in keys().values():
        if key.section != section:
            section = key.section
            lines += ["", "", *_comment(section_explanation(section)), f"[{section}]"]
        if key.explanation:
            lines += ["", *_comment(key.explanation)]
        lines.append(f"{key.name} = {toml_value(key.default)}")
    return "\n".join(lines) + "\n"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, COMMENT_WIDTH, initial_indent="# ", subsequent_indent="# ")


def toml_value(value: Any) -> str:
    """A value as a TOML file would have it."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return f"{value:_}" if value >= 10_000 else str(value)
        case tuple():
            return f"[{', '.join(map(toml_value, value))}]"
        case Channel():
            fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
            return f"{{ {', '.join(f'{name} = {toml_value(each)}' for name, each in fields)} }}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
