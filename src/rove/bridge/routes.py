"""The routes of a bridge, from a file or options."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from rove.base.documents import converted
from rove.errors import RoveError
from rove.lang import LanguageError, Subscription, parse
from rove.lang.tree import Attribute, Me, Time, parts
from rove.mqtt.topics import filter_fault, name_fault, split_shared

MQTT: Final = "mqtt:"
KAFKA: Final = "kafka:"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PLACES: Final = re.compile(r"\{(\w*)\}")
PLACES: Final = ("key", "partition", "topic")
"""Placeholders, in braces, in the target topic at the broker."""


class BridgeError(RoveError):
    """The configuration of a bridge is invalid, or it cannot pass something on."""


class BridgeRoute(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"source": "from", "target": "to"},
):
    """A route: `mqtt:FILTER` to `kafka:TOPIC`, or `kafka:TOPIC` to `mqtt:TOPIC`."""

    source: str
    target: str
    name: str = ""
    """By default made from both ends. It is the key of positions."""
    filter: str = ""
    """A filter expression; what does not match is left out."""
    key: str = ""
    """Towards Kafka: the attribute that is the key of a record; empty for the topic."""
    channels: tuple[str, ...] = ()
    """Towards Kafka: channels of the lake; empty for all."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where a route without a position begins."""
    refused: Literal["stop", "skip"] = "stop"
    """What happens with something that the other side cannot take."""

    @property
    def is_to_kafka(self) -> bool:
        """Towards Kafka."""
        return self.source.startswith(MQTT)

    @property
    def kafka_topic(self) -> str:
        return (self.target if self.is_to_kafka else self.source).removeprefix(KAFKA)

    @property
    def mqtt_topic(self) -> str:
        """A topic filter towards Kafka, otherwise a topic, perhaps with placeholders."""
        return (self.source if self.is_to_kafka else self.target).removeprefix(MQTT)

    @property
    def title(self) -> str:
        """Its name, or the default name."""
        if self.name:
            return self.name
        made = f"{self.source}-{self.target}".replace("#", "all").replace("+", "any")
        return re.sub(r"[^A-Za-z0-9._-]+", ".", made)[:100]


class BridgeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The configuration of a bridge."""

    kafka: str
    """Its servers: `host:9092,other:9092`."""
    routes: tuple[BridgeRoute, ...]
    name: str = "rove-bridge"
    """The name of the topic of positions; names of transactions and sessions begin with it."""
    broker: str = ""
    """As mqtt://host:1883."""
    lake: str = ""
    """A folder or a URI."""
    kafka_options: dict[str, str | int | float | bool] = {}
    """Options of all Kafka clients, by librdkafka's names: security and the like."""


def config_of(tables: Mapping[str, Any], where: str) -> BridgeConfig:
    """Check a configuration; BridgeError names the fault."""
    config = converted(tables, BridgeConfig, where, BridgeError)
    if not _NAME.fullmatch(config.name):
        raise BridgeError(
            f"{where}: the name {config.name!r} may have letters, digits and ._- only"
        )
    if not config.routes:
        raise BridgeError(f"{where} has no routes; give at least one, from and to")
    for route in config.routes:
        _check(route, config, f"{where}, route {route.title!r}")
    twice = [
        name for name, count in Counter(one.title for one in config.routes).items() if count > 1
    ]
    if twice:
        raise BridgeError(
            f"{where} has two routes called {twice[0]!r}; give each a name of its own"
        )
    return config


def _check(route: BridgeRoute, config: BridgeConfig, where: str) -> None:
    if route.name and not _NAME.fullmatch(route.name):
        raise BridgeError(f"{where}: a name may have letters, digits and ._- only")
    ends = (route.source.partition(":")[0], route.target.partition(":")[0])
    if ends not in (("mqtt", "kafka"), ("kafka", "mqtt")):
        raise BridgeError(
            f"{where} goes from {route.source!r} to {route.target!r}; "
            "one is mqtt:TOPIC, the other kafka:TOPIC"
        )
    if route.kafka_topic == config.name:
        raise BridgeError(f"{where}: {config.name!r} is the topic of the bridge's own positions")
    if not _TOPIC.fullmatch(route.kafka_topic):
        raise BridgeError(f"{where}: {route.kafka_topic!r} is no topic of Kafka")
    if route.is_to_kafka:
        fault = filter_fault(route.mqtt_topic)
        if fault is None and split_shared(route.mqtt_topic) is not None:
            fault = "a bridge reads the lake, which knows no shared subscriptions"
        if not config.lake:
            raise BridgeError(f"{where} reads the broker's lake; say where that is: lake = ...")
    else:
        fault = name_fault(_PLACES.sub("x", route.mqtt_topic))
        strange = set(_PLACES.findall(route.mqtt_topic)) - set(PLACES)
        if strange:
            fault = f"{{{min(strange)}}} is none of {', '.join(f'{{{one}}}' for one in PLACES)}"
        if route.key or route.channels:
            raise BridgeError(f"{where}: key and channels are for routes towards Kafka")
    if fault is not None:
        raise BridgeError(f"{where}: {fault}")
    filter_of(route, where)
    key_of(route, where)


def filter_of(route: BridgeRoute, where: str = "") -> Subscription | None:
    """The filter expression of a route; None if it has none."""
    if not route.filter:
        return None
    where = where or f"route {route.title!r}"
    try:
        found = parse(route.filter)
    except LanguageError as error:
        said = " ".join(str(error).split())
        raise BridgeError(f"{where}: {said}") from error
    if found.rank is not None or any(isinstance(part, Me | Time) for part in parts(found)):
        raise BridgeError(
            f"{where}: {route.filter!r} depends on more than the publication; "
            "a bridge has no subscriber, so `me`, `t` and ORDER BY mean nothing here"
        )
    return found


def key_of(route: BridgeRoute, where: str = "") -> Attribute | None:
    """The attribute that is the key; None for the topic."""
    if not route.key:
        return None
    try:
        found = parse(f"{route.key} IS NULL")
    except LanguageError:
        found = None
    paths = [] if found is None else [one for one in parts(found) if isinstance(one, Attribute)]
    if len(paths) != 1:
        where = where or f"route {route.title!r}"
        raise BridgeError(f"{where}: the key {route.key!r} is no attribute, as place or site.id")
    return paths[0]


class RouteProgress(msgspec.Struct):
    """The progress of a route since it was started."""

    route: str
    read: int = 0
    """Publications or records that were read."""
    sent: int = 0
    """Those of them that the other side has on disk."""
    left: int = 0
    """Those that do not match, or come from the other side."""
    refused: int = 0
    """Those that the other side cannot take, with `skip`."""
    position: int = -1
    """The position in the lake, or the sum of the next offsets."""
    is_at_end: bool = False
    """Whether it was at the end at the last look."""
    troubles: int = 0
    """How often it was restarted."""
    trouble: str = ""
    """The last fault, until it works again."""


def progress_line(now: RouteProgress, before: RouteProgress | None, seconds: float) -> str:
    """One line for people."""
    per_s = (now.sent - (before.sent if before else 0)) / seconds if seconds > 0 else 0.0
    parts = [f"{now.sent:,} sent ({per_s:,.0f}/s)"]
    parts += [f"{now.left:,} left"] * bool(now.left)
    parts += [f"{now.refused:,} refused"] * bool(now.refused)
    parts.append("at the end" if now.is_at_end else f"position {now.position:,}")
    parts += [f"waiting: {now.trouble}"] * bool(now.trouble)
    return f"{now.route}: {', '.join(parts)}"
