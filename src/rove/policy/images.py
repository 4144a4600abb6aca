"""Makes a picture smaller: JPEG or PNG in, JPEG or PNG out, never larger than it was.

Pillow does it. Only its decoders for these two formats are ever used, whatever a file claims to be,
and nothing is decoded before its size is known: a picture with too many pixels is refused by its
head, and a large JPEG is never decoded in full. Between two encodings the time is looked at
(`Deadline`); a single one takes a tenth of a second at most. The same wish gives the same bytes
wherever the same Pillow runs, or none where there is no time for it.
"""

from __future__ import annotations

import base64
import binascii
import io
import struct
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rove.policy.jobs import CompressionRequest, LostKind
from rove.policy.limits import JPEG_PIXELS_MAX, PICTURE_PIXELS_MAX, PNG_PIXELS_MAX

if TYPE_CHECKING:
    from PIL import Image

QUALITY_MAX: Final = 95
QUALITY_MIN: Final = 5
"""Of a search; below, pictures get no smaller and no better recognised."""
_SCALES: Final = (1.0, 0.75, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05)
"""Of the sides, that are tried when quality alone does not do."""
_FORMATS: Final = ("JPEG", "PNG")
_BEGINNINGS: Final = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")


Deadline = Callable[[], bool]
"""Whether there is no time left."""


def no_deadline() -> bool:
    """There is all the time that it takes."""
    return False


class ImageError(Exception):
    """A picture that cannot be made smaller: what is wrong with it."""

    kind: LostKind = "error"


class TooLate(ImageError):
    """There was no time left to make it smaller."""

    kind: LostKind = "time"


def compress(request: CompressionRequest, is_late: Deadline = no_deadline) -> bytes | str:
    """The picture as wanted, bytes or base64 as it came; as it came, if that is no larger."""
    if isinstance(request.image, bytes):
        made = _compressed(request.image, request, is_late)
        return made if len(made) < len(request.image) else request.image
    text = base64.b64encode(_compressed(_decoded(request.image), request, is_late)).decode()
    return text if len(text) < len(request.image) else request.image


def _compressed(image: bytes, request: CompressionRequest, is_late: Deadline) -> bytes:
    try:
        from PIL import Image
    except ImportError:
        raise ImageError("pictures need Pillow; pip install rove brings it") from None
    try:
        with warnings.catch_warnings():
            # What Pillow warns of is judged here.
            warnings.simplefilter("ignore")
            picture = _opened(image)
            is_png = picture.format == "PNG"
            picture.load()
            return _smaller(_plain(picture), is_png, request, is_late)
    except ImageError:
        raise
    except (OSError, ValueError, SyntaxError, EOFError, struct.error, ArithmeticError) as error:
        raise ImageError(f"the picture cannot be read: {error}") from None
    except Image.DecompressionBombError:
        raise ImageError("the picture has too many pixels") from None
    except (IndexError, KeyError, TypeError, AttributeError, MemoryError, RuntimeError) as error:
        raise ImageError(f"the picture is broken: {type(error).__name__}") from None


def _decoded(text: str) -> bytes:
    """The picture in a base64 text."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ImageError("the text is no base64 of a picture") from None


def _opened(image: bytes) -> Image.Image:
    from PIL import Image

    if not image.startswith(_BEGINNINGS):
        raise ImageError("that is no JPEG and no PNG")
    picture = Image.open(io.BytesIO(image), formats=_FORMATS)
    width, height = picture.size
    pixels_max = JPEG_PIXELS_MAX if picture.format == "JPEG" else PICTURE_PIXELS_MAX
    if width * height > pixels_max:
        raise ImageError(
            f"the picture has {width:,} by {height:,} pixels, too many; "
            f"a {picture.format} may have {pixels_max:,}"
        )
    scale = 1
    while width * height > PICTURE_PIXELS_MAX * scale**2:
        scale *= 2
    if scale > 1:
        picture.draft(None, (width // scale, height // scale))
        width, height = picture.size
        if width * height > PICTURE_PIXELS_MAX:
            raise ImageError(f"the picture has {width:,} by {height:,} pixels, too many at once")
    return picture


def _plain(picture: Image.Image) -> Image.Image:
    """Sixteen bits of grey are more than a screen shows."""
    if picture.mode in ("I", "I;16", "I;16B", "I;16L"):
        return picture.convert("I").point(lambda level: level * (1 / 256)).convert("L")
    return picture


def _smaller(
    picture: Image.Image, is_png: bool, request: CompressionRequest, is_late: Deadline
) -> bytes:
    if request.pixels_max is not None:
        picture = _within(picture, request.pixels_max)
    quality = request.quality or 85
    if request.bytes_max is None:
        return _encoded(picture, quality, is_png)
    for scale in _SCALES:
        longer = max(1, round(max(picture.size) * scale))
        found = _best(_within(picture, longer), quality, is_png, request.bytes_max, is_late)
        if len(found) <= request.bytes_max:
            return found
    raise ImageError(f"the picture cannot be made as small as {request.bytes_max:,} bytes")


def _best(
    picture: Image.Image, quality: int, is_png: bool, bytes_max: int, is_late: Deadline
) -> bytes:
    """The best that is no larger than allowed; if none is, the smallest."""
    found = _encoded(picture, quality, is_png)
    if len(found) <= bytes_max:
        return found
    low, high = min(QUALITY_MIN, quality), quality
    # Of PNG there is but one quality, and that was too large.
    found = _encoded(picture, low, False)
    if len(found) > bytes_max:
        _look(is_late)
        return found
    while high - low > 1:
        _look(is_late)
        middle = (low + high) // 2
        tried = _encoded(picture, middle, False)
        if len(tried) <= bytes_max:
            low, found = middle, tried
        else:
            high = middle
    return found


def _look(is_late: Deadline) -> None:
    if is_late():
        raise TooLate("the picture takes too long")


def _within(picture: Image.Image, pixels_max: int) -> Image.Image:
    """The picture with no side longer than that."""
    from PIL import Image

    longer = max(picture.size)
    if longer <= pixels_max:
        return picture
    width, height = (max(1, round(side * pixels_max / longer)) for side in picture.size)
    if picture.mode in ("P", "1"):
        picture = picture.convert("RGBA" if "transparency" in picture.info else "RGB")
    return picture.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=2.0)


def _encoded(picture: Image.Image, quality: int, is_png: bool) -> bytes:
    """As JPEG; as PNG, if it was one and that is smaller."""
    from PIL import Image

    flat = picture
    if picture.mode in ("RGBA", "LA", "PA", "P"):
        # What is transparent becomes white.
        layer = picture.convert("RGBA")
        flat = Image.new("RGB", picture.size, "white")
        flat.paste(layer, mask=layer.getchannel("A"))
    elif picture.mode not in ("RGB", "L", "CMYK"):
        flat = picture.convert("L" if picture.mode == "1" else "RGB")
    out = io.BytesIO()
    flat.save(out, "JPEG", quality=quality, optimize=True)
    found = out.getvalue()
    if is_png and picture.width * picture.height <= PNG_PIXELS_MAX:
        other = io.BytesIO()
        picture.save(other, "PNG", optimize=True)
        if len(other.getvalue()) < len(found):
            return other.getvalue()
    return found
