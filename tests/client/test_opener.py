"""What can be awaited and entered."""

from __future__ import annotations

import asyncio

import pytest

from rove.client.opener import Opener


class Door:
    def __init__(self) -> None:
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


async def opened() -> Door:
    await asyncio.sleep(0)
    return Door()


async def test_it_can_be_awaited() -> None:
    assert not (await Opener(opened)).is_closed


async def test_leaving_closes() -> None:
    async with Opener(opened) as door:
        assert not door.is_closed
    assert door.is_closed


async def test_leaving_by_an_error_closes_too() -> None:
    with pytest.raises(ZeroDivisionError):
        async with Opener(opened) as door:
            raise ZeroDivisionError
    assert door.is_closed
