"""Which topics go where: the routes of a bridge, as a file or options say them."""

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
"""What may stand in braces in the topic of the broker that records go to."""


class BridgeError(RoveError):
    """A bridge is set up wrongly, or has met what it cannot pass on."""


class Route(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    rename={"source": "from", "target": "to"},
):
    """One way: `mqtt:FILTER` to `kafka:TOPIC`, or `kafka:TOPIC` to `mqtt:TOPIC`."""

    source: str
    target: str
    name: str = ""
    """By default made of both ends. Positions are kept under it."""
    filter: str = ""
    """A text of the language; what does not meet it stays behind."""
    key: str = ""
    """Towards Kafka: the attribute that is the key of a record; empty for the topic."""
    channels: tuple[str, ...] = ()
    """Towards Kafka: of the lake; empty for all."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where a route begins that has no position yet."""
    refused: Literal["stop", "skip"] = "stop"
    """What happens at something that the other side cannot have."""

    @property
    def is_outward(self) -> bool:
        """Towards Kafka."""
        return self.source.startswith(MQTT)

    @property
    def kafka_topic(self) -> str:
        return (self.target if self.is_outward else self.source).removeprefix(KAFKA)

    @property
    def mqtt_topic(self) -> str:
        """A topic filter towards Kafka, otherwise a topic, perhaps with places in it."""
        return (self.source if self.is_outward else self.target).removeprefix(MQTT)

    @property
    def title(self) -> str:
        """Its name, or the one it has without."""
        if self.name:
            return self.name
        made = f"{self.source}-{self.target}".replace("#", "all").replace("+", "any")
        return re.sub(r"[^A-Za-z0-9._-]+", ".", made)[:100]


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a bridge is told."""

    kafka: str
    """Its servers: `host:9092,other:9092`."""
    routes: tuple[Route, ...]
    name: str = "rove-bridge"
    """Of the topic with the positions; transactions and sessions begin with it."""
    broker: str = ""
    """As mqtt://host:1883."""
    lake: str = ""
    """A folder or a URI."""
    kafka_options: dict[str, str | int | float | bool] = {}
    """For every client of Kafka, by librdkafka's names: security and the like."""


def plan_of(told: Mapping[str, Any], where: str) -> Plan:
    """The plan that was told, checked; BridgeError says what is wrong with it."""
    plan = converted(told, Plan, where, BridgeError)
    if not _NAME.fullmatch(plan.name):
        raise BridgeError(f"{where}: the name {plan.name!r} may have letters, digits and ._- only")
    if not plan.routes:
        raise BridgeError(f"{where} has no routes; give at least one, from and to")
    for route in plan.routes:
        _check(route, plan, f"{where}, route {route.title!r}")
    twice = [name for name, count in Counter(one.title for one in plan.routes).items() if count > 1]
    if twice:
        raise BridgeError(
            f"{where} has two routes called {twice[0]!r}; give each a name of its own"
        )
    return plan


def _check(route: Route, plan: Plan, where: str) -> None:
    if route.name and not _NAME.fullmatch(route.name):
        raise BridgeError(f"{where}: a name may have letters, digits and ._- only")
    ends = (route.source.partition(":")[0], route.target.partition(":")[0])
    if ends not in (("mqtt", "kafka"), ("kafka", "mqtt")):
        raise BridgeError(
            f"{where} goes from {route.source!r} to {route.target!r}; "
            "one is mqtt:TOPIC, the other kafka:TOPIC"
        )
    if route.kafka_topic == plan.name:
        raise BridgeError(f"{where}: {plan.name!r} is the topic of the bridge's own positions")
    if not _TOPIC.fullmatch(route.kafka_topic):
        raise BridgeError(f"{where}: {route.kafka_topic!r} is no topic of Kafka")
    if route.is_outward:
        fault = filter_fault(route.mqtt_topic)
        if fault is None and split_shared(route.mqtt_topic) is not None:
            fault = "a bridge reads the lake, which knows no shared subscriptions"
        if not plan.lake:
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


def filter_of(route: Route, where: str = "") -> Subscription | None:
    """The text of a route; None if it has none."""
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


def key_of(route: Route, where: str = "") -> Attribute | None:
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
