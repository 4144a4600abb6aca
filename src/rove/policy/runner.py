"""Runs one call of a policy: a message and a state in, messages and changes out.

Every error of a policy is returned as `Stopped`; an exception from here is a defect of Rove. The
arguments are never changed: the message and the state are copied, but only if the policy could
write to them. So a call that is stopped, or has to wait for a picture, has no effect, and can be
restarted anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Any, Final

from rove.lang.errors import PublicationError
from rove.policy.compiler import Policy
from rove.policy.guards import CompressionNeeded, Halted, named
from rove.policy.jobs import CompressionRequest, CompressionResult, Deferred, StopKind, Stopped
from rove.policy.library import ENCODED_BYTES_PER_STEP, PolicyCall, within
from rove.policy.limits import REASON_CHARS_MAX, PolicyLimits
from rove.policy.messages import Completed, IncomingMessage, Message, OutputMessage
from rove.policy.rewriter import LEFT

_FAULTS: Final = (
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    NameError,
    RecursionError,
)
"""What Python raises where a policy is at fault."""
_TYPES: Final = {
    "NoneType": "None",
    "int": "a number",
    "float": "a number",
    "bool": "a truth value",
    "str": "a text",
    "bytes": "bytes",
    "list": "a list",
    "tuple": "a tuple",
    "dict": "a mapping",
    "Message": "a message",
}
_SENTENCES: Final = (
    (
        re.compile(r"unsupported operand type\(s\) for (\S+): '(\w+)' and '(\w+)'"),
        "{1} {0} {2} cannot be worked out",
    ),
    (re.compile(r"bad operand type for unary (\S): '(\w+)'"), "{0} of {1} cannot be worked out"),
    (
        re.compile(r"'(\S+)' not supported between instances of '(\w+)' and '(\w+)'"),
        "{1} and {2} cannot be compared by {0}",
    ),
    (re.compile(r"'(\w+)' object is not subscriptable"), "{0} has no members and no elements"),
    (
        re.compile(r"can only concatenate .* \(not \"(\w+)\"\) to (\w+)"),
        "{1} + {0} cannot be worked out",
    ),
    (
        re.compile(r"can't multiply sequence by non-int of type '(\w+)'"),
        "nothing can be repeated by {0}",
    ),
    (re.compile(r"slice indices must be.*"), "the ends of a slice are whole numbers"),
    (
        re.compile(r"'(\w+)' object cannot be interpreted as an integer"),
        "a whole number belongs here, not {0}",
    ),
    (re.compile(r"cannot unpack non-iterable (\w+) object"), "{0} cannot be taken apart"),
    (re.compile(r"object of type '(\w+)' has no len\(\)"), "{0} has no length"),
)
_MISSING: Final = '; what is missing is None, so give a default, as in get("x", 0)'
_NOTHING: Final[dict[str, Any]] = {}
"""What nearly all calls change; nobody writes into it."""
_DROPPED: Final = Completed((), _NOTHING, None, 0)


def run(
    policy: Policy,
    arrived: IncomingMessage,
    me: Mapping[str, object],
    memory: Mapping[str, object],
    now: float,
    limits: PolicyLimits,
    *,
    automatic: Collection[str] = (),
    results: Mapping[CompressionRequest, CompressionResult] | None = None,
    steps_max: int | None = None,
    time_ms: int | None = None,
    clock: Callable[[], float] | None = None,
) -> Completed | Stopped | Deferred:
    """Show a message to a policy.

    `automatic` names variables that it cannot set. `results` are pictures that were made smaller,
    or why they cannot be; without, they are made here. `clock` is looked at against `time_ms`.
    `steps_max` and `time_ms` are those of the limits unless they are given.
    """
    m = Message(arrived.attributes) if policy.writes else arrived.attributes
    state: Any = me if me.__class__ is dict and not policy.changes_state else dict(me)
    call: PolicyCall | None = None
    if policy.needs_call:
        call = PolicyCall(
            arrived,
            m,
            state,
            memory,
            now,
            automatic,
            results,
            limits,
            limits.steps_max if steps_max is None else steps_max,
            limits.time_ms if time_ms is None else time_ms,
            clock,
        )
    try:
        returned = policy.function(m, state, call)
        if call is None:
            if returned is None:
                return _DROPPED
            if returned is m:
                return arrived.passed or _passed(arrived)
            outputs, passes = _encoded(returned, m, arrived, limits, None)
            return Completed(outputs, _NOTHING, None, 0, passes)
        return _outcome(returned, call, m, state, arrived, limits, automatic)
    except CompressionNeeded as needed:
        return Deferred((needed.request,))
    except Halted as halted:
        return _stopped(policy, call, halted, halted.kind, halted.text)
    except _FAULTS as error:
        return _stopped(policy, call, error, "error", explained(error))
    except MemoryError as error:
        return _stopped(policy, call, error, "memory", "there is not that much memory")


def _outcome(
    returned: Any,
    call: PolicyCall,
    m: Message,
    state: Mapping[str, Any],
    arrived: IncomingMessage,
    limits: PolicyLimits,
    automatic: Collection[str],
) -> Completed:
    # What was granted to a loop and not used is free again.
    call.steps -= call.left
    if call.changes:
        kept = {name: value for name, value in state.items() if name not in automatic}
        size_bytes = within(kept, limits.variables_bytes_max, "its variables")
        call.charge(size_bytes // ENCODED_BYTES_PER_STEP)
    if call.memory is not None:
        call.tidy_memory(limits.variables_bytes_max)
    if returned is None:
        return Completed((), call.changes, call.memory, call.steps)
    if returned is m and not call.is_written:
        passed = arrived.passed or _passed(arrived)
        if call.steps or call.changes or call.memory is not None:
            return Completed(passed.outputs, call.changes, call.memory, call.steps, True)
        return passed
    outputs, passes = _encoded(returned, None if call.is_written else m, arrived, limits, call)
    return Completed(outputs, call.changes, call.memory, call.steps, passes)


def _passed(arrived: IncomingMessage) -> Completed:
    """The message as it came; made once for all policies that let it pass."""
    if arrived.passed is None:
        arrived.passed = Completed((arrived.as_it_came,), _NOTHING, None, 0, True)
    return arrived.passed


def _encoded(
    returned: Any,
    untouched: Message | None,
    arrived: IncomingMessage,
    limits: PolicyLimits,
    call: PolicyCall | None,
) -> tuple[tuple[OutputMessage, ...], bool]:
    """What was returned as it is sent, and whether that is just the message as it came."""
    outputs = returned if returned.__class__ in (list, tuple) else (returned,)
    if len(outputs) > limits.outputs_max:
        raise Halted("output", f"{len(outputs):,} messages; allowed are {limits.outputs_max:,}")
    sent: list[OutputMessage] = []
    size_bytes = 0
    for each in outputs:
        if each is untouched and each is not None:
            if len(outputs) == 1:
                return _passed(arrived).outputs, True
            output = arrived.as_it_came
        elif each.__class__ is Message:
            try:
                # Without a call there is nothing that could have made it.
                assert call is not None
                output = arrived.encode(each, call)
            except (ValueError, OverflowError, PublicationError) as error:
                raise Halted("error", f"the message cannot be sent: {error}") from None
        else:
            where = " in a list" if outputs is returned else ""
            raise Halted("error", f"arrived returns {named(each)}{where}; return a message or None")
        size_bytes += output.size_bytes
        if size_bytes > limits.output_bytes_max:
            # The rest are not even encoded.
            raise Halted("output", f"{size_bytes:,} bytes; allowed are {limits.output_bytes_max:,}")
        sent.append(output)
    return tuple(sent), False


def shortened(text: str) -> str:
    """What people are told of a fault; the whole of it may be as long as a message."""
    return text if len(text) <= REASON_CHARS_MAX else f"{text[: REASON_CHARS_MAX - 1]}…"


def _stopped(
    policy: Policy, call: PolicyCall | None, error: BaseException, kind: StopKind, text: str
) -> Stopped:
    line = left = 0
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is policy.function.__code__:
            line = trace.tb_lineno
            left = trace.tb_frame.f_locals.get(LEFT, 0)
            break
        trace = trace.tb_next
    steps = 0 if call is None else min(call.steps - max(0, left), call.steps_max)
    return Stopped(kind, shortened(text), line, steps)


def explained(error: Exception) -> str:
    """Python's words in ours."""
    text = shortened(str(error))
    match error:
        case KeyError():
            return f"there is no member {text}; x.name is None where it is missing"
        case IndexError():
            return "the list or text is not that long"
        case ZeroDivisionError():
            return "a division by zero"
        case OverflowError():
            return "a number is too large"
        case UnboundLocalError():
            return re.sub(r".*variable '(\w+)'.*", r"\1 has no value yet", text)
        case RecursionError():
            return "a value is nested too deep"
    for pattern, words in _SENTENCES:
        if found := pattern.fullmatch(text):
            said = words.format(*(_TYPES.get(each, each) for each in found.groups()))
            return said + _MISSING if "NoneType" in text else said
    return re.sub(r"'(\w+)'( objects?)?", _in_words, text)


def _in_words(found: re.Match[str]) -> str:
    return _TYPES.get(found[1], found[0])
