"""Publications that outlive their delivery: retained ones, and those with a time of validity.

A *retained* publication is the last one on its topic (MQTT). A *valid* one is kept, under the id
its publisher gave it, until its validity ends or the publisher withdraws it; a subscription that is
made meanwhile and matches gets it at once (CUPUS). Both are found by topic, through a tree.

A publication is named by its user, its client id and its id together: no user can withdraw or
replace what another user has published, even under the same client id. Users own what they publish,
so a user may withdraw it from any client; anonymous clients have only their client id.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from typing import Any
from weakref import WeakSet, WeakValueDictionary

import msgspec

from rove.broker.counters import BrokerCounters
from rove.broker.faults import RETRY_S, Attempt
from rove.broker.gate import Gate
from rove.broker.limits import Limits
from rove.broker.notifications.delivery import Delivery
from rove.broker.publications.publication import Name, Publication
from rove.broker.storage.journal import Key
from rove.broker.storage.records import USER_UNKNOWN, encoded
from rove.mqtt.topic_trees import NameTree

ENDS_SPARE = 100
"""How many timers of removed publications are tolerated before they are cleared."""
Names = WeakValueDictionary[Any, Publication]
DERIVED_SPARE = 1_000
"""The same for publications that policies made."""


class Replaced(msgspec.Struct):
    """What a publication replaces."""

    retained: Publication | None
    valid: Publication | None
    named: list[Publication | None]
    """By each of the names that it has."""

    def forget(self, failed: Publication, earlier: Replaced | None) -> None:
        """One of these was taken back: what it had replaced takes its place."""
        if self.retained is failed:
            self.retained = None if earlier is None else earlier.retained
        if self.valid is failed:
            self.valid = None if earlier is None else earlier.valid
        for i, one in enumerate(self.named):
            if one is failed:
                self.named[i] = None if earlier is None else earlier.named[i]


class RetainedStore:
    """Keeps publications for later subscriptions."""

    def __init__(
        self, gate: Gate, delivery: Delivery, limits: Limits, counters: BrokerCounters
    ) -> None:
        self.limits = limits
        self._gate = gate
        self._steps = gate.steps
        self._delivery = delivery
        self._counters = counters
        self._retained: dict[str, Publication] = {}
        self._retained_tree: NameTree[Publication] = NameTree()
        self._valid: dict[Name, Publication] = {}
        self._valid_tree: NameTree[Publication] = NameTree()
        self._ends: list[tuple[float, int, Publication]] = []
        """A heap of the times at which publications end; may have removed ones."""
        self._named: WeakValueDictionary[Name, Publication] = WeakValueDictionary()
        """All publications with an id that are still referenced, by queues too."""
        self._last_of_client: WeakValueDictionary[tuple[str, str], Publication]
        self._last_of_client = WeakValueDictionary()
        """The last of these by client id and id, of any user."""
        self._last_of_user: WeakValueDictionary[tuple[str, str], Publication]
        self._last_of_user = WeakValueDictionary()
        """The last of these by user and id, from any client."""
        self._derived: dict[Name, WeakSet[Publication]] = {}
        """The publications that policies made from one, by its name."""
        self._derived_max = DERIVED_SPARE
        self.retained_bytes = 0
        self.valid_bytes = 0

    @property
    def retained_count(self) -> int:
        return len(self._retained)

    @property
    def valid_count(self) -> int:
        return len(self._valid)

    # -- retained ------------------------------------------------------------------------------

    def retain(self, publication: Publication) -> bool:
        """Replace the retained publication of its topic; an empty one removes it. False if full."""
        topic = publication.topic
        if not publication.payload:
            self._end_retained(topic)
            return True
        size = publication.size_bytes
        old = self._retained.get(topic)
        if old is None and len(self._retained) >= self.limits.retained_messages_max:
            self._counters.quota_hits += 1
            return False
        freed = 0 if old is None else old.size_bytes
        if self.retained_bytes - freed + size > self.limits.retained_bytes_max:
            self._counters.quota_hits += 1
            return False
        self._end_retained(topic)
        self._put_retained(publication)
        self._delivery.keep(publication)
        self._gate.changes.put("retained", topic, encoded(publication.number))
        return True

    def is_newest(self, publication: Publication) -> bool:
        """Whether a publication of another broker is newer than the retained one of its topic."""
        old = self._retained.get(publication.topic)
        return old is None or (old.at, old.publisher) < (publication.at, publication.publisher)

    def _put_retained(self, publication: Publication) -> None:
        topic = publication.topic
        self._steps.saves(self, "retained_bytes")
        self._steps.saves_item(self._retained, topic)
        self._steps.undoes(self._retained_tree.remove, topic, None)
        self._retained_tree.put(topic, None, publication)
        self._retained[topic] = publication
        self.retained_bytes += publication.size_bytes
        self._watch(publication.expires_at, publication)

    def _end_retained(self, topic: str) -> None:
        old = self._retained.get(topic)
        if old is None:
            return
        self._steps.saves(self, "retained_bytes")
        self._steps.saves_item(self._retained, topic)
        self._steps.undoes(self._retained_tree.put, topic, None, old)
        self._retained_tree.remove(topic, None)
        del self._retained[topic]
        self.retained_bytes -= old.size_bytes
        self._gate.changes.delete("retained", topic)
        self._delivery.release(old)

    def find_retained(self, topic_filter: str, now: float) -> Iterator[Publication]:
        """The retained publications on the topics of a filter."""
        found = self._retained_tree.find(topic_filter)
        return (publication for publication in found if not publication.is_over(now))

    # -- valid ---------------------------------------------------------------------------------

    def has_room(self, publication: Publication) -> bool:
        """Whether there is room for one more valid publication, or it replaces one."""
        old = self.replaced_by(publication)
        freed = 0 if old is None else old.size_bytes
        too_many = old is None and len(self._valid) >= self.limits.valid_publications_max
        too_much = self.valid_bytes - freed + publication.size_bytes > self.limits.valid_bytes_max
        if too_many or too_much:
            self._counters.quota_hits += 1
        return not (too_many or too_much)

    def replaced_by(self, publication: Publication) -> Publication | None:
        """The valid publication that this one replaces."""
        unowned = (USER_UNKNOWN, publication.publisher, publication.id)
        return self._valid.get(publication.name) or self._valid.get(unowned)

    def hold(self, publication: Publication) -> None:
        """Keep it while it is valid, replacing one with the same name; there must be room."""
        assert publication.valid_until is not None
        name = publication.name
        old = self.replaced_by(publication)
        if old is not None:
            self._end_valid(old.name)
        self._put_valid(publication)
        self._delivery.keep(publication)
        self._gate.changes.put("valid", valid_key(name), encoded(publication.number))

    def _put_valid(self, publication: Publication) -> None:
        name = publication.name
        self._steps.saves(self, "valid_bytes")
        self._steps.saves_item(self._valid, name)
        self._steps.undoes(self._valid_tree.remove, publication.topic, name)
        self._valid_tree.put(publication.topic, name, publication)
        self._valid[name] = publication
        self.valid_bytes += publication.size_bytes
        self._watch(min(publication.valid_until or 0.0, publication.expires_at), publication)

    def _end_valid(self, name: Name) -> None:
        old = self._valid.get(name)
        if old is None:
            return
        self._steps.saves(self, "valid_bytes")
        self._steps.saves_item(self._valid, name)
        self._steps.undoes(self._valid_tree.put, old.topic, name, old)
        self._valid_tree.remove(old.topic, name)
        del self._valid[name]
        self.valid_bytes -= old.size_bytes
        self._gate.changes.delete("valid", valid_key(name))
        self._delivery.release(old)

    def find_valid(self, topic_filter: str, now: float) -> Iterator[Publication]:
        """The publications that are valid now on the topics of a filter."""
        for publication in self._valid_tree.find(topic_filter):
            if not publication.is_over(now) and (publication.valid_until or 0.0) > now:
                yield publication

    # -- names and withdrawal ------------------------------------------------------------------

    def name(self, publication: Publication) -> None:
        """Make a publication with an id findable by it, for as long as it is referenced."""
        publication.is_named = True
        for names, key in self._names_of(publication):
            self._steps.saves_item(names, key)
            names[key] = publication

    def _names_of(self, publication: Publication) -> Iterator[tuple[Names, tuple[Any, ...]]]:
        """The maps that find it by its id, with its key in each."""
        yield self._named, publication.name
        if publication.user:
            yield self._last_of_client, (publication.publisher, publication.id)
            yield self._last_of_user, (publication.user, publication.id)

    def name_derived(self, publication: Publication) -> None:
        """Remember a publication that a policy made, to be withdrawn with its origin."""
        name = publication.name
        if len(self._derived) >= self._derived_max:
            self._derived = {one: found for one, found in self._derived.items() if found}
            self._derived_max = max(DERIVED_SPARE, 2 * len(self._derived))
        self._derived.setdefault(name, WeakSet()).add(publication)

    def named(self, name: Name) -> Publication | None:
        """The publication of that name, if it is still referenced."""
        return self._named.get(name)

    def last_of_client(self, client_id: str, id: str) -> Publication | None:
        """The last publication of that id from that client, if it is still referenced."""
        found = self._last_of_client.get((client_id, id))
        return found or self._named.get((None, client_id, id))

    def owned(self, user: str | None, client_id: str, id: str) -> Publication | None:
        """What `user` may withdraw by that id: from this client, or else the last from any client
        of the user. It may be one that a policy made from it.

        Publications stored before there were owners belong to the client with their client id.
        """
        for name in ((user, client_id, id), (USER_UNKNOWN, client_id, id)):
            found = self._waiting(name)
            if found is not None:
                return found
        last = None if user is None else self._last_of_user.get((user, id))
        return None if last is None else self._waiting(last.name)

    def _waiting(self, name: Name) -> Publication | None:
        publication = self._named.get(name)
        if publication is not None and not publication.withdrawn:
            return publication
        return next(iter(self._derived.get(name, ())), None)

    def withdraw(self, name: Name) -> None:
        """Withdraw a publication: no copy of it that still waits is delivered."""
        derived = list(self._derived.get(name, ()))
        self._steps.saves_item(self._derived, name)
        self._derived.pop(name, None)
        publication = self._named.get(name)
        if publication is not None and not publication.withdrawn:
            self._take_back(publication)
            self._end_valid(name)
            if self._retained.get(publication.topic) is publication:
                self._end_retained(publication.topic)
        for one in derived:
            self._take_back(one)
        self._counters.publications_withdrawn += 1

    def _take_back(self, publication: Publication) -> None:
        self._steps.saves(publication, "withdrawn", "expires_at")
        publication.withdrawn = True
        # What is in flight has to be sent again after a crash, so the row stays as long as that.
        publication.expires_at = publication.at
        if publication.kept:
            self._delivery.keep_again(publication)

    # -- publications that fail ----------------------------------------------------------------

    def found_before(self, publication: Publication) -> Replaced:
        """What a publication would replace."""
        retained = self._retained.get(publication.topic) if publication.retain else None
        named = [names.get(key) for names, key in self._names_of(publication)]
        return Replaced(retained, self.replaced_by(publication), named)

    def put_back(self, publication: Publication, replaced: Replaced) -> None:
        """Restore what a publication that could not be routed had replaced."""
        name, topic = publication.name, publication.topic
        is_last = self._retained.get(topic, publication) is publication
        if publication.retain and is_last:
            self._end_retained(topic)
            if (old := replaced.retained) is not None:
                self._put_retained(old)
                self._delivery.keep(old)
                self._gate.changes.put("retained", topic, encoded(old.number))
        if self._valid.get(name) is publication:
            self._end_valid(name)
            if (old := replaced.valid) is not None:
                self._put_valid(old)
                self._delivery.keep(old)
                self._gate.changes.put("valid", valid_key(old.name), encoded(old.number))
        for (names, key), earlier in zip(self._names_of(publication), replaced.named, strict=True):
            if names.get(key) is publication:
                self._steps.saves_item(names, key)
                del names[key]
                if earlier is not None:
                    names[key] = earlier

    # -- time and restarts ---------------------------------------------------------------------

    def advance(self, now: float, attempt: Attempt) -> None:
        """Remove what has ended, each as a step."""
        while self._ends and self._ends[0][0] <= now:
            _, _, publication = heapq.heappop(self._ends)
            if not attempt("end of a publication", self._end_over, publication, now):
                heapq.heappush(self._ends, (now + RETRY_S, publication.number, publication))

    def _end_over(self, publication: Publication, now: float) -> None:
        name = publication.name
        if self._valid.get(name) is publication:
            self._end_valid(name)
        if publication.is_over(now) and self._retained.get(publication.topic) is publication:
            self._end_retained(publication.topic)

    def next_change_at(self) -> float:
        """The time by which `advance` has to be called."""
        return self._ends[0][0] if self._ends else math.inf

    def _watch(self, ends_at: float, publication: Publication) -> None:
        if ends_at == math.inf:
            return
        if len(self._ends) > 2 * (len(self._retained) + len(self._valid)) + ENDS_SPARE:
            # Replaced publications would stay in memory until their timers fire.
            self._ends = [one for one in self._ends if self._is_kept(one[2])]
            heapq.heapify(self._ends)
        heapq.heappush(self._ends, (ends_at, publication.number, publication))

    def _is_kept(self, publication: Publication) -> bool:
        name = publication.name
        is_retained = self._retained.get(publication.topic) is publication
        return is_retained or self._valid.get(name) is publication

    def restore_retained(self, publication: Publication) -> None:
        """It was retained before a restart."""
        publication.kept += 1
        self._put_retained(publication)

    def restore_valid(self, publication: Publication, key: Key) -> None:
        """It was valid before a restart."""
        publication.kept += 1
        if key != (new_key := valid_key(publication.name)):
            # Its owner was determined since, so its key has changed: move the row.
            self._gate.changes.delete("valid", key)
            self._gate.changes.put("valid", new_key, encoded(publication.number))
        self._put_valid(publication)
        self.name(publication)


def valid_key(name: Name) -> str:
    """A name as one unambiguous string.

    Without a user it is the same as before publications had owners, so that old rows are found.
    """
    user, publisher, id = name
    owner = f"{len(user)}@{user}" if user else ""
    return f"{owner}{len(publisher)}:{publisher}{id}"
