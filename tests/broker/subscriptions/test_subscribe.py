"""SUBSCRIBE and UNSUBSCRIBE: answers, texts, retained and valid publications, replacement."""

from typing import Any

import pytest

from rove.broker.access import AccessRules
from rove.broker.context import BrokerSettings, LakeStream
from rove.broker.limits import Limits
from rove.broker.storage.records import SubscriptionRow
from rove.broker.subscriptions.subscribe import KEPT_AT_ONCE, PREDICATES_PER_LOOK
from rove.mqtt.packets import (
    V311,
    Filter,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Reason,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from rove.testing.mqtt import SimulatedBroker


class TestAnswers:
    def test_each_filter_is_granted_its_quality_in_order(self) -> None:
        client = SimulatedBroker().connect()
        answer = client.subscribe(Filter("a", 2), Filter("b", 0), Filter("c", 1))
        assert answer.reasons == (2, 0, 1)

    def test_a_bad_filter_is_refused_and_the_others_are_granted(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        answer = client.subscribe("a/#/b", "a+", "ok", "$share//a", "$share/g")
        invalid = Reason.TOPIC_FILTER_INVALID
        assert answer.reasons == (invalid, invalid, 0, invalid, invalid)
        assert "# is the last level" in (answer.properties.reason_string or "")
        client.publish("ok", b"1")
        assert client.payloads() == [b"1"]
        assert world.broker.counters.subscriptions_refused == 4

    def test_what_may_not_be_subscribed_to_is_refused(self) -> None:
        rules = AccessRules.parse("allow user * publish,subscribe ok/#", "rules")
        client = SimulatedBroker(rules=rules).connect()
        answer = client.subscribe("no", "ok/a", "$share/g/no")
        assert answer.reasons == (Reason.NOT_AUTHORIZED, 0, Reason.NOT_AUTHORIZED)

    def test_more_levels_than_allowed_are_refused(self) -> None:
        client = SimulatedBroker(limits=Limits(topic_levels_max=2)).connect()
        assert client.subscribe("a/b", "a/b/c").reasons == (0, Reason.TOPIC_FILTER_INVALID)

    def test_3_1_1_is_answered_80_for_every_refusal(self) -> None:
        client = SimulatedBroker().connect(version=V311)
        client.send(Subscribe(5, (Filter("a/#/b", 1), Filter("ok", 1))))
        assert client.inbox == [Suback(5, (0x80, 1))]

    def test_more_subscriptions_of_a_session_than_allowed_are_refused(self) -> None:
        world = SimulatedBroker(limits=Limits(subscriptions_per_session_max=2))
        client = world.connect()
        assert client.subscribe("a", "b", "c").reasons == (0, 0, Reason.QUOTA_EXCEEDED)
        assert world.broker.counters.quota_hits == 1
        assert client.subscribe("a", qos=1).reasons == (1,)
        client.unsubscribe("a")
        assert client.subscribe("c").reasons == (0,)

    def test_more_subscriptions_altogether_than_allowed_are_refused(self) -> None:
        world = SimulatedBroker(limits=Limits(subscriptions_max=2))
        one, two = world.connect("one"), world.connect("two")
        assert one.subscribe("a", "b").reasons == (0, 0)
        assert two.subscribe("a").reasons == (Reason.QUOTA_EXCEEDED,)
        one.drop()
        assert two.subscribe("a").reasons == (0,)

    def test_reason_strings_are_kept_from_who_does_not_want_them(self) -> None:
        client = SimulatedBroker().connect(properties=Properties(request_problem_information=0))
        assert client.subscribe("a/#/b").properties == Properties()

    def test_the_answer_is_shortened_to_what_the_client_takes(self) -> None:
        client = SimulatedBroker().connect(properties=Properties(packet_size_max=40))
        answer = client.subscribe("a", filter="x >")
        assert answer.reasons == (Reason.IMPLEMENTATION_SPECIFIC_ERROR,)
        assert answer.properties.reason_string is None


class TestUnsubscribe:
    def test_each_filter_is_answered(self) -> None:
        client = SimulatedBroker().connect()
        client.subscribe("a", "b")
        answer = client.unsubscribe("a", "never")
        assert answer.reasons == (Reason.SUCCESS, Reason.NO_SUBSCRIPTION_EXISTED)
        client.publish("a")
        client.publish("b", b"1")
        assert client.payloads() == [b"1"]

    def test_filters_are_compared_letter_by_letter(self) -> None:
        client = SimulatedBroker().connect()
        client.subscribe("a/#")
        assert client.unsubscribe("a/b").reasons == (Reason.NO_SUBSCRIPTION_EXISTED,)
        client.publish("a/b", b"1")
        assert client.payloads() == [b"1"]

    def test_3_1_1_is_answered_without_reasons(self) -> None:
        client = SimulatedBroker().connect(version=V311)
        client.send(Unsubscribe(5, ("never",)))
        assert client.inbox == [Unsuback(5)]

    def test_what_is_under_way_is_still_delivered(self) -> None:
        world = SimulatedBroker()
        client = world.connect(properties=Properties(receive_max=1))
        client.subscribe("a", qos=1)
        for payload in (b"1", b"2"):
            client.publish("a", payload, 1)
        client.unsubscribe("a")
        client.publish("a", b"3", 1)
        assert [packet.payload for packet in client.take_all()] == [b"1", b"2"]

    def test_all_texts_on_a_topic_end(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=60)
        client.subscribe("a", identifier=1, filter="x = 1")
        client.subscribe("a", identifier=2, filter="x = 2")
        client.subscribe("a", identifier=3)
        assert client.unsubscribe("a").reasons == (Reason.SUCCESS,)
        client.publish("a", b'{"x": 1}')
        assert client.payloads() == []
        assert len(world.broker.router) == 0
        assert "subscriptions" not in world.disk.sizes()

    def test_one_of_several_texts_can_be_ended_by_its_identifier(self) -> None:
        client = SimulatedBroker().connect()
        client.subscribe("a", identifier=1, filter="x = 1")
        client.subscribe("a", identifier=2, filter="x = 2")
        assert client.unsubscribe("a", identifier=1).reasons == (Reason.SUCCESS,)
        assert client.unsubscribe("a", identifier=1).reasons == (Reason.NO_SUBSCRIPTION_EXISTED,)
        client.publish("a", b'{"x": 1}')
        client.publish("a", b'{"x": 2}')
        assert client.payloads() == [b'{"x": 2}']


class TestRetained:
    @staticmethod
    def world_with(*topics: str) -> SimulatedBroker:
        world = SimulatedBroker()
        publisher = world.connect("publisher")
        for topic in topics:
            publisher.publish(topic, topic.encode(), 1, retain=True)
        return world

    def test_a_new_subscription_is_given_the_last_words(self) -> None:
        world = self.world_with("a/b", "a/c", "d", "a")
        client = world.connect()
        client.subscribe("a/#", qos=1)
        came = client.take(Publish)
        assert sorted(packet.payload for packet in came) == [b"a", b"a/b", b"a/c"]
        assert all(packet.retain and packet.qos == 1 for packet in came)

    def test_they_come_after_the_answer(self) -> None:
        world = self.world_with("a")
        for qos in (0, 1):
            client = world.connect()
            client.send_subscribe("a", qos=qos)
            assert [type(packet) for packet in client.inbox] == [Suback, Publish]

    def test_only_the_last_word_counts(self) -> None:
        world = self.world_with("a")
        world.connect("other").publish("a", b"newer", retain=True)
        client = world.connect()
        client.subscribe("a")
        assert client.payloads() == [b"newer"]

    def test_an_empty_one_takes_the_last_word_away_and_is_delivered(self) -> None:
        world = self.world_with("a")
        before = world.connect("before")
        before.subscribe(Filter("a", retain_handling=2))
        world.connect("other").publish("a", b"", retain=True)
        assert before.payloads() == [b""]
        client = world.connect()
        client.subscribe("a")
        assert client.payloads() == []
        assert "retained" not in world.disk.sizes()
        assert "publications" not in world.disk.sizes()

    def test_handling_0_gives_them_with_every_subscribe(self) -> None:
        client = self.world_with("a").connect()
        for _ in range(2):
            client.subscribe(Filter("a", retain_handling=0))
            assert client.payloads() == [b"a"]

    def test_handling_1_gives_them_only_to_new_subscriptions(self) -> None:
        client = self.world_with("a").connect()
        client.subscribe(Filter("a", retain_handling=1))
        assert client.payloads() == [b"a"]
        client.subscribe(Filter("a", retain_handling=1))
        assert client.payloads() == []
        client.unsubscribe("a")
        client.subscribe(Filter("a", retain_handling=1))
        assert client.payloads() == [b"a"]

    def test_handling_1_counts_a_subscription_of_a_resumed_session(self) -> None:
        world = self.world_with("a")
        client = world.connect(expiry_s=60)
        client.subscribe(Filter("a", retain_handling=1))
        client.drop()
        client.come_back()
        client.subscribe(Filter("a", retain_handling=1))
        assert client.payloads() == []

    def test_handling_2_never_gives_them(self) -> None:
        client = self.world_with("a").connect()
        client.subscribe(Filter("a", retain_handling=2))
        assert client.payloads() == []

    def test_shared_subscriptions_are_given_none(self) -> None:
        client = self.world_with("a").connect()
        client.subscribe("$share/group/a")
        assert client.payloads() == []

    def test_no_local_holds_for_them(self) -> None:
        world = SimulatedBroker()
        client = world.connect()
        client.publish("a", b"own", retain=True)
        client.subscribe(Filter("a", no_local=True))
        assert client.payloads() == []

    def test_the_flag_is_set_whatever_was_asked_for_live_ones(self) -> None:
        client = self.world_with("a").connect()
        for kept in (False, True):
            client.subscribe(Filter("a", retain_as_published=kept))
            assert client.only(Publish).retain

    def test_they_carry_the_identifier(self) -> None:
        client = self.world_with("a").connect()
        client.subscribe("a", identifier=9)
        assert client.only(Publish).properties.subscription_ids == (9,)

    def test_expired_ones_are_not_given(self) -> None:
        world = SimulatedBroker()
        publisher = world.connect("publisher")
        properties = Properties(message_expiry_s=10)
        publisher.publish("a", b"1", retain=True, properties=properties)
        world.advance(4)
        first = world.connect("first")
        first.subscribe("a")
        assert first.only(Publish).properties.message_expiry_s == 6
        world.advance(7)
        assert world.disk.sizes() == {}
        second = world.connect("second")
        second.subscribe("a")
        assert second.payloads() == []

    def test_only_those_that_the_text_wants_are_given(self) -> None:
        world = SimulatedBroker()
        publisher = world.connect("publisher")
        for x in range(5):
            publisher.publish(f"a/{x}", b'{"x": %d}' % x, retain=True)
        client = world.connect()
        client.subscribe("a/#", filter="x >= 3")
        assert sorted(client.payloads()) == [b'{"x": 3}', b'{"x": 4}']

    def test_an_older_one_never_comes_after_a_newer(self) -> None:
        """The last word waits for the commit of the subscription; what is new waits behind it."""
        world = SimulatedBroker()
        publisher = world.connect("publisher")
        publisher.publish("a", b"old", retain=True)
        client = world.connect(expiry_s=60)
        world.holds_commits = True
        client.send_subscribe("a")
        publisher.publish("a", b"new")
        publisher.publish("a", b"newest")
        world.commit()
        publisher.publish("a", b"last")
        assert client.payloads() == [b"old", b"new", b"newest", b"last"]


class TestTexts:
    @pytest.mark.parametrize("name", ["filter", "$where"])
    def test_the_text_comes_as_a_user_property(self, name: str) -> None:
        client = SimulatedBroker().connect()
        properties = Properties(user=((name, "x > 1"),))
        assert client.subscribe("a", properties=properties).reasons == (0,)
        client.publish("a", b'{"x": 1}')
        client.publish("a", b'{"x": 2}')
        assert client.payloads() == [b'{"x": 2}']

    def test_it_applies_to_every_filter_of_the_packet(self) -> None:
        client = SimulatedBroker().connect()
        client.subscribe("a", "b/#", filter="x > 1")
        for topic in ("a", "b/c"):
            client.publish(topic, b'{"x": 1}')
            client.publish(topic, b'{"x": 2}')
        assert client.payloads() == [b'{"x": 2}'] * 2

    @pytest.mark.parametrize(
        ("user", "said"),
        [
            ({"filter": "x >"}, "expected"),
            ({"filter": "x > 1", "evolve": "sometimes"}, "no design sometimes"),
            ({"evolve": "lees"}, "evolve without a filter"),
            ({"filter": "x > 1", "policy": "quiet"}, "arrived"),
            (
                {"filter": "ORDER BY x LIMIT 1 WITHIN 1 HOUR", "evolve": "lees"},
                "a ranked subscription cannot evolve",
            ),
            ({"filter": ""}, ""),
        ],
    )
    def test_a_bad_text_is_refused_with_its_reason_and_the_connection_stays(
        self, user: dict[str, str], said: str
    ) -> None:
        world = SimulatedBroker()
        client = world.connect()
        answer = client.subscribe("a", "b", properties=Properties(user=tuple(user.items())))
        assert answer.reasons == (Reason.IMPLEMENTATION_SPECIFIC_ERROR,) * 2
        assert said in (answer.properties.reason_string or "")
        assert world.notes[-1].event == "subscription refused"
        assert said in str(world.notes[-1].facts["reason"])
        client.send(Pingreq())
        assert client.take(Pingresp)
        client.publish("a", b'{"x": 5}')
        assert client.payloads() == []
        assert len(world.broker.router) == 0

    def test_another_text_takes_the_place_of_the_first(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=60)
        client.subscribe("a", identifier=1, filter="x = 1")
        client.subscribe("a", identifier=1, filter="x = 2")
        client.publish("a", b'{"x": 1}')
        client.publish("a", b'{"x": 2}')
        assert client.payloads() == [b'{"x": 2}']
        (row,) = world.disk.read("subscriptions", SubscriptionRow).values()
        assert row.text == "x = 2"

    def test_a_refused_replacement_leaves_the_old_one(self) -> None:
        client = SimulatedBroker().connect()
        client.subscribe("a", identifier=1, filter="x = 1")
        answer = client.subscribe("a", identifier=1, filter="x = = 2")
        assert answer.reasons == (Reason.IMPLEMENTATION_SPECIFIC_ERROR,)
        client.publish("a", b'{"x": 1}')
        assert client.payloads() == [b'{"x": 1}']

    def test_replacing_leaves_no_gap_and_no_overlap(self) -> None:
        """In one turn: everything before the packet meets the old one, all after it the new."""
        world = SimulatedBroker()
        client = world.connect()
        client.subscribe("a", identifier=1, filter="x >= 0")
        other = world.connect("other")
        other.say(Publish("a", b'{"x": 1}'))
        properties = Properties(user=(("filter", "x < 100"),), subscription_ids=(1,))
        client.say(Subscribe(9, (Filter("a"),), properties))
        other.say(Publish("a", b'{"x": 2}'))
        world.turn()
        assert client.payloads() == [b'{"x": 1}', b'{"x": 2}']

    def test_several_texts_on_one_topic_live_beside_each_other_by_identifier(self) -> None:
        client = SimulatedBroker().connect()
        client.subscribe("a", identifier=1, filter="x > 1")
        client.subscribe("a", identifier=2, filter="x > 2")
        client.publish("a", b'{"x": 2}')
        client.publish("a", b'{"x": 3}')
        came = [set(packet.properties.subscription_ids) for packet in client.take(Publish)]
        assert came == [{1}, {1, 2}]

    def test_a_plain_subscription_is_replaced_whatever_its_identifier(self) -> None:
        client = SimulatedBroker().connect()
        client.subscribe("a", identifier=1)
        client.subscribe("a", identifier=2)
        client.publish("a")
        assert client.only(Publish).properties.subscription_ids == (2,)

    def test_select_reshapes_what_is_sent(self) -> None:
        client = SimulatedBroker().connect()
        client.subscribe("a", filter="SELECT x, place.city WHERE x > 1")
        client.publish("a", b'{"x": 2, "y": 3, "place": {"city": "Split", "zip": 21000}}')
        (payload,) = client.payloads()
        assert payload == b'{"x":2,"place":{"city":"Split"}}'

    def test_two_selections_are_sent_together_and_a_plain_one_sends_all(self) -> None:
        client = SimulatedBroker().connect()
        client.subscribe("a", identifier=1, filter="SELECT x WHERE x > 1")
        client.subscribe("a", identifier=2, filter="SELECT y WHERE x > 1")
        payload = b'{"x": 2, "y": 3, "z": 4}'
        client.publish("a", payload)
        assert client.payloads() == [b'{"x":2,"y":3}']
        client.subscribe("a")
        client.publish("a", payload)
        assert client.payloads() == [payload]

    def test_a_selection_waits_in_a_queue_as_it_is_and_survives_a_crash(self) -> None:
        world = SimulatedBroker()
        client = world.connect(expiry_s=60)
        client.subscribe("a", qos=1, filter="SELECT x WHERE x > 1")
        client.drop()
        world.connect("other").publish("a", b'{"x": 2, "y": 3}', 1)
        world.crash()
        client.come_back()
        assert client.payloads() == [b'{"x":2}']


class TestServedBySpark:
    AIR = LakeStream("air", ("air/#",))

    def world(self, *channels: LakeStream, keeps_subscriptions: bool = True) -> SimulatedBroker:
        settings = BrokerSettings(channels=channels, keeps_subscriptions=keeps_subscriptions)
        return SimulatedBroker(settings=settings)

    def why_not(self, world: SimulatedBroker, topic_filter: str, **user: Any) -> str:
        answer = world.connect().subscribe(topic_filter, qos=1, **user)
        assert answer.reasons == (Reason.IMPLEMENTATION_SPECIFIC_ERROR,)
        assert world.disk.sizes() == {}
        return answer.properties.reason_string or ""

    def test_it_is_granted_and_kept(self) -> None:
        world = self.world(self.AIR)
        client = world.connect(expiry_s=60)
        assert client.subscribe("+/zagreb", qos=1, filter="x > 1", engine="spark").reasons == (1,)
        (row,) = world.disk.read("subscriptions", SubscriptionRow).values()
        assert (row.text, row.engine) == ("x > 1", "spark")

    def test_without_a_lake_nobody_could_serve_it(self) -> None:
        needs = "engine = spark needs a lake with subscriptions, and this broker keeps none"
        for channels in ((), (self.AIR,)):
            world = self.world(*channels, keeps_subscriptions=False)
            assert self.why_not(world, "air/#", filter="x > 1", engine="spark") == needs

    def test_nor_where_the_lake_does_not_keep_its_topics(self) -> None:
        states = LakeStream("states", ("#",), frozenset(("states",)))
        world = self.world(self.AIR, states)
        why = self.why_not(world, "sea/#", filter="x > 1", engine="spark")
        assert why == "engine = spark: no channel of the lake keeps publications on sea/#"

    def test_it_cannot_be_shared(self) -> None:
        why = self.why_not(self.world(self.AIR), "$share/g/air/#", filter="x > 1", engine="spark")
        assert why.startswith("a shared subscription cannot be served by Spark")

    def test_who_else_could_serve_it_is_said(self) -> None:
        why = self.why_not(self.world(self.AIR), "air/#", filter="x > 1", engine="flink")
        assert why == "there is no engine 'flink' (write broker or spark)"
        why = self.why_not(self.world(self.AIR), "air/#", engine="spark")
        assert why == "engine = spark without a filter (add the user property filter)"


class TestTopicText:
    WORLD = BrokerSettings(topic_text=True)

    def test_a_3_1_1_client_says_it_behind_a_question_mark(self) -> None:
        world = SimulatedBroker(settings=self.WORLD)
        client = world.connect(version=V311)
        assert client.subscribe("air/+?x > 1").reasons == (0,)
        client.publish("air/a", b'{"x": 1}')
        client.publish("air/a", b'{"x": 2}')
        assert client.payloads() == [b'{"x": 2}']

    def test_it_is_ended_as_it_was_made(self) -> None:
        world = SimulatedBroker(settings=self.WORLD)
        client = world.connect(version=V311)
        client.subscribe("air/+?x > 1")
        client.unsubscribe("air/+?x > 1")
        assert len(world.broker.router) == 0

    def test_several_texts_of_one_topic_are_several_subscriptions(self) -> None:
        world = SimulatedBroker(settings=self.WORLD)
        client = world.connect(version=V311)
        client.subscribe("a?x = 1", "a?x = 2")
        for x in (1, 2, 3):
            client.publish("a", b'{"x": %d}' % x)
        assert client.payloads() == [b'{"x": 1}', b'{"x": 2}']

    def test_a_bad_one_is_refused_and_the_connection_stays(self) -> None:
        client = SimulatedBroker(settings=self.WORLD).connect(version=V311)
        assert client.subscribe("a?x >", "a/#/b?x > 1", "ok").reasons == (0x80, 0x80, 0)
        assert not client.is_closed()

    def test_it_survives_a_crash(self) -> None:
        world = SimulatedBroker(settings=self.WORLD)
        client = world.connect(version=V311, clean_start=False)
        client.subscribe("a?x > 1", qos=1)
        world.crash()
        client.come_back()
        client.publish("a", b'{"x": 2}', 1)
        client.publish("a", b'{"x": 1}', 1)
        assert client.payloads() == [b'{"x": 2}']
        client.unsubscribe("a?x > 1")
        assert len(world.broker.router) == 0

    def test_it_can_be_shared(self) -> None:
        world = SimulatedBroker(settings=self.WORLD)
        members = [world.connect(f"m{n}", version=V311) for n in range(2)]
        for member in members:
            member.subscribe("$share/g/a?x > 1")
        for _ in range(4):
            world.connect("other").publish("a", b'{"x": 2}')
        assert [len(member.payloads()) for member in members] == [2, 2]

    def test_where_it_is_switched_off_it_is_a_topic_like_any(self) -> None:
        client = SimulatedBroker().connect(version=V311)
        assert client.subscribe("a?x > 1").reasons == (0,)
        client.publish("a", b'{"x": 2}')
        client.publish("a?x > 1", b"itself")
        assert client.payloads() == [b"itself"]

    def test_version_5_has_user_properties_instead(self) -> None:
        client = SimulatedBroker(settings=self.WORLD).connect()
        client.subscribe("a?x > 1")
        client.publish("a", b'{"x": 2}')
        client.publish("a?x > 1", b"itself")
        assert client.payloads() == [b"itself"]


class TestValid:
    def test_a_new_subscription_is_given_what_is_valid_and_wanted(self) -> None:
        world = SimulatedBroker()
        publisher = world.connect("publisher")
        for x in range(4):
            publisher.publish("a", b'{"x": %d}' % x, 1, valid_for="60")
        client = world.connect()
        client.subscribe("a", qos=1, identifier=4, filter="x >= 2")
        came = client.take(Publish)
        assert sorted(packet.payload for packet in came) == [b'{"x": 2}', b'{"x": 3}']
        assert {packet.properties.subscription_ids for packet in came} == {(4,)}
        assert not any(packet.retain for packet in came)

    def test_until_its_time_is_over(self) -> None:
        world = SimulatedBroker()
        world.connect("publisher").publish("a", b"1", 1, valid_for="10.5")
        world.advance(10)
        early = world.connect("early")
        early.subscribe("a")
        assert early.payloads() == [b"1"]
        world.advance(1)
        late = world.connect("late")
        late.subscribe("a")
        assert late.payloads() == []
        assert world.disk.sizes() == {}

    def test_or_for_ever_even_across_a_crash(self) -> None:
        world = SimulatedBroker()
        world.connect("publisher").publish("a", b"1", 1, valid_for="forever")
        world.advance(10_000_000)
        world.crash()
        client = world.connect()
        client.subscribe("a")
        assert client.payloads() == [b"1"]

    def test_message_expiry_bounds_validity(self) -> None:
        world = SimulatedBroker()
        said = Properties(user=(("valid-for", "100"),), message_expiry_s=10)
        world.connect("publisher").publish("a", b"1", 1, properties=said)
        world.advance(11)
        client = world.connect()
        client.subscribe("a")
        assert client.payloads() == []
        assert world.disk.sizes() == {}

    def test_what_is_retained_and_valid_is_given_once(self) -> None:
        world = SimulatedBroker()
        publisher = world.connect("publisher")
        publisher.publish("a", b"1", 1, retain=True, valid_for="100")
        client = world.connect()
        client.subscribe("a")
        assert client.only(Publish).retain

    def test_a_following_subscription_is_given_what_it_wants_where_it_is_now(self) -> None:
        world = SimulatedBroker()
        publisher = world.connect("publisher")
        for x in (1, 5):
            publisher.publish("a", b'{"x": %d}' % x, 1, valid_for="60")
        client = world.connect()
        client.publish("$rove/me", b'{"x": 4}', 1)
        client.subscribe("a", filter="x > me.x")
        assert client.payloads() == [b'{"x": 5}']

    def test_shared_subscriptions_are_given_none(self) -> None:
        world = SimulatedBroker()
        world.connect("publisher").publish("a", b"1", 1, valid_for="60")
        client = world.connect()
        client.subscribe("$share/group/a")
        assert client.payloads() == []


class TestMuchThatIsKept:
    """More than is looked through at once, so that others have their turn in between."""

    COUNT = KEPT_AT_ONCE * 2 + 500

    def world(self) -> SimulatedBroker:
        limits = Limits(receive_max=65_535, inflight_max=65_535, replay_messages_per_s=0)
        world = SimulatedBroker(limits=limits)
        publisher = world.connect("publisher")
        publisher.send(
            *(Publish(f"kept/{n}", b"%d" % n, 1, True, packet_id=n) for n in range(1, self.COUNT))
        )
        return world

    def test_a_text_of_many_predicates_looks_at_fewer_at_once(self) -> None:
        world = SimulatedBroker()
        publisher = world.connect("publisher")
        for number in range(400):
            publisher.publish(f"a/{number}", b'{"s": "x"}', retain=True)
        client = world.connect("client")
        text = " AND ".join(f"s NOT LIKE '%a%b{i}%'" for i in range(100))
        client.send_subscribe("a/#", filter=text)
        assert 0 < len(client.take(Publish)) <= KEPT_AT_ONCE // (100 // PREDICATES_PER_LOOK)

    def test_all_of_it_comes_and_then_the_answer(self) -> None:
        world = self.world()
        client = world.connect()
        client.send_subscribe("kept/#", qos=1)
        assert 0 < len(client.take(Publish)) <= KEPT_AT_ONCE
        assert client.take(Suback) == []
        world.advance(0.1)
        assert isinstance(client.inbox[-1], Suback)
        assert len(client.take(Publish)) >= self.COUNT - 1 - KEPT_AT_ONCE

    def test_others_are_served_in_between(self) -> None:
        world = self.world()
        client, other = world.connect("client"), world.connect("other")
        client.send_subscribe("kept/#")
        assert other.subscribe("a").reasons == (0,)
        other.publish("a", b"1")
        assert other.payloads() == [b"1"]
        assert client.take(Suback) == []

    def test_what_changes_meanwhile_comes_once_and_as_it_is(self) -> None:
        world = self.world()
        client = world.connect()
        client.send_subscribe("kept/#")
        early = {packet.topic for packet in client.take(Publish)}
        late = next(f"kept/{n}" for n in range(1, self.COUNT) if f"kept/{n}" not in early)
        publisher = world.connect("publisher")
        publisher.publish(late, b"new", retain=True)
        world.advance(0.1)
        came = [packet.payload for packet in client.take(Publish) if packet.topic == late]
        assert came == [b"new"]

    def test_a_subscription_that_ends_is_given_no_more(self) -> None:
        world = self.world()
        client = world.connect()
        client.send_subscribe("kept/#")
        client.inbox.clear()
        client.unsubscribe("kept/#")
        world.advance(0.1)
        assert client.take(Publish) == []
        assert len(client.take(Suback)) == 1

    def test_a_client_that_leaves_finds_the_rest_when_it_comes_back(self) -> None:
        world = self.world()
        client = world.connect(expiry_s=60)
        client.send_subscribe("kept/#", qos=1)
        client.drop()
        world.advance(0.1)
        client.come_back()
        assert len({packet.topic for packet in client.take(Publish)}) == self.COUNT - 1

    def test_a_client_that_leaves_for_good_leaves_nothing(self) -> None:
        world = self.world()
        client = world.connect()
        client.send_subscribe("kept/#")
        client.drop()
        world.advance(0.1)
        assert world.broker.next_tick_at() > world.now

    def test_many_that_wait_take_turns(self) -> None:
        world = self.world()
        clients = [world.connect(f"client{n}") for n in range(3)]
        for client in clients:
            client.send_subscribe("kept/#")
            client.inbox.clear()
        world.broker.tick(world.now)
        world.turn()
        assert [bool(client.inbox) for client in clients] == [True, False, False]
        world.advance(0.1)
        assert all(len(client.take(Suback)) == 1 for client in clients)
