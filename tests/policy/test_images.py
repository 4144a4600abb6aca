"""Pictures get smaller as asked, never larger, and the same wish gives the same bytes."""

import base64
import io

import pytest
from PIL import Image, ImageDraw
from PIL.JpegImagePlugin import JpegImageFile

from rove.policy.images import QUALITY_MAX, ImageError, TooLate, compress
from rove.policy.jobs import CompressionRequest
from rove.policy.limits import PICTURE_PIXELS_MAX, PNG_PIXELS_MAX


def trace(size: tuple[int, int] = (640, 480), mode: str = "RGB") -> Image.Image:
    """Something like an electrocardiogram: lines on a grid."""
    picture = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(picture)
    for x in range(0, size[0], 8):
        draw.line((x, 0, x, size[1]), (240, 200, 200))
    points = [(x, size[1] // 2 + (x * 37 % 101) - 50) for x in range(0, size[0], 3)]
    draw.line(points, (20, 20, 60), 2)
    return picture.convert(mode)


def saved(picture: Image.Image, name: str, **given: object) -> bytes:
    out = io.BytesIO()
    picture.save(out, name, **given)
    return out.getvalue()


def opened(image: bytes | str) -> Image.Image:
    assert isinstance(image, bytes)
    return Image.open(io.BytesIO(image))


JPEG = saved(trace(), "JPEG", quality=QUALITY_MAX)


@pytest.mark.parametrize("quality", [1, 10, 50, 90])
def test_less_quality_is_less_to_send(quality: int) -> None:
    found = compress(CompressionRequest(JPEG, quality))
    assert len(found) < len(JPEG)
    assert opened(found).format == "JPEG"
    assert opened(found).size == (640, 480)
    assert found == compress(CompressionRequest(JPEG, quality)), "the same wish, the same bytes"


@pytest.mark.parametrize("bytes_max", [20_000, 8_000, 3_000, 1_000])
def test_it_gets_as_small_as_asked(bytes_max: int) -> None:
    found = compress(CompressionRequest(JPEG, None, bytes_max))
    assert len(found) <= bytes_max
    assert max(opened(found).size) <= 640


def test_the_best_quality_that_fits_is_found() -> None:
    exact = compress(CompressionRequest(JPEG, 60))
    found = compress(CompressionRequest(JPEG, None, len(exact)))
    assert len(compress(CompressionRequest(JPEG, 58))) <= len(found) <= len(exact)


def test_pixels_are_of_the_longer_side() -> None:
    assert opened(compress(CompressionRequest(JPEG, None, None, 320))).size == (320, 240)
    tall = saved(trace((100, 400)), "JPEG")
    assert opened(compress(CompressionRequest(tall, None, None, 200))).size == (50, 200)
    narrow = saved(trace((1, 4000)), "JPEG")
    assert opened(compress(CompressionRequest(narrow, None, None, 10))).size == (1, 10)


def test_nothing_gets_larger() -> None:
    small = saved(trace((32, 32)), "JPEG", quality=5, optimize=True)
    assert compress(CompressionRequest(small, 95)) is small
    assert compress(CompressionRequest(small, None, None, 4000)) is small
    text = base64.b64encode(small).decode()
    assert compress(CompressionRequest(text, 95)) is text


def test_what_is_small_enough_is_left_alone() -> None:
    assert len(compress(CompressionRequest(JPEG, None, len(JPEG)))) <= len(JPEG)


def test_base64_stays_base64() -> None:
    text = base64.b64encode(JPEG).decode()
    found = compress(CompressionRequest(text, 20))
    assert isinstance(found, str)
    assert base64.b64decode(found) == compress(CompressionRequest(JPEG, 20))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16", "CMYK"])
def test_every_kind_of_picture_is_understood(mode: str) -> None:
    name = "JPEG" if mode == "CMYK" else "PNG"
    picture = trace((200, 100), "L").convert("I;16") if mode == "I;16" else trace((200, 100), mode)
    image = saved(picture, name)
    found = compress(CompressionRequest(image, 30, None, 50))
    assert len(found) < len(image)
    assert max(opened(found).size) == 50


def test_a_photograph_in_png_becomes_a_jpeg_and_a_drawing_stays_one() -> None:
    noise = saved(Image.effect_noise((200, 200), 80).convert("RGB"), "PNG")
    assert opened(compress(CompressionRequest(noise, 50))).format == "JPEG"
    flat = saved(Image.new("RGB", (400, 400), "red"), "PNG", compress_level=0)
    assert opened(compress(CompressionRequest(flat, 90))).format == "PNG"


def test_what_is_transparent_becomes_white() -> None:
    clear = Image.effect_noise((64, 64), 80).convert("RGBA")
    clear.putalpha(0)
    found = opened(compress(CompressionRequest(saved(clear, "PNG", compress_level=0), 50)))
    assert found.format == "JPEG"
    assert found.getpixel((5, 5)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("image", "what"),
    [
        (b"", "no JPEG and no PNG"),
        (b"GIF89a", "no JPEG and no PNG"),
        ("no base64!", "no base64"),
        ("ünïcode", "no base64"),
        (JPEG[:3000], "cannot be read"),
        (b"\xff\xd8\xff" + b"\x00" * 99, "cannot be read"),
    ],
)
def test_what_is_no_picture_is_refused(image: bytes | str, what: str) -> None:
    with pytest.raises(ImageError, match=what):
        compress(CompressionRequest(image, 50))


def test_what_cannot_get_that_small_is_refused() -> None:
    with pytest.raises(ImageError, match="as small as 10 bytes"):
        compress(CompressionRequest(JPEG, None, 10))


def test_too_many_pixels_are_refused_by_the_head_alone() -> None:
    large = saved(Image.new("1", (6_000, 5_000)), "PNG")
    with pytest.raises(ImageError, match="6,000 by 5,000 pixels"):
        compress(CompressionRequest(large, 50))


def test_a_large_jpeg_is_never_decoded_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    large = saved(Image.new("L", (6_000, 4_000)), "JPEG")
    decoded: list[tuple[int, int]] = []
    load = JpegImageFile.load

    def counted(picture: JpegImageFile) -> object:
        decoded.append(picture.size)
        return load(picture)

    monkeypatch.setattr(JpegImageFile, "load", counted)
    found = compress(CompressionRequest(large, 5))
    assert decoded[0] == (1_500, 1_000)
    assert opened(found).size == (1_500, 1_000)


def test_a_png_with_too_many_pixels_is_refused_by_its_head() -> None:
    side = 1 + int(PICTURE_PIXELS_MAX**0.5)
    large = saved(Image.new("1", (side, side)), "PNG")
    with pytest.raises(ImageError, match="a PNG may have 4,000,000"):
        compress(CompressionRequest(large, 50))


def test_a_large_png_becomes_a_jpeg_without_being_packed() -> None:
    side = 1 + int(PNG_PIXELS_MAX**0.5)
    picture = Image.effect_noise((side, side), 90)
    assert opened(compress(CompressionRequest(saved(picture, "PNG"), 50))).format == "JPEG"


def test_a_search_ends_when_its_time_does() -> None:
    looks = 0

    def is_late() -> bool:
        nonlocal looks
        looks += 1
        return looks == 3

    noise = saved(Image.effect_noise((200, 200), 90), "JPEG", quality=95)
    with pytest.raises(TooLate, match="takes too long") as caught:
        compress(CompressionRequest(noise, bytes_max=1_000), is_late)
    assert caught.value.kind == "time"
    assert looks == 3
