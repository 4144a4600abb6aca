"""Access rules: the algebra of filters against brute force, then the rules people write."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rove.broker.access import (
    ANSWERS_MAX,
    AccessError,
    AccessRules,
    Identity,
    filter_covers,
    filters_overlap,
    without_share,
)
from rove.mqtt.topics import fits

ALICE = Identity("alice", "phone", "password")
BOB = Identity("bob", "laptop", "password")
NOBODY = Identity(None, "toy")


def rules(*lines: str) -> AccessRules:
    return AccessRules.parse("\n".join(lines), "acl")


# --- the algebra ------------------------------------------------------------------------------

WORDS = ("a", "b", "", "$x")
DEPTH_MAX = 3
# One level deeper than the filters, and one word that no filter names: enough to tell any two
# filters of that size apart.
TOPICS = [
    "/".join(topic)
    for depth in range(1, DEPTH_MAX + 2)
    for topic in itertools.product((*WORDS, "other"), repeat=depth)
    if topic != ("",)
]


def topics_of(topic_filter: str) -> int:
    """The topics that fit, one bit each."""
    return sum(fits(topic_filter, topic) << bit for bit, topic in enumerate(TOPICS))


def every_filter() -> Iterator[str]:
    yield "#"
    for depth in range(1, DEPTH_MAX + 1):
        for parts in itertools.product((*WORDS, "+"), repeat=depth):
            if parts != ("",):
                yield "/".join(parts)
            if depth < DEPTH_MAX:
                yield "/".join((*parts, "#"))


def test_covering_and_overlapping_are_what_the_topics_say() -> None:
    """Of every two filters of up to three levels, by brute force."""
    sets = {topic_filter: topics_of(topic_filter) for topic_filter in every_filter()}
    assert len(sets) == 5 + 25 + 125 + 1 + 5 + 25 - 1
    for (wide, all_of_wide), (narrow, all_of_narrow) in itertools.product(sets.items(), repeat=2):
        both = all_of_wide & all_of_narrow
        assert filter_covers(wide, narrow) == (both == all_of_narrow), (wide, narrow)
        assert filters_overlap(wide, narrow) == bool(both), (wide, narrow)


@pytest.mark.parametrize(
    ("wider", "narrower", "covers", "overlap"),
    [
        ("#", "a/b", True, True),
        ("#", "#", True, True),
        ("+/#", "#", True, True),
        ("#", "$SYS/a", False, False),
        ("+/a", "$SYS/a", False, False),
        ("$SYS/#", "$SYS/a", True, True),
        ("a/#", "a", True, True),
        ("a/#", "a/+", True, True),
        ("a/+", "a/#", False, True),
        ("a/+", "a", False, False),
        ("a/+/c", "a/b/+", False, True),
        ("a/b", "a/+", False, True),
        ("a/b", "a/c", False, False),
        ("a/b/#", "a", False, False),
    ],
)
def test_the_cases_that_people_ask_about(
    wider: str, narrower: str, covers: bool, overlap: bool
) -> None:
    assert filter_covers(wider, narrower) == covers
    assert filters_overlap(wider, narrower) == filters_overlap(narrower, wider) == overlap


# --- rules ------------------------------------------------------------------------------------


def test_what_no_rule_allows_is_denied() -> None:
    found = rules("allow user alice publish sensors/+/air")
    assert found.allowed(ALICE, "publish", "sensors/1/air")
    assert not found.allowed(ALICE, "publish", "sensors/1/water")
    assert not found.allowed(ALICE, "subscribe", "sensors/1/air")
    assert not found.allowed(BOB, "publish", "sensors/1/air")
    assert not rules().allowed(ALICE, "publish", "a")


def test_deny_wins_whatever_the_order() -> None:
    lines = ["allow user * publish,subscribe #", "deny user bob publish secret/#"]
    for order in (lines, lines[::-1]):
        found = rules(*order)
        assert found.allowed(ALICE, "publish", "secret/x")
        assert not found.allowed(BOB, "publish", "secret/x")
        assert found.allowed(BOB, "publish", "public/x")
        assert found.allowed(BOB, "subscribe", "secret/x")


def test_a_subscription_that_overlaps_a_denied_area_is_granted_and_thinned_out() -> None:
    found = rules("allow user * subscribe public/#", "deny user bob subscribe public/secret/#")
    assert found.allowed(BOB, "subscribe", "public/#")
    assert found.may_receive(BOB, "public/news")
    assert not found.may_receive(BOB, "public/secret/news")
    assert not found.may_receive(BOB, "public/secret")
    assert not found.allowed(BOB, "subscribe", "public/secret/+")
    assert not found.allowed(BOB, "subscribe", "public/secret/#")
    assert found.may_receive(ALICE, "public/secret/news")


def test_a_subscription_that_is_only_partly_allowed_is_refused() -> None:
    found = rules("allow user * subscribe public/#")
    assert not found.allowed(ALICE, "subscribe", "#")
    assert not found.allowed(ALICE, "subscribe", "+/news")


def test_a_shared_subscription_is_judged_as_its_filter() -> None:
    found = rules("allow user * subscribe public/#")
    assert found.allowed(ALICE, "subscribe", "$share/workers/public/+")
    assert not found.allowed(ALICE, "subscribe", "$share/public/secret")
    assert without_share("$share/g/a/b") == "a/b"
    assert without_share("a/b") == "a/b"


def test_everybody_and_the_anonymous() -> None:
    found = rules("allow user * publish,subscribe a/#", "deny anonymous publish a/#")
    assert found.allowed(NOBODY, "subscribe", "a/b")
    assert not found.allowed(NOBODY, "publish", "a/b")
    assert found.allowed(BOB, "publish", "a/b")


def test_groups_may_be_defined_anywhere_and_in_parts() -> None:
    found = rules("allow group ops admin", "group ops = alice", "group ops = carol, dora")
    assert found.allowed(ALICE, "admin")
    assert found.allowed(Identity("dora", "", "certificate"), "admin")
    assert not found.allowed(BOB, "admin")
    assert not found.allowed(NOBODY, "admin")


def test_deny_wins_for_administrators_too() -> None:
    found = rules("group ops = alice, bob", "deny user bob admin", "allow group ops admin")
    assert found.allowed(ALICE, "admin")
    assert not found.allowed(BOB, "admin")


def test_names_and_topics_with_spaces() -> None:
    found = rules('allow user "alice smith" publish living room/+')
    assert found.allowed(Identity("alice smith"), "publish", "living room/light")


def test_the_rules_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs/operations.md").read_text()
    text = page.partition("```acl\n")[2].partition("```")[0]
    found = AccessRules.parse(text, "page")
    assert found.allowed(BOB, "subscribe", "public/#")
    assert found.may_receive(BOB, "public/news")
    assert not found.may_receive(BOB, "public/secret/plans")
    assert not found.allowed(NOBODY, "publish", "public/news")
    assert found.allowed(BOB, "publish", "home/bob/light")
    assert found.allowed(BOB, "admin")
    assert found.allowed(Identity("monitor"), "subscribe", "$SYS/#")


# --- placeholders -----------------------------------------------------------------------------


def test_placeholders_stand_for_the_user_and_the_client() -> None:
    found = rules("allow user * publish home/%u/+", "allow user * subscribe device-%c/#")
    assert found.allowed(ALICE, "publish", "home/alice/light")
    assert not found.allowed(ALICE, "publish", "home/bob/light")
    assert found.allowed(ALICE, "subscribe", "device-phone/#")
    assert not found.allowed(Identity("alice", "pad"), "subscribe", "device-phone/#")


@given(st.text(st.sampled_from("a+#/$%uc"), max_size=4))
def test_no_name_widens_what_is_allowed(name: str) -> None:
    found = rules("allow user * publish,subscribe home/%u/#", "allow user * subscribe %c")
    who = Identity(name, name, "password")
    for topic in ("home/other/x", "home/#", "home/+/#", "home", "#", "+", "$SYS/x", "$rove/admin"):
        assert not found.allowed(who, "subscribe", topic), (name, topic)


@pytest.mark.parametrize("name", ["+", "#", "a/b", "", "a+", None])
def test_a_name_that_is_no_level_is_allowed_nothing_and_denied_everything(
    name: str | None,
) -> None:
    found = rules("allow user * publish #", "deny user * publish home/%u/door")
    assert not found.allowed(Identity(name), "publish", "home/whoever/door")
    assert found.allowed(Identity(name), "publish", "home/whoever/window")
    only_own = rules("allow user * publish home/%u")
    assert not only_own.allowed(Identity(name), "publish", f"home/{name}")


def test_a_name_that_looks_like_a_control_topic_opens_none() -> None:
    found = rules("allow user * publish,subscribe %u/#")
    assert not found.allowed(Identity("$SYS"), "subscribe", "$SYS/#")
    assert not found.allowed(Identity("$rove"), "publish", "$rove/admin/stop")
    assert not found.allowed(Identity("$other"), "publish", "$other/x")


# --- control topics ---------------------------------------------------------------------------


def test_a_user_may_be_allowed_to_join_as_a_broker() -> None:
    found = rules("allow user alice broker", "allow user * admin", "deny user bob broker")
    assert found.allowed(ALICE, "broker")
    assert not found.allowed(BOB, "broker")
    assert not found.allowed(NOBODY, "broker")
    with pytest.raises(AccessError, match="`broker` takes no topic"):
        rules("allow user alice broker air/#")
    free = AccessRules.without_file()
    assert free.allowed(Identity("broker", "", "password"), "broker")
    assert not free.allowed(ALICE, "broker")
    assert not free.allowed(NOBODY, "broker")


def test_control_topics_are_for_everybody_but_admin_is_not() -> None:
    found = rules("group ops = alice", "allow group ops admin")
    for who in (ALICE, BOB, NOBODY):
        assert found.allowed(who, "publish", "$rove/me/set")
        assert found.allowed(who, "subscribe", "$rove/me/#")
        assert found.may_receive(who, "$rove/me/state")
        assert found.allowed(who, "publish", "$rove/admin/kick") == (who is ALICE)
        assert found.allowed(who, "subscribe", "$rove/#") == (who is ALICE)
        assert found.allowed(who, "subscribe", "$rove/+/x") == (who is ALICE)
        assert found.allowed(who, "subscribe", "$SYS/#") == (who is ALICE)
        assert found.may_receive(who, "$SYS/load") == (who is ALICE)
        assert found.allowed(who, "publish", "$SYS/load") == (who is ALICE)


def test_the_systems_topics_can_be_opened_by_name_only() -> None:
    found = rules("allow user bob subscribe $SYS/broker/#", "allow user alice subscribe #")
    assert found.allowed(BOB, "subscribe", "$SYS/broker/load")
    assert not found.allowed(BOB, "subscribe", "$SYS/#")
    assert not found.allowed(ALICE, "subscribe", "$SYS/#")


# --- without a file ---------------------------------------------------------------------------


def test_without_a_file_topics_are_free_and_only_admin_administers() -> None:
    free = AccessRules.without_file()
    for who in (ALICE, NOBODY):
        assert free.allowed(who, "publish", "a/b")
        assert free.allowed(who, "publish", "$other/b")
        assert free.allowed(who, "subscribe", "#")
        assert free.may_receive(who, "a/b")
        assert not free.allowed(who, "admin")
        assert not free.allowed(who, "subscribe", "$SYS/#")
    assert free.allowed(Identity("admin", "", "password"), "admin")
    assert not free.closed
    assert rules().closed


def test_on_a_machine_of_ones_own_the_anonymous_administer() -> None:
    own = AccessRules.without_file(anonymous_is_admin=True)
    assert own.allowed(NOBODY, "admin")
    assert own.allowed(NOBODY, "subscribe", "$SYS/#")
    assert not own.allowed(ALICE, "admin")


# --- what is remembered -----------------------------------------------------------------------


def test_verdicts_are_remembered_and_forgotten_before_they_fill_the_memory() -> None:
    found = rules("allow user alice publish a/+", "deny user alice publish a/7")
    for number in range(ANSWERS_MAX + 10):
        assert found.allowed(ALICE, "publish", f"a/{number}") == (number != 7)
    assert len(found._answers) == 10
    assert not found.allowed(ALICE, "publish", "a/7")


# --- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("alow user a admin", "a line begins with one of `allow`, `deny`, `group`: »alow« user"),
        ("allow alice admin", "then comes one of `user`, `group`, `anonymous`: allow »alice«"),
        ("allow user", "here is missing the name of the user: allow user»«"),
        ("allow user a", "here is missing what it is about: publish, subscribe, admin"),
        ("allow user a publsh x", "no verb `publsh`; did you mean `publish`?: allow user a »pub"),
        ("allow user a publish", "`publish` needs a topic filter, for example `sensors/#`"),
        ("allow user a publish,admin x", "`admin` takes no topic: allow user a publish,admin »x«"),
        ("allow user a admin x", "`admin` takes no topic: allow user a admin »x«"),
        ("allow user a publish subscribe x", "verbs stand together, as in `publish,subscribe`"),
        (
            "deny user a publish x/#/y",
            "# is the last level or none: 'x/#/y': deny user a publish »x/#/y«",
        ),
        ("deny user a publish x/# # why", "(a comment has a line of its own)"),
        ("deny user a publish x+", "a wildcard fills its level, 'x+' does not"),
        ("allow group opps admin", "there is no group `opps`; known: none"),
        ("group ops", "a group is `group NAME = USER, USER`"),
        ("group ops =", "a group is `group NAME = USER, USER`"),
        ("allow user a subscribe $share/g/x", "leave `$share/group/` out"),
        ("allow user a publish $rove/admin/x", "`$rove/admin/` belongs to the verb `admin`"),
        ('"', "a line begins with"),
    ],
)
def test_errors_say_where_and_what(line: str, message: str) -> None:
    with pytest.raises(AccessError) as caught:
        rules("# first", "", line)
    assert str(caught.value).startswith("acl:3: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@given(st.text() | st.text(st.sampled_from('allow deny user group * = #/+\n"')))
def test_no_text_does_harm(text: str) -> None:
    with contextlib.suppress(AccessError):
        rules(text).allowed(ALICE, "publish", "a")
