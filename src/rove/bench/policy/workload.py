"""What `rove bench policy` publishes: messages of a ward of intensive care, 100 KB each.

An electrocardiogram is a JPEG file, as SUBLIM's was: three leads on squared paper, drawn from the
signal of `rove.world.feeds.hospital`, with the noise of a scanner, which is what makes such
pictures large. In JSON bytes are base64, so a message of 100 KB holds a picture of 75 KB. Four
pictures are drawn; a segment that every reader of JPEG skips fills them up to one size and holds a
*stamp*. So all messages are equally long, and pictures with different stamps are not the same to
anything that remembers pictures, as a broker does.

Drawing takes 0.1 s in all, a message 0.2 ms.
"""

from __future__ import annotations

import base64
import functools
import io
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rove.world.feeds.hospital import ecg_signal

WIDTH: Final = 800
HEIGHT: Final = 500
PICTURES: Final = 4
"""That are different to the eye."""
PICTURE_BYTES: Final = 74_916
PATIENT: Final = 7
TOPIC: Final = f"ward/patient{PATIENT}/ecg"
FILTER: Final = "ward/#"
FIRST_NUMBER: Final = 1_000_000_000
"""Messages are numbered with ten digits each, in their member `n`."""
STAMPS: Final = 10**10
NUMBER: Final = rb'"n":(\d{10})'
"""Where the number stands in a message, wherever a policy has moved it to."""
_LEADS: Final = 3
_SECONDS: Final = 4.0
_PAPER, _LINES, _INK = 245.0, 215.0, 20.0
_SQUARE: Final = 20
_NOISE: Final = 2.0
_PULSE: Final = 72.5
_QUALITIES: Final = range(95, 50, -1)
_SKIPPED: Final = b"\xff\xef"
"""The segment APP15, which nobody reads."""
_SEGMENT_BYTES_MIN: Final = 14
_START_BYTES: Final = 2


class Ecg(msgspec.Struct):
    """A message, as the monitor of a patient publishes it."""

    n: int
    patient: int
    pulse: float
    width: int
    height: int
    ecg: str


def message(number: int, stamp: int | None = None) -> bytes:
    """The message of that number; without a stamp it has one of a few pictures."""
    image = picture(number % PICTURES, 0 if stamp is None else stamp)
    text = base64.b64encode(image).decode("ascii")
    return msgspec.json.encode(Ecg(FIRST_NUMBER + number, PATIENT, _PULSE, WIDTH, HEIGHT, text))


def picture(which: int, stamp: int = 0) -> bytes:
    """A picture of exactly PICTURE_BYTES, with a number that is not seen."""
    drawn = _drawn(which)
    filler_bytes = PICTURE_BYTES - len(drawn)
    segment = _SKIPPED + (filler_bytes - 2).to_bytes(2, "big") + b"%010d" % (stamp % STAMPS)
    return drawn[:_START_BYTES] + segment.ljust(filler_bytes, b"\0") + drawn[_START_BYTES:]


@functools.cache
def _drawn(which: int) -> bytes:
    """As good as fits."""
    from PIL import Image

    image = Image.fromarray(_paper(which))
    for quality in _QUALITIES:
        out = io.BytesIO()
        image.save(out, "JPEG", quality=quality)
        if len(found := out.getvalue()) <= PICTURE_BYTES - _SEGMENT_BYTES_MIN:
            return found
    raise AssertionError("a picture of that size never fits")


def _paper(which: int) -> NDArray[np.uint8]:
    paper = np.full((HEIGHT, WIDTH), _PAPER)
    paper[::_SQUARE] = _LINES
    paper[:, ::_SQUARE] = _LINES
    seconds = np.linspace(_SECONDS, 0.0, WIDTH + 1)
    row = np.arange(HEIGHT)[:, None]
    for lead in range(_LEADS):
        signal = ecg_signal(_PULSE, 0.23 * which + 0.03 * lead, seconds) * (1.0 - 0.25 * lead)
        rows = ((lead + 0.75 - 0.6 * signal) / _LEADS * HEIGHT).astype(np.int64)
        top, bottom = np.minimum(rows[1:], rows[:-1]), np.maximum(rows[1:], rows[:-1])
        paper[(row >= top - 1) & (row <= bottom)] = _INK
    paper += np.random.default_rng(which).normal(0.0, _NOISE, paper.shape)
    found: NDArray[np.uint8] = np.clip(paper, 0.0, 255.0).astype(np.uint8)
    return found
