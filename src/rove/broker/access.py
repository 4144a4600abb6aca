"""Access rules: which users may use which verbs on which topics; deny wins.

    # a comment has a line of its own
    group ops = alice, bob
    allow user * subscribe public/#
    allow user alice publish,subscribe sensors/+/air
    allow user * publish,subscribe home/%u/#
    deny anonymous publish public/#
    deny user * subscribe public/secret/#
    allow group ops admin
    allow user b2 broker

A rule names a subject (`user NAME`; `user *` for all users, anonymous ones included; `group NAME`;
`anonymous`), verbs and a topic filter. What no rule allows is denied, and a deny rule wins over
every allow rule wherever it stands: the order of lines never matters, so no line can be overlooked
because of another. First-match-wins, as in firewalls, was considered; it can express more, but an
early allow rule then silently defeats a later deny rule.

**Subscribing** is checked for a topic filter, not a topic. It is granted when an allow rule covers
the filter and no deny rule covers it. A filter that merely overlaps a denied one is granted, and
denied topics are left out at delivery (`may_receive`); otherwise `deny ... public/secret/#` would
refuse `public/#` to every user. `may_receive` also applies new rules to old subscriptions. A shared
subscription `$share/group/filter` is checked as `filter`.

**Control topics.** `$rove/admin/…` needs the verb `admin`; everything else below `$rove/` is open
to all users, because the broker checks each command. `$SYS/…` needs `admin` too, or a rule that
names it. A filter that begins with a wildcard never matches a topic that begins with `$`, as the
specification says, in rules as in subscriptions.

**Other brokers.** `broker` allows a user to join as a broker of the network (`rove.serve.mesh`).
Which topics may cross, in both directions, are that user's rules for `publish` and `subscribe`.

**Without a file** every authenticated client may publish and subscribe, the user called `admin` is
administrator, and the user called `broker` may join as a broker.

`%u` and `%c` in a topic stand for the user's name and the client identifier. A value that could
match more than one level or more than itself (it contains `/`, `+` or `#`, or is empty) never
widens a rule: an allow rule then has no effect, and a deny rule denies every value in that place.

A check evaluates the rules of one identity, about a microsecond each, and is cached: the same check
again costs 0.3 µs.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple, get_args

import msgspec

from rove.errors import RoveError
from rove.mqtt.topics import filter_fault, split_shared

Role = Literal["admin", "broker"]
Verb = Literal["publish", "subscribe", Role]
VERBS: Final[tuple[Verb, ...]] = get_args(Verb)
ROLES: Final[frozenset[Role]] = frozenset(get_args(Role))
"""Verbs that take no topic."""
Source = Literal["anonymous", "password", "certificate"]

ANSWERS_MAX: Final = 100_000
"""Results to cache; then all are dropped. A tuple of interned strings each, about 20 MB."""

PLACEHOLDERS: Final = re.compile("%[uc]")


class AccessError(RoveError):
    """An access rule cannot be understood."""


class Identity(msgspec.Struct, frozen=True):
    """The authenticated identity of a connection."""

    user: str | None = None
    """None for an anonymous client."""
    client_id: str = ""
    """As the client sent it: it authenticates nothing."""
    source: Source = "anonymous"
    """How the user was authenticated."""


# --- topic filters as sets of topics ----------------------------------------------------------


class Levels(NamedTuple):
    """A topic filter: its first levels, and whether any number of others may follow.

    `#` is written as `+` and what may follow: both mean every topic that does not begin with `$`.
    Likewise `/#` as `/+` and what may follow, because no topic is empty.
    """

    first: tuple[str, ...]
    open_end: bool


def levels(topic_filter: str) -> Levels:
    """The levels of a filter, or of a topic, which is a filter that matches only itself."""
    parts = tuple(topic_filter.split("/"))
    if parts[-1] != "#":
        return Levels(parts, False)
    return Levels(_LONGER.get(parts[:-1], parts[:-1]), True)


_LONGER: Final = {(): ("+",), ("",): ("", "+")}


def filter_covers(wider: str, narrower: str) -> bool:
    """Whether every topic that matches the narrower filter matches the wider one."""
    return _covers(levels(wider), levels(narrower))


def filters_overlap(one: str, other: str) -> bool:
    """Whether any topic matches both filters."""
    return _overlap(levels(one), levels(other))


def _covers(wider: Levels, narrower: Levels) -> bool:
    if len(wider.first) > len(narrower.first):
        return False
    if not wider.open_end and (narrower.open_end or len(wider.first) != len(narrower.first)):
        return False
    if wider.first[0] == "+" and narrower.first[0].startswith("$"):
        return False
    pairs = zip(wider.first, narrower.first, strict=False)
    return all(a == "+" or a == b for a, b in pairs)


def _overlap(one: Levels, other: Levels) -> bool:
    shorter, longer = sorted((one, other), key=lambda each: len(each.first))
    if len(shorter.first) < len(longer.first) and not shorter.open_end:
        return False
    beginnings = {one.first[0], other.first[0]}
    if "+" in beginnings and any(begin.startswith("$") for begin in beginnings):
        return False
    pairs = zip(shorter.first, longer.first, strict=False)
    return all(a == b or "+" in (a, b) for a, b in pairs)


def without_share(topic_filter: str) -> str:
    """The filter of a shared subscription, or the filter as it is."""
    shared = split_shared(topic_filter)
    return topic_filter if shared is None else shared[1]


ADMIN_AREA: Final = levels("$rove/admin/#")


# --- rules --------------------------------------------------------------------------------------


class Rule(NamedTuple):
    """One verb of one line."""

    allows: bool
    subject: Literal["user", "group", "anonymous"]
    name: str
    """Of the user (`*` for all) or of the group."""
    verb: Verb
    topic_filter: str
    """As it was written, with `%u` and `%c`; empty for a role."""

    def concerns(self, user: str | None, groups: Mapping[str, frozenset[str]]) -> bool:
        """Whether the rule applies to a user."""
        if self.subject == "anonymous":
            return user is None
        if self.subject == "group":
            return user in groups[self.name]
        return self.name in ("*", user)

    def filter_for(self, user: str | None, client_id: str) -> Levels | None:
        """The filter with its placeholders replaced; None if that would allow too much."""
        values = {"%u": user, "%c": client_id}
        used = [value or "" for name, value in values.items() if name in self.topic_filter]
        if self.allows and not all(_is_one_level(each) and each[0] != "$" for each in used):
            return None
        return levels("/".join(_filled_in(level, values) for level in self.topic_filter.split("/")))


def _filled_in(level: str, values: Mapping[str, str | None]) -> str:
    if not all(_is_one_level(values[name]) for name in PLACEHOLDERS.findall(level)):
        return "+"
    return PLACEHOLDERS.sub(lambda found: values[found[0]] or "", level)


def _is_one_level(value: str | None) -> bool:
    return bool(value) and not set("/+#") & set(value or "")


class _View(NamedTuple):
    """The rules of one identity, with placeholders replaced."""

    roles: frozenset[str]
    allows: Mapping[str, Sequence[Levels]]
    denies: Mapping[str, Sequence[Levels]]


class AccessRules:
    """The access rules of a broker."""

    def __init__(
        self, rules: Iterable[Rule], groups: Mapping[str, frozenset[str]], *, closed: bool = True
    ) -> None:
        self.rules = tuple(rules)
        self.groups = dict(groups)
        self.closed = closed
        """Whether what no rule allows is denied. If not, topics that do not begin with `$` need no
        `may_receive`."""
        self._by_client = any("%c" in rule.topic_filter for rule in self.rules)
        self._views: dict[tuple[str | None, str], _View] = {}
        self._answers: dict[tuple[str | None, str, str, str], bool] = {}

    @classmethod
    def parse(cls, text: str, source: str) -> AccessRules:
        """Read the rules of a file; `source` is its name, for errors."""
        lines = [
            _Line(line.strip(), f"{source}:{number}")
            for number, line in enumerate(text.splitlines(), start=1)
            if line.strip() and not line.lstrip().startswith("#")
        ]
        groups: dict[str, frozenset[str]] = {}
        for line in lines:
            if line.words[0][0] == "group":
                name, members = line.group()
                groups[name] = groups.get(name, frozenset()) | members
        rules = [
            rule for line in lines if line.words[0][0] != "group" for rule in line.rules(groups)
        ]
        return cls(rules, groups)

    @classmethod
    def without_file(cls, *, anonymous_is_admin: bool = False) -> AccessRules:
        """The rules without a file.

        Anonymous clients are administrators, and may join as brokers, only if the shell accepts
        none but local connections, and there are no users.
        """
        roles = [Rule(True, "user", role, role, "") for role in get_args(Role)]
        if anonymous_is_admin:
            roles += [Rule(True, "anonymous", "", role, "") for role in get_args(Role)]
        return cls(roles, {}, closed=False)

    def may_receive(self, identity: Identity, topic: str) -> bool:
        """Whether publications on a topic may be delivered, whatever the topic filter."""
        return self.allowed(identity, "receive", topic)

    def allowed(self, identity: Identity, verb: Verb | Literal["receive"], topic: str = "") -> bool:
        """Whether an identity may do this: `subscribe` takes a topic filter, a role nothing."""
        client_id = identity.client_id if self._by_client else ""
        question = (identity.user, client_id, verb, topic)
        answer = self._answers.get(question)
        if answer is None:
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.clear()
                self._views.clear()
            answer = self._judge(self._view(identity.user, client_id), verb, topic)
            self._answers[question] = answer
        return answer

    def _judge(self, view: _View, verb: str, topic: str) -> bool:
        if verb in ROLES:
            return verb in view.roles
        wanted = levels(without_share(topic) if verb == "subscribe" else topic)
        verb = "publish" if verb == "publish" else "subscribe"
        if wanted.first[0] == "$rove":
            return "admin" in view.roles or not _overlap(wanted, ADMIN_AREA)
        if any(_covers(denied, wanted) for denied in view.denies[verb]):
            return False
        if wanted.first[0] == "$SYS":
            if "admin" in view.roles:
                return True
        elif not self.closed:
            return True
        return any(_covers(allowed, wanted) for allowed in view.allows[verb])

    def _view(self, user: str | None, client_id: str) -> _View:
        view = self._views.get((user, client_id))
        if view is None:
            view = self._views[user, client_id] = self._fill_in(user, client_id)
        return view

    def _fill_in(self, user: str | None, client_id: str) -> _View:
        mine = [rule for rule in self.rules if rule.concerns(user, self.groups)]
        filters: dict[bool, dict[str, list[Levels]]] = {
            allows: {"publish": [], "subscribe": []} for allows in (True, False)
        }
        for rule in mine:
            filled = rule.filter_for(user, client_id) if rule.verb not in ROLES else None
            if filled is not None:
                filters[rule.allows][rule.verb].append(filled)
        denied = {rule.verb for rule in mine if not rule.allows}
        roles = ROLES.intersection(rule.verb for rule in mine if rule.allows) - denied
        return _View(roles, allows=filters[True], denies=filters[False])


# --- parsing --------------------------------------------------------------------------------------


class _Line:
    """A line of the file that is neither empty nor a comment."""

    def __init__(self, text: str, where: str) -> None:
        self.text = text
        self.where = where
        self.words = [
            (found[0].strip('"'), found.span()) for found in re.finditer(r'"[^"]*"|[^\s"]+', text)
        ] or [(text, (0, len(text)))]

    def group(self) -> tuple[str, frozenset[str]]:
        """A line that defines a group."""
        name, sign, members = self.text.removeprefix("group").partition("=")
        found = frozenset(each.strip() for each in members.split(",")) - {""}
        if not sign or not name.strip() or not found:
            raise self._fault("a group is `group NAME = USER, USER`", (0, len(self.text)))
        return name.strip(), found

    def rules(self, groups: Mapping[str, frozenset[str]]) -> Iterator[Rule]:
        """A line that allows or denies."""
        allows = self._one_of(0, ("allow", "deny", "group"), "a line begins with") == "allow"
        subject = self._one_of(1, ("user", "group", "anonymous"), "then comes")
        name = ""
        if subject != "anonymous":
            name, span = self._word(2, f"the name of the {subject}")
            if subject == "group" and name not in groups:
                raise self._fault(_unknown("group", name, groups), span)
        verbs_at = 2 if subject == "anonymous" else 3
        for verb in self._verbs(verbs_at):
            topic_filter = self._topic_filter(verbs_at, verb)
            yield Rule(allows, subject, name, verb, topic_filter)  # type: ignore[arg-type]

    def _verbs(self, at: int) -> Iterator[Verb]:
        word, span = self._word(at, f"what it is about: {', '.join(VERBS)}")
        for each in word.split(","):
            if each not in VERBS:
                raise self._fault(_unknown("verb", each, VERBS), span)
            yield each

    def _topic_filter(self, verbs_at: int, verb: Verb) -> str:
        begin = self.words[verbs_at][1][1]
        topic_filter = self.text[begin:].strip()
        span = (len(self.text) - len(topic_filter), len(self.text))
        if verb in ROLES:
            if topic_filter:
                raise self._fault(f"`{verb}` takes no topic", span)
            return ""
        if not topic_filter:
            raise self._fault(f"`{verb}` needs a topic filter, for example `sensors/#`", span)
        if topic_filter.split()[0].rstrip(",") in VERBS:
            raise self._fault("verbs stand together, as in `publish,subscribe`", span)
        if fault := _rule_fault(topic_filter):
            raise self._fault(fault, span)
        return topic_filter

    def _one_of(self, at: int, choices: Sequence[str], what: str) -> str:
        word, span = self._word(at, " or ".join(f"`{choice}`" for choice in choices))
        if word not in choices:
            listed = ", ".join(f"`{choice}`" for choice in choices)
            raise self._fault(f"{what} one of {listed}", span)
        return word

    def _word(self, at: int, expected: str) -> tuple[str, tuple[int, int]]:
        if at >= len(self.words):
            raise self._fault(f"here is missing {expected}", (len(self.text),) * 2)
        return self.words[at]

    def _fault(self, message: str, span: tuple[int, int]) -> AccessError:
        begin, end = span
        marked = f"{self.text[:begin]}»{self.text[begin:end]}«{self.text[end:]}"
        return AccessError(f"{self.where}: {message}: {marked}")


def _rule_fault(topic_filter: str) -> str | None:
    """Why a filter cannot stand in a rule, or None."""
    if split_shared(topic_filter):
        return "a shared subscription is judged as its filter; leave `$share/group/` out"
    if topic_filter.split("/")[0] == "$rove":
        return "no rule is needed for `$rove/`; `$rove/admin/` belongs to the verb `admin`"
    fault = filter_fault(topic_filter)
    if fault and " #" in topic_filter:
        return f"{fault} (a comment has a line of its own)"
    return fault


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    advice = f"did you mean `{near[0]}`?" if near else f"known: {', '.join(known) or 'none'}"
    return f"there is no {kind} `{name}`; {advice}"
