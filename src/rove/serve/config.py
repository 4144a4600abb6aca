"""Loading and checking the configuration: where values come from, and which are refused.

A value comes from the command line, else from the environment, else from the file, else it is the
default. `rove.serve.settings` defines the keys; their explanations are read from its source.

Every value is converted separately, so that an error names the file, the section, the key, the
value and what is allowed. An unknown name is refused, with the nearest known one, because a limit
that is misspelt is a limit that is not set.

**Closed by default**: listeners are on loopback. `check` refuses a configuration that would open
the broker to the network without authentication or without TLS, and names alternatives.

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
from typing import Any, Final, NamedTuple

import msgspec

from rove.base.documents import nearest, read_tables
from rove.base.http import is_loopback
from rove.broker.access import AccessError, AccessRules
from rove.client.addresses import Address, parse_address
from rove.errors import RoveError
from rove.lake.storage import NAME_BYTES_MAX
from rove.mesh.messages import MeshError, check_name
from rove.mqtt.topics import filter_fault
from rove.policy.limits import PolicyLimits
from rove.serve.passwords import Authenticator, Passwords, permissions_warning
from rove.serve.settings import Channel, Config, MeshSettings, Section

ENVIRONMENT_PREFIX: Final = "ROVE_"
COMMENT_WIDTH: Final = 96
RELOADABLE_SECTIONS: Final = frozenset({"limits", "access", "log"})
RELOADABLE_KEYS: Final = frozenset(
    {"matchers.layout", "tls.certificate", "tls.key"}
    | {f"mesh.{name}" for name in ("join", "password_file", "ca", "certificate", "key")}
    | {f"policies.{name}" for name in PolicyLimits.__struct_fields__}
)
PATH_KEYS: Final = frozenset({
    "access.acl_file", "access.password_file", "data.folder", "lake.folder", "mesh.ca",
    "mesh.certificate", "mesh.key", "mesh.password_file", "metrics.database",
    "tls.certificate", "tls.client_ca", "tls.key",
})  # fmt: skip
"""In a file, relative paths are relative to that file."""


class ConfigError(RoveError):
    """The configuration is invalid or refused."""


# --- the keys -----------------------------------------------------------------------------------


class Key(NamedTuple):
    """A key of the configuration."""

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
        """Its variable in the environment."""
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
        # The keys that a section adds to inherited ones come first.
        own, fields = section.type.__annotations__, msgspec.structs.fields(section.type)
        for field in sorted(fields, key=lambda each: each.name not in own):
            default, text = field.default, texts.get(field.name, "")
            key = Key(section.name, field.name, field.type, default, text)
            found[key.path] = key
    return found


def section_explanation(section: str) -> str:
    """The explanation of a section."""
    kinds = {field.name: field.type for field in msgspec.structs.fields(Config)}
    return " ".join((inspect.getdoc(kinds[section]) or "").split())


def _explanations(struct: type) -> dict[str, str]:
    """The texts below the fields of a class, from the source: Python does not keep them."""
    try:
        source = inspect.getsource(struct)
    except OSError:  # installed without sources: it works without explanations
        return {}
    (definition,) = ast.parse(textwrap.dedent(source)).body
    assert isinstance(definition, ast.ClassDef)
    base = struct.__bases__[0]
    found = {} if base in (msgspec.Struct, Section) else _explanations(base)
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=text)):
                found[name] = " ".join(str(text).split())
    return found


def value_of(config: Config, key: Key) -> Any:
    """The value of a key."""
    return getattr(getattr(config, key.section), key.name)


def described(kind: Any) -> str:
    """The values that a type allows, for people."""
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

    `overrides` are by key (`{"listen.mqtt_port": 0}`); None stands for a key that is not given.
    """
    return load_with_origins(path, environment, overrides).config


def load_with_origins(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Loaded:
    """The same, with the origin of every value."""
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
    """Other programs may have variables with our prefix: only those that resemble a key count."""
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
    """A value given as text: taken as it is if the key allows text, otherwise parsed as TOML."""
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


def join_address(url: str) -> Address:
    """The address of a broker that is to be joined; the scheme may be left out."""
    address = parse_address(url if "://" in url else f"mqtt://{url}")
    if address.is_websocket:
        raise ConfigError(f"{address}: brokers are joined at mqtt:// or mqtts://")
    return address


class ListenerAddress(NamedTuple):
    """An address where clients connect."""

    name: str
    """`mqtt`, `mqtts`, `http` or `https`."""
    host: str
    port: int

    @property
    def is_encrypted(self) -> bool:
        return self.name.endswith("s")


def listeners(config: Config) -> list[ListenerAddress]:
    """The listeners that are on."""
    found = []
    for name in ("mqtt", "mqtts", "http", "https"):
        port = getattr(config.listen, f"{name}_port")
        if port != "off":
            found.append(ListenerAddress(name, getattr(config.listen, f"{name}_host"), port))
    return found


def check(config: Config) -> list[str]:
    """Refuse settings that are unsafe or cannot work; return warnings about risky ones."""
    problems = list(find_problems(config))
    if problems:
        raise ConfigError("; ".join(problems))
    return list(_warnings(config))


def find_problems(config: Config) -> Iterator[str]:
    """The reasons why a broker with this configuration cannot start, one line each."""
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
    yield from _mesh_problems(config.mesh)


def _exposure(config: Config, listener: ListenerAddress) -> Iterator[str]:
    """Why a listener must not be opened to the network."""
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


def _mesh_problems(mesh: MeshSettings) -> Iterator[str]:
    if mesh.name:
        try:
            check_name(mesh.name)
        except MeshError as error:
            yield f"[mesh] name: {error}"
    elif mesh.join:
        yield "[mesh] join needs a name: what this broker is called in the network"
    for url in mesh.join:
        try:
            join_address(url)
        except RoveError as error:
            yield f"[mesh] join: {error}"
    if bool(mesh.certificate) != bool(mesh.key):
        given, missing = ("certificate", "key") if mesh.certificate else ("key", "certificate")
        yield f"[mesh] {given} is set but {missing} is not; both are needed"


def _warnings(config: Config) -> Iterator[str]:
    if config.access.anonymous == "always":
        yield '[access] anonymous = "always": anybody who reaches a listener may connect'
    if config.listen.plain_text_in_public:
        yield "[listen] plain_text_in_public: passwords may be sent unprotected"
    if config.data.durability != "full":
        loss = "the machine" if config.data.durability == "process" else "the broker"
        yield f"[data] durability: acknowledged changes are lost if {loss} crashes"
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
    """Authentication and access rules, from the files that the configuration names, and warnings
    about these files. Called again on SIGHUP."""
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
    """The text of `rove.example.toml`: every key with its default and its explanation."""
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
    """A value in TOML."""
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
