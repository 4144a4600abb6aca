"""The settings of a broker, by section: the reference of the configuration.

The fields of these classes are the keys of the file. `rove config` prints the text below a field,
and `rove.example.toml` and `docs/operations.md` have it too, so that each key has one explanation.
The limits of policies are defined in `rove.policy.limits`, and inherited with their explanations.

`rove.serve.config` loads and checks them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from rove.base.files import Readers
from rove.base.processes import cores
from rove.broker.limits import Limits
from rove.broker.policies.agents import Isolation
from rove.elastic.view import Layout
from rove.mesh.interest.summary import DEFAULT_BUDGET_BYTES, Covering
from rove.policy.limits import PolicyLimits, Seconds

Port = Annotated[int, Meta(ge=0, le=65_535)] | Literal["off"]
Kind = Literal["publications", "notifications", "states", "metrics"]
NotNegative = Annotated[float, Meta(ge=0)]
Share = Annotated[float, Meta(gt=0, lt=1)]

WORKERS_MIN: Final = 2
"""Workers on the smallest machine: long jobs leave one for the others."""


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of the file."""


class ListenSettings(Section, frozen=True):
    """Where clients connect. A host is an address of this machine, `127.0.0.1` only for programs on
    it; a port is a number, 0 for any free port, or "off"."""

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
    """Dangerous: allows `mqtt_host` and `http_host` to be addresses that other machines can reach.
    Passwords and publications are then sent unprotected, unless a proxy or a private network
    protects them."""


class DataSettings(Section, frozen=True):
    """What survives a restart."""

    folder: str = "rove-data"
    """For sessions, queues and retained publications. One broker at a time may use it."""
    durability: Literal["full", "process", "none"] = "full"
    """What acknowledged changes survive: `full` a power failure, `process` a crash of the broker
    but not of the machine, `none` neither (all data are in memory)."""


class AccessSettings(Section, frozen=True):
    """Who may connect, and what they may do."""

    password_file: str = ""
    """Users and hashes of their passwords, written by `rove passwd`. Empty: no passwords."""
    acl_file: str = ""
    """Access rules. Empty: every client that may connect may publish and subscribe, and the user
    `admin` is the administrator."""
    anonymous: Literal["loopback", "never", "always"] = "loopback"
    """Clients without a user name: `loopback` accepts them from this machine, and only while there
    are neither passwords nor client certificates; `never`; `always` is dangerous, because it
    accepts them from anywhere."""


class TlsSettings(Section, frozen=True):
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
    """Which name of a client's certificate is the user name: the common name of its subject, or its
    first alternative name (email, DNS or URI)."""


class LogSettings(Section, frozen=True):
    """The log on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level to write."""
    format: Literal["text", "json"] = "text"
    """`text` for people, `json` for programs: one object per line."""


class Channel(Section, frozen=True):
    """A named part of the lake."""

    name: str
    topics: tuple[str, ...]
    """Topic filters."""
    keep: tuple[Kind, ...] = ("publications",)


class LakeSettings(Section, frozen=True):
    """The Delta table for analysis."""

    enabled: bool = True
    """Whether channels are written at all."""
    folder: str = ""
    """A folder, or a URI such as `s3://bucket/lake`. Empty: `lake` in the folder of `[data]`."""
    readers: Readers = "owner"
    """Who on this machine may read it: `owner` the broker's user, `group` its group as well (for
    Spark under another user), `everybody`. The rest of `[data]` is always private."""
    channels: tuple[Channel, ...] = ()
    """What is written: a list of `{ name = "air", topics = ["air/#"], keep = ["publications"] }`;
    `keep` has any of publications, notifications, states and metrics (of the whole broker,
    whatever the topics). Without channels, nothing is written."""
    subscriptions: bool = True
    """Whether the lake also has the events of subscriptions and the subscribers' states, from which
    the pipeline computes who was notified. They are never deleted."""
    keep_days: NotNegative = 0
    """Files older than this are deleted; 0 keeps them forever."""
    keep_bytes: Annotated[int, Meta(ge=0)] = 0
    """If all files together are larger, the oldest are deleted; 0 is no limit."""
    rows_per_file: Annotated[int, Meta(ge=1)] = 65_536
    """A file is written when it has this many rows,"""
    seconds_per_file: Annotated[float, Meta(gt=0)] = 1.0
    """or when its first row has waited this long."""
    metrics_every_s: Annotated[float, Meta(gt=0)] = 10.0
    """How often the broker writes a row to a channel that keeps metrics."""


class MetricsSettings(Section, frozen=True):
    """The recording of metrics in a database, for charts and comparisons."""

    database: str = ""
    """An SQLite file, or a URL such as `postgresql+psycopg://user:password@host/name` or
    `mysql+pymysql://…`. Empty: nothing is recorded."""
    every_s: Annotated[float, Meta(gt=0)] = 1.0
    """How often."""
    record: tuple[str, ...] = ("*",)
    """The metrics to record, by name; `*` stands for any characters: `rove_publications_*`."""
    leave_out: tuple[str, ...] = ()
    """Which of these to leave out, by name likewise."""
    broker: str = ""
    """The value of the label `broker`. Empty: there is no such label; if several brokers share a
    database, each needs a name."""
    buffer: Annotated[int, Meta(ge=1)] = 100_000
    """The maximum of readings in memory while the database cannot be written. Beyond it, the oldest
    are dropped and counted."""
    keep_raw_hours: NotNegative = 24
    """Readings older than this are deleted from the database, also those of other writers; 0 leaves
    that to the pipeline."""


