"""The functions of the policy language, as methods of one call.

Besides its message and its state, a policy can reach only its `PolicyCall`: compiled code calls its
methods by names that the compiler wrote. They change nothing outside of it. Variables that are set
wait in `changes`, and the state of `every`, `changed` and `summary` in a copy of the memory; both
take effect only if the call completes.

The memory is keyed by the position of the function in the source (line and column) and by `per`.
Of long values it keeps only a digest, which is enough to detect a change.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from rove.policy import images
from rove.policy.guards import (
    BYTES_PER_STEP,
    ELEMENT_BYTES,
    HIGHEST,
    LOOK_STEPS,
    LOWEST,
    SPELLING_STEPS,
    CompressionNeeded,
    Guards,
    Halted,
    fault,
    named,
)
from rove.policy.jobs import CompressionRequest, CompressionResult
from rove.policy.limits import BITS_MAX, PolicyLimits
from rove.policy.messages import PAYLOAD, TOPIC, IncomingMessage, Message

HOUR_S: Final = 3600
DAY_S: Final = 86_400
SECONDS_MAX: Final = 2.0**53
COMPRESSION_STEPS: Final = 1_000
"""What a picture costs, and one more for every hundred bytes of it."""
REMEMBERING_STEPS: Final = 10
"""What it costs to keep something, or to make a message."""
WRITING_STEPS: Final = 4
"""What it costs to write to a message."""
DIGITS_MAX: Final = 300
"""Of `round`, and of numbers in texts."""
DIGITS_PER_STEP: Final = 8
"""Of a number in a text that is read."""
ENCODED_BYTES_PER_STEP: Final = 32
"""Of variables and of what is remembered, when they are written to see how long they are."""
REMEMBERED_BYTES_MAX: Final = 64
"""A longer text is remembered by its digest."""
_PART_BYTES: Final = 64
"""A short text in a list, about."""
_NUMBERS: Final[frozenset[Any]] = frozenset({int, float, bool})
_SCALARS: Final[frozenset[Any]] = _NUMBERS | {str}
_COPIED: Final[frozenset[Any]] = frozenset({list, tuple, dict})

Memory = dict[str, Any]


class PolicyCall(Guards):
    """One call of one policy."""

    memory: Memory | None = None
    """What is remembered from now on; None for what was remembered before."""
    is_written = False
    """`m` is no longer as it came."""

    def __init__(
        self,
        arrived: IncomingMessage,
        m: Message,
        me: dict[str, Any],
        memory: Mapping[str, Any],
        now: float,
        automatic: Collection[str],
        results: Mapping[CompressionRequest, CompressionResult] | None,
        limits: PolicyLimits,
        steps_max: int,
        time_ms: int,
        clock: Callable[[], float] | None,
    ) -> None:
        # What `Guards` begins with, written out: a call of its own would cost a tenth of a policy.
        self.steps_max = steps_max
        self.bytes_max = limits.memory_bytes_max
        self._alarm = LOOK_STEPS if steps_max > LOOK_STEPS else steps_max
        if clock is not None:
            self._clock = clock
            self._ends_at = clock() + time_ms / 1000
        self._arrived = arrived
        self._m = m
        self._me = me
        self._memory_before = memory
        self._now = now
        self._automatic = automatic
        self._results = results
        self._steps_limit = limits.steps_max
        self.changes: dict[str, Any] = {}

    # --- state ---

    def get(self, name: Any, default: Any = None) -> Any:
        if name.__class__ is not str:
            raise fault(f"the name of a variable is a text, not {named(name)}")
        found = self._me.get(name)
        return default if found is None else found

    def put(self, name: Any, value: Any) -> None:
        self._settable(name)
        if value is None:
            self.remove(name)
            return
        if _is_same(value, self._me.get(name)):
            # Nothing to write down, and nobody to tell.
            return
        self._storable(value)
        self.charge(REMEMBERING_STEPS + (self.elements if value.__class__ in _COPIED else 0))
        self.changes[name] = self._me[name] = _as_json(value)

    def remove(self, name: Any) -> None:
        self._settable(name)
        if self._me.pop(name, None) is not None or name in self.changes:
            self.changes[name] = None

    def _settable(self, name: Any) -> None:
        if name.__class__ is not str:
            raise fault(f"the name of a variable is a text, not {named(name)}")
        if name in self._automatic:
            raise fault(f"{name} is an automatic variable and can only be read")

    def _storable(self, value: Any) -> None:
        """Check that a value can be kept or sent, and charge for it."""
        kind = value.__class__
        if kind is int or kind is float:
            self._readable(value)
        elif kind is not str or len(value) >= BYTES_PER_STEP:
            # A short string costs no step, and is what policies set most.
            self.weigh(value, leaves=True)

    # --- messages ---

    def store(self, message: Any, name: Any, value: Any) -> None:
        """`message[name] = value`"""
        self._writable(message, name)
        self._storable(value)
        message[name] = value

    def forget(self, message: Any, name: Any) -> None:
        """`del message[name]`"""
        self._writable(message, name)
        message.pop(name, None)

    def _writable(self, message: Any, name: Any) -> None:
        if message.__class__ is not Message:
            raise fault(f"only messages can be changed, not {named(message)}")
        if name.__class__ is not str:
            raise fault(f"the name of a member is a text, not {named(name)}")
        self.charge(WRITING_STEPS)
        if message is self._m:
            self.is_written = True

    def message(self, given: Any = None, /, **attributes: Any) -> Message:
        if given is not None:
            if given.__class__ is not dict and given.__class__ is not Message:
                raise fault(f"message() takes a mapping, not {named(given)}")
            attributes = given
        for value in attributes.values():
            self._storable(value)
        self.charge(REMEMBERING_STEPS)
        self.spend(_PART_BYTES * len(attributes))
        return Message(attributes)

    def keep(self, message: Any, *names: Any) -> Message:
        self._copied(message, names)
        return Message({name: message[name] for name in names if name in message})

    def drop(self, message: Any, *names: Any) -> Message:
        self._copied(message, names)
        return Message({name: value for name, value in message.items() if name not in names})

    def _copied(self, message: Any, names: tuple[Any, ...]) -> None:
        if message.__class__ is not Message:
            raise fault(f"that is {named(message)}; a message belongs here")
        for name in names:
            if name.__class__ is not str:
                raise fault(f"the name of a member is a text, not {named(name)}")
        self.spend(_PART_BYTES * len(message))

    def data(self, message: Any) -> Any:
        self._copied(message, ())
        payload = message.get(PAYLOAD)
        if payload.__class__ is bytes:
            return payload
        return {name: value for name, value in message.items() if not self._is_beside(name, value)}

    def set_data(self, message: Any, value: Any) -> None:
        self._writable(message, PAYLOAD)
        if value.__class__ is bytes:
            value = {PAYLOAD: value}
        elif value.__class__ is not dict and value.__class__ is not Message:
            raise fault(f"the data of a message is bytes or a mapping, not {named(value)}")
        for each in value.values():
            self._storable(each)
        self.spend(_PART_BYTES * (len(value) + len(message)))
        members = dict(value)
        beside = {name: it for name, it in message.items() if self._is_beside(name, it)}
        message.clear()
        message.update(beside)
        message.update(members)

    def _is_beside(self, name: str, value: object) -> bool:
        """It came beside the payload: the topic, or a user property."""
        return name == TOPIC or self._arrived.is_user_property(name, value)

    # --- time ---

    def now(self) -> float:
        return self._now

    def hour(self, time: Any = None) -> int:
        return self._second_of(time, DAY_S) // HOUR_S

    def minute(self, time: Any = None) -> int:
        return self._second_of(time, HOUR_S) // 60

    def weekday(self, time: Any = None) -> int:
        # 1970 began on a Thursday.
        return (self._second_of(time, 7 * DAY_S) // DAY_S + 3) % 7

    def _second_of(self, time: Any, length_s: int) -> int:
        if time is None:
            time = self._now
        elif time.__class__ is not int and time.__class__ is not float:
            raise fault(f"a time is a number of seconds since 1970, not {named(time)}")
        return int(math.floor(time) % length_s)

    # --- what lasts ---

    def every(self, place: str, seconds: Any, per: Any = None) -> bool:
        kind = seconds.__class__
        if (kind is not int and kind is not float) or not 0 < seconds < SECONDS_MAX:
            self._seconds(seconds)
        key = place if per is None else self._key(place, per)
        again_at = (self._memory_before if self.memory is None else self.memory).get(key)
        # A clock that was set back must not silence anybody.
        if again_at is not None and again_at - seconds <= self._now < again_at:
            return False
        self._remember(key, self._now + seconds)
        return True

    def changed(self, place: str, name: Any, by: Any = None, per: Any = None) -> bool:
        if name.__class__ is not str:
            raise fault(f"the name of a member is a text, not {named(name)}")
        if by is not None and by.__class__ is not int and by.__class__ is not float:
            raise fault(f"by= is a number, not {named(by)}")
        key = self._key(place, per)
        value = self._memorable(self._m.get(name))
        before = self._remembered(key)
        if before is not None and not _differs(before[0], value, by):
            return False
        self._remember(key, [value])
        return True

    def summary(self, place: str, seconds: Any, *names: Any, per: Any = None) -> Message | None:
        self._seconds(seconds)
        for name in names:
            if name.__class__ is not str:
                raise fault(f"the name of a member is a text, not {named(name)}")
        key = self._key(place, per)
        before = self._remembered(key)
        self.charge(REMEMBERING_STEPS * (2 + len(names)))
        since, count, kept = before if before is not None else (self._now, 0, {})
        kept = {name: list(figures) for name, figures in kept.items()}
        for name in names:
            value = self._m.get(name)
            if value.__class__ is not int and value.__class__ is not float:
                continue
            self._readable(value)
            last = kept.get(name, [value, value, value, 0.0, 0])
            total = last[3] + value
            self._readable(total)
            kept[name] = [value, min(last[1], value), max(last[2], value), total, last[4] + 1]
        count += 1
        if self._now - since < seconds:
            if self._now >= since:
                self._remember(key, [since, count, kept])
                return None
            since = self._now
        self._remember(key, [self._now, 0, {}])
        made = Message(count=count, since=since, until=self._now)
        for name, (value, least, most, total, number) in kept.items():
            made[name] = value
            made[f"{name}_min"] = least
            made[f"{name}_max"] = most
            made[f"{name}_mean"] = total / number
        self.spend(_PART_BYTES * len(made))
        return made

    def _seconds(self, seconds: Any) -> None:
        kind = seconds.__class__
        if (kind is not int and kind is not float) or not 0 < seconds < SECONDS_MAX:
            raise fault("the first argument is a number of seconds above 0")

    def _key(self, place: str, per: Any) -> str:
        if per is None:
            return place
        if per.__class__ is int and LOWEST <= per <= HIGHEST:
            return f"{place}={per}"
        if per.__class__ is str and len(per) <= REMEMBERED_BYTES_MAX:
            return f"{place} {per}"
        return f"{place}={msgspec.json.encode(self._memorable(per)).decode()}"

    def _memorable(self, value: Any) -> Any:
        """A value such that it can be remembered: itself, or what tells it from others."""
        kind = value.__class__
        if kind is float or kind is int:
            self._readable(value)
            return value
        if value is None or kind is bool or (kind is str and len(value) <= REMEMBERED_BYTES_MAX):
            return value
        self.weigh(value, leaves=True)
        self.charge(self.elements)
        if kind is str:
            value = value.encode(errors="surrogatepass")
        elif kind is not bytes:
            value = msgspec.json.encode(value)
        return {"digest": hashlib.blake2b(value, digest_size=16).hexdigest()}

    def _remembered(self, key: str) -> Any:
        return (self._memory_before if self.memory is None else self.memory).get(key)

    def _remember(self, key: str, value: Any) -> None:
        self.charge(REMEMBERING_STEPS)
        if self.memory is None:
            self.memory = dict(self._memory_before)
            self.charge(len(self.memory) // 8)
        self.memory[key] = value

    def tidy_memory(self, bytes_max: int) -> None:
        """See that no more is remembered than may be; what `every` no longer needs makes room."""
        assert self.memory is not None
        size_bytes = len(msgspec.json.encode(self.memory))
        self.charge(size_bytes // ENCODED_BYTES_PER_STEP)
        if size_bytes > bytes_max:
            self.memory = {
                key: value
                for key, value in self.memory.items()
                if value.__class__ is not float or value > self._now
            }
            within(self.memory, bytes_max, "what every, changed and summary remember")

    # --- numbers ---

    def rounded(self, value: Any, digits: Any = None) -> Any:
        if value.__class__ not in _NUMBERS:
            raise fault(f"{named(value)} cannot be rounded")
        if digits is None:
            return self.bounded(round(value))
        if digits.__class__ is not int or not -DIGITS_MAX <= digits <= DIGITS_MAX:
            raise fault("the digits of round() are a whole number")
        self.charge(SPELLING_STEPS)
        # No integer has more digits than that, and Python would work out a power of ten.
        return round(value, max(digits, -BITS_MAX // 2))

    def whole(self, value: Any) -> int:
        if value.__class__ is str or value.__class__ is bytes:
            self._parse(value)
        elif value.__class__ not in _NUMBERS:
            raise fault(f"{named(value)} is no number")
        return self.bounded(int(value))  # type: ignore[no-any-return]

    def real(self, value: Any) -> float:
        if value.__class__ is str or value.__class__ is bytes:
            self._parse(value)
        elif value.__class__ not in _NUMBERS:
            raise fault(f"{named(value)} is no number")
        return float(value)

    def _parse(self, text: str | bytes) -> None:
        """Pay for reading a number."""
        if len(text) > DIGITS_MAX:
            raise fault(f"a number has at most {DIGITS_MAX} digits")
        self.charge(len(text) // DIGITS_PER_STEP)

    # --- lists ---

    def smallest(self, values: Any) -> Any:
        """`min(xs)`"""
        self._go_through(values)
        return min(values)

    def largest(self, values: Any) -> Any:
        """`max(xs)`"""
        self._go_through(values)
        return max(values)

    def least(self, *values: Any) -> Any:
        """`min(a, b, …)`"""
        self._look_at(values)
        return min(values)

    def greatest(self, *values: Any) -> Any:
        """`max(a, b, …)`"""
        self._look_at(values)
        return max(values)

    def _look_at(self, values: tuple[Any, ...]) -> None:
        """Pay for comparing these."""
        for value in values:
            if value.__class__ not in _NUMBERS:
                self.weigh(value)

    def _go_through(self, values: Any) -> int:
        """Pay for going through a list; its size in bytes, about."""
        if self._has_numbers(values):
            return ELEMENT_BYTES * len(values)
        self._listed(values)
        return self.weigh(values)

    def _listed(self, value: Any) -> None:
        if value.__class__ is not list and value.__class__ is not tuple:
            raise fault(f"a list belongs here, not {named(value)}")

    def total(self, values: Any) -> Any:
        self._go_through(values)
        return self.made(sum(values))

    def ordered(self, values: Any) -> list[Any]:
        size_bytes = self._go_through(values)
        count = len(values)
        self.charge((count + size_bytes // BYTES_PER_STEP) * count.bit_length() // 8)
        made = sorted(values)
        self.spend(ELEMENT_BYTES * count)
        if values is self._numbers:
            self._numbers = made
        return made

    # --- texts ---

    def _text(self, value: Any) -> None:
        if value.__class__ is not str:
            raise fault(f"a text belongs here, not {named(value)}")
        if len(value) >= BYTES_PER_STEP:
            self.charge(len(value) // BYTES_PER_STEP)

    def lower(self, text: Any) -> str:
        # Short texts are paid for by the round that makes them.
        if text.__class__ is str and len(text) < BYTES_PER_STEP:
            return text.lower()
        self._text(text)
        return self.made(text.lower())  # type: ignore[no-any-return]

    def upper(self, text: Any) -> str:
        if text.__class__ is str and len(text) < BYTES_PER_STEP:
            return text.upper()
        self._text(text)
        return self.made(text.upper())  # type: ignore[no-any-return]

    def strip(self, text: Any) -> str:
        self._text(text)
        return self.made(text.strip())  # type: ignore[no-any-return]

    def split(self, text: Any, separator: Any = None) -> list[str]:
        self._text(text)
        if separator is not None:
            self._text(separator)
            self.search(text, separator)
        room = max(0, self.bytes_max - self.spent_bytes) // _PART_BYTES
        parts: list[str] = text.split(separator, room)
        self.spend(_PART_BYTES * len(parts) + len(text))
        return parts

    def join(self, texts: Any, separator: Any = "") -> str:
        self._listed(texts)
        self._text(separator)
        for text in texts:
            self._text(text)
        self.spend(4 * (sum(map(len, texts)) + len(separator) * len(texts)))
        return separator.join(texts)  # type: ignore[no-any-return]

    def replace(self, text: Any, old: Any, new: Any) -> str:
        self._text(text)
        self._text(old)
        self._text(new)
        self.search(text, old)
        found = text.count(old)
        self.spend(4 * max(0, len(text) + found * (len(new) - len(old))))
        return text.replace(old, new)  # type: ignore[no-any-return]

    def starts_with(self, text: Any, beginning: Any) -> bool:
        if text.__class__ is not str:
            self._text(text)
        self._text(beginning)
        return text.startswith(beginning)  # type: ignore[no-any-return]

    def ends_with(self, text: Any, end: Any) -> bool:
        if text.__class__ is not str:
            self._text(text)
        self._text(end)
        return text.endswith(end)  # type: ignore[no-any-return]

    def contains(self, text: Any, part: Any) -> bool:
        self._text(text)
        self._text(part)
        self.search(text, part)
        return part in text

    def find(self, text: Any, part: Any) -> int:
        self._text(text)
        self._text(part)
        self.search(text, part)
        return text.find(part)  # type: ignore[no-any-return]

    # --- pictures ---

    def compress(
        self, image: Any, quality: Any = None, bytes_max: Any = None, pixels_max: Any = None
    ) -> Any:
        if image.__class__ is not bytes and image.__class__ is not str:
            raise fault(f"a picture is bytes or base64, not {named(image)}")
        request = CompressionRequest(
            image,
            _setting("quality", quality, images.QUALITY_MAX),
            _setting("bytes_max", bytes_max, None),
            _setting("pixels_max", pixels_max, None),
        )
        if request.quality is request.bytes_max is request.pixels_max is None:
            raise fault("compress() is told neither quality, nor bytes_max, nor pixels_max")
        steps = COMPRESSION_STEPS + len(image) // 100
        if self._results is not None:
            # Done elsewhere: it counts, but not towards what fits into a turn of the broker.
            self.steps_max = min(self._steps_limit, self.steps_max + steps)
        self.pay(steps)
        if self._results is None:
            try:
                found: bytes | str = images.compress(request, self._is_late)
            except images.ImageError as error:
                raise Halted(error.kind, str(error)) from None
            self._look()
        else:
            result = self._results.get(request)
            if result is None:
                raise CompressionNeeded(request)
            if not result.image:
                raise Halted(result.kind, result.text)
            found = result.image
        return self.made(found)

    def _is_late(self) -> bool:
        return self._clock is not None and self._clock() > self._ends_at


def within(values: Mapping[str, Any], bytes_max: int, what: str) -> int:
    """Stop a call that would leave too much behind; the size of what it leaves, in bytes."""
    size_bytes = len(msgspec.json.encode(values))
    if size_bytes > bytes_max:
        raise Halted("state", f"{what} would take {size_bytes:,} bytes; allowed are {bytes_max:,}")
    return size_bytes


def _is_same(value: Any, before: Any) -> bool:
    """Whether a plain value is just what there was; 0.0 may be another zero."""
    kind = value.__class__
    return (
        kind is before.__class__
        and kind in _SCALARS
        and bool(value == before)
        and not (kind is float and value == 0)
    )


def _differs(before: Any, value: Any, by: Any) -> bool:
    are_numbers = {before.__class__, value.__class__} <= {int, float}
    if are_numbers and by is not None:
        return bool(abs(value - before) >= by)
    if are_numbers or before.__class__ is value.__class__:
        return bool(before != value)
    return True


def _as_json(value: Any) -> Any:
    """A value as it will come back: tuples as lists. Not deeper than what was weighed."""
    kind = value.__class__
    if kind is list or kind is tuple:
        return [_as_json(each) for each in value]
    if kind is dict:
        return {name: _as_json(each) for name, each in value.items()}
    if kind is bytes:
        raise fault("variables cannot be bytes; they are what JSON can be")
    return value


def _setting(name: str, value: Any, most: int | None) -> int | None:
    if value is None:
        return None
    if value.__class__ not in (int, float) or not value >= 1 or value > 1e9:
        raise fault(f"{name} of compress() is a number above 0, not {value!r:.40}")
    return min(int(value), most) if most else int(value)


def clamp(value: Any, low: Any, high: Any) -> Any:
    """The value, or the end that it is beyond."""
    if value.__class__ not in _NUMBERS:
        raise fault(f"clamp() is for numbers, not {named(value)}")
    return low if value < low else high if value > high else value


def distance(x1: Any, y1: Any, x2: Any, y2: Any) -> float:
    """Between two points of a plane."""
    for each in (x1, y1, x2, y2):
        if each.__class__ not in _NUMBERS:
            raise fault(f"distance() is between numbers, not {named(each)}")
    return math.hypot(x2 - x1, y2 - y1)
