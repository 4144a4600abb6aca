"""What Numba has no word for: 64 comparisons at once, memory by its address, fetching ahead.

Each is a function that writes a few LLVM instructions, to be used inside kernels only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from rove.match.index.layout import (
    WIDTH,
)


def _wide_comparison(predicate: str) -> Any:
    """An intrinsic (address of a column, value) -> mask of 64 answers, `bound predicate value`."""

    @intrinsic
    def compare(typing_context: Any, address: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            lanes = ir.VectorType(ir.IntType(16), WIDTH)
            place = builder.inttoptr(arguments[0], lanes.as_pointer())
            column = builder.load(place, align=2)
            empty = ir.Constant(lanes, ir.Undefined)
            first = builder.insert_element(empty, arguments[1], ir.Constant(ir.IntType(32), 0))
            everywhere = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
            repeated = builder.shuffle_vector(first, empty, everywhere)
            mask = builder.icmp_unsigned(predicate, column, repeated)
            return builder.bitcast(mask, ir.IntType(WIDTH))

        return types.uint64(types.int64, types.uint16), generate

    return compare


at_most = _wide_comparison("<=")
equal = _wide_comparison("==")


@intrinsic
def lowest_bit(typing_context: Any, mask: Any) -> Any:
    """The number of the lowest bit that is set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@intrinsic
def prefetch(typing_context: Any, address: Any) -> Any:
    """Have a line of memory brought near, for later."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte, flag = ir.IntType(8), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), flag, flag, flag])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        place = builder.inttoptr(arguments[0], byte.as_pointer())
        reading, near, data = (ir.Constant(flag, value) for value in (0, 3, 1))
        builder.call(fetch, [place, reading, near, data])
        return context.get_dummy_value()

    return types.none(types.int64), generate


@intrinsic
def as_float(typing_context: Any, bits: Any) -> Any:
    """The float that has these bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.uint64), generate


def _reading(kind: Any, result: Any) -> Any:
    """An intrinsic (address, i) -> the element i of the array of `kind` that stands there.

    Arrays would be the usual way. But a view of one is counted whenever it is made or handed on,
    and a search makes thousands; with addresses a candidate takes 5 ns instead of 500.
    """
    width = kind.bitwidth // 8

    @intrinsic
    def read(typing_context: Any, address: Any, i: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            stored = context.get_data_type(kind)
            offset = builder.mul(arguments[1], ir.Constant(ir.IntType(64), width))
            place = builder.inttoptr(builder.add(arguments[0], offset), stored.as_pointer())
            return context.cast(builder, builder.load(place), kind, result)

        return result(types.int64, types.int64), generate

    return read


int_at = _reading(types.int32, types.int64)
word_at = _reading(types.int64, types.int64)
key_at = _reading(types.uint64, types.uint64)
real_at = _reading(types.float64, types.float64)
byte_at = _reading(types.uint8, types.int64)


U1, U2, U8 = types.uint8, types.uint16, types.uint64
I4, I8 = types.int32, types.int64
F4, F8 = types.float32, types.float64


def row_of(kind: Any) -> Any:
    """The type of an array with one dimension."""
    return types.Array(kind, 1, "C")


def table_of(kind: Any) -> Any:
    """The type of an array with two dimensions."""
    return types.Array(kind, 2, "C")


@njit(cache=True, nogil=True, inline="always")
def address(buffer: Any, section: int) -> int:
    """Where a section begins."""
    return np.int64(buffer.ctypes.data) + 8 * buffer[2 * section]


@intrinsic
def pointer(typing_context: Any, address: Any, kind: Any) -> Any:
    """An address as a pointer to elements of `kind`."""
    result = types.CPointer(kind.dtype)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(result))

    return result(types.int64, kind), generate


@njit(cache=True, nogil=True, inline="always")
def array_of(frame: Any, i: int, kind: Any) -> Any:
    """An array of a frame (see `rove.match.index.layout`)."""
    return carray(pointer(frame[2 * i], kind), frame[2 * i + 1])