class MatcherSettings(Section, frozen=True):
    """Processes that match for the broker when it has too little idle time."""

    layout: Layout = "replicated"
    """How subscriptions are distributed: `replicated`, each matcher has all of them and gets some
    publications; `partitioned`, each has some of them and gets all publications; `hierarchical`,
    one has those that cover others, and the others get only publications that match there."""
    min: Annotated[int, Meta(ge=0)] = 0
    """The minimum number of matchers; with 0 the broker matches by itself while it has time."""
    max: Annotated[int, Meta(ge=0)] | Literal["auto"] = "auto"
    """The maximum number of matchers. `auto`: one per core, none on a single core."""
    window_messages: Annotated[int, Meta(ge=1)] = 10_000
    """The number of recent messages by which a matcher is judged."""
    split_below: Share = 0.2
    """If matchers were idle for less than this share of their time, there will be more,"""
    merge_above: Share = 0.7
    """and fewer if it was more than this."""
    pause_s: Annotated[float, Meta(gt=0, le=86_400)] = 2.0
    """The minimum time between two reconfigurations."""

    def __post_init__(self) -> None:
        if isinstance(self.max, int) and self.min > self.max:
            raise ValueError(f"min is {self.min}; it may be at most max, {self.max}")
        if self.split_below >= self.merge_above:
            raise ValueError(
                f"split_below is {self.split_below:g}; it must be below merge_above,"
                f" {self.merge_above:g}"
            )


class MqttSettings(Section, frozen=True):
    """Extensions of the protocol."""

    topic_text: bool = False
    """Whether `topic?text` in a SUBSCRIBE of version 3.1.1 is a topic filter and a filter
    expression. Off by default, because a question mark is an ordinary character of a topic."""


class PolicySettings(PolicyLimits, frozen=True, forbid_unknown_fields=True):
    """A few lines of code per subscriber that decide what it gets, and their limits. A policy that
    exceeds a limit is stopped: the message is not sent, and the subscriber is notified."""

    enabled: bool = True
    """Whether subscribers may have policies. If not, setting one is refused, and existing ones do
    not run: everything is sent unchanged."""
    isolation: Isolation = "none"
    """Where policies run: `none`, in the broker while they are quick, otherwise in worker
    processes; `process`, always in worker processes, which have no rights but to compute. Choose
    that if you do not trust everybody who may set a policy."""
    workers: Annotated[int, Meta(ge=0)] = 0
    """The maximum number of worker processes. 0: one per core except one for the broker, and at
    least two, so that one is free for short jobs. They are started when there are jobs."""
    report_s: Seconds = 30.0
    """How often clients are asked to report their battery, their network and other variables."""

    @property
    def limits(self) -> PolicyLimits:
        """The limits alone."""
        names = PolicyLimits.__struct_fields__
        return PolicyLimits(**{name: getattr(self, name) for name in names})

    @property
    def processes(self) -> int:
        """The maximum number of workers on this machine."""
        return self.workers or max(WORKERS_MIN, cores() - 1)


class MeshSettings(Section, frozen=True):
    """The network of brokers that this one is part of (`docs/mesh.md`). Other brokers join it, and
    it joins them, at their MQTT ports."""

    name: str = ""
    """The name of this broker, unique in its network. Empty: it is in none."""
    join: tuple[str, ...] = ()
    """The brokers to join: `host:port`, `mqtt://user@host:port` or `mqtts://user@host:port`."""
    password_file: str = ""
    """A file whose first line is the password for all of these, unless their URLs have one."""
    ca: str = ""
    """The authority whose certificates are trusted for `mqtts`. Empty: those of the system."""
    certificate: str = ""
    """The certificate that this broker shows to those that it joins. Empty: none."""
    key: str = ""
    """Its private key."""
    covering: Covering = "merged"
    """What other brokers are told of the subscriptions here: `off`, all of them; `lazy`, none that
    another one covers; `active`, the same, and covered ones are withdrawn; `merged`, as few as
    `summary_bytes` allow, which lets some publications come in vain."""
    summary_bytes: Annotated[int, Meta(ge=1_000)] = DEFAULT_BUDGET_BYTES
    """The size of the summary, with `merged`."""


class Config(Section, frozen=True):
    """The whole configuration."""

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
    mesh: MeshSettings = MeshSettings()
    limits: Limits = Limits()

    @property
    def lake_location(self) -> str:
        return self.lake.folder or str(Path(self.data.folder) / "lake")

    @property
    def has_users(self) -> bool:
        """Whether users can authenticate."""
        return bool(self.access.password_file or self.tls.client_ca)
