"""Messages of the bench: all of one size, pictures that can be read, numbers that can be found."""

import base64
import io
import json
import re

import pytest
from PIL import Image

from rove.bench.policy import workload as policy_work
from rove.bench.policy.workload import NUMBER, PICTURE_BYTES, PICTURES, message, picture


def test_messages_have_a_hundred_kilobytes_each() -> None:
    sizes = {len(message(number, 77 * number)) for number in (0, 1, 2, 3, 999_999)}
    assert len(sizes) == 1
    assert abs(sizes.pop() - 100_000) < 100


def test_a_message_says_what_it_is() -> None:
    written = message(41, 10**10 + 5)
    found = json.loads(written)
    assert (found["patient"], found["width"]) == (policy_work.PATIENT, policy_work.WIDTH)
    assert found["n"] == policy_work.FIRST_NUMBER + 41
    number = re.search(NUMBER, written)
    assert number is not None
    assert int(number[1]) == found["n"]
    assert base64.b64decode(found["ecg"]) == picture(41 % PICTURES, 5)


@pytest.mark.parametrize("which", range(PICTURES))
def test_pictures_can_be_read_whatever_fills_them(which: int) -> None:
    one, other = picture(which, 1), picture(which, 2)
    assert len(one) == len(other) == PICTURE_BYTES
    assert one != other, "nothing that remembers pictures takes one for the other"
    first, second = (Image.open(io.BytesIO(data)) for data in (one, other))
    assert first.size == (policy_work.WIDTH, policy_work.HEIGHT)
    assert first.tobytes() == second.tobytes()


def test_pictures_differ_and_become_smaller() -> None:
    seen = {Image.open(io.BytesIO(picture(which))).tobytes() for which in range(PICTURES)}
    assert len(seen) == PICTURES
    out = io.BytesIO()
    Image.open(io.BytesIO(picture(0))).save(out, "JPEG", quality=20)
    assert len(out.getvalue()) < PICTURE_BYTES / 2


def test_without_a_stamp_there_are_a_few_pictures() -> None:
    assert len({json.loads(message(number))["ecg"] for number in range(20)}) == PICTURES
    assert len({json.loads(message(number, number))["ecg"] for number in range(20)}) == 20
