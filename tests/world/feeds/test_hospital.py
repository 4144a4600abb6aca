"""Patients, their episodes and their pictures."""

import struct
import zlib
from typing import cast

import numpy as np
import pytest

from rove.world.feeds.audiences import Audience, FeedPublication
from rove.world.feeds.hospital import ECG_HEIGHT, ECG_WIDTH, HospitalWard, ecg_png, ecg_signal, png


def ward(seed: int = 1, patients: int = 8, image_every_s: float = 10.0) -> HospitalWard:
    rng = np.random.Generator(np.random.PCG64(seed))
    return HospitalWard(rng, patients=patients, image_every_s=image_every_s)


def hours_of(ward_: HospitalWard, seconds: int, tick_s: float = 0.5) -> list[FeedPublication]:
    ticks = int(seconds / tick_s)
    return [feed for tick in range(1, ticks + 1) for feed in ward_.feeds(tick * tick_s)]


def test_monitors_publish_numbers_often_and_pictures_now_and_then() -> None:
    feeds = hours_of(ward(), 40)
    vitals = [feed for feed in feeds if feed.topic == "ward/patient3/vitals"]
    pictures = [feed for feed in feeds if feed.topic == "ward/patient3/ecg"]
    assert (len(vitals), len(pictures)) == (40, 4)
    assert list(vitals[0].attributes) == ["patient", "pulse", "spo2", "systolic", "diastolic"]
    assert all(90_000 < len(cast(bytes, one.attributes["ecg"])) < 110_000 for one in pictures)
    assert len({one.attributes["ecg"] for one in pictures}) == 4


def test_values_are_those_of_people() -> None:
    patients = ward(patients=200, image_every_s=1e9)
    for tick in range(1, 1200):
        patients.feeds(tick * 0.5)
        if tick % 100 == 0:
            pulse, spo2, systolic, diastolic = patients.values(tick * 0.5).T
            calm = ~patients.is_in_trouble
            assert ((pulse >= 20) & (pulse <= 220)).all()
            assert ((spo2 >= 60) & (spo2 <= 100)).all()
            assert 60 < np.median(pulse[calm]) < 90
            assert 93 < np.median(spo2[calm]) <= 100
            assert (systolic > diastolic).mean() > 0.99
    assert 0.05 < patients.is_in_trouble.mean() < 0.5


def test_values_do_not_jump() -> None:
    patients = ward(patients=100, image_every_s=1e9)
    before = patients.values(0.0)
    for tick in range(1, 3000):
        patients.feeds(tick * 0.1)
        now = patients.values(tick * 0.1)
        assert (np.abs(now - before) < 3.0).all()
        before = now


def test_who_watches_for_trouble_is_told_of_it() -> None:
    patients = ward(patients=50, image_every_s=1e9)
    doctors = Audience()
    doctors.subscribe("ward/+/vitals", "pulse > 120 OR pulse < 45 OR spo2 < 88")
    told = in_trouble = 0
    for tick in range(1, 1200):
        feeds = patients.feeds(tick * 0.5)
        for one in doctors.publish(feeds, tick * 0.5):
            told += 1
            in_trouble += bool(patients.is_in_trouble[cast(int, one.feed.attributes["patient"])])
    assert told > 100
    assert in_trouble / told > 0.95


def test_beds_are_told() -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    (feed,) = HospitalWard(rng, patients=1, image_every_s=99, beds=np.array([[3.0, 4.0]])).feeds(
        1.0
    )
    assert (feed.attributes["x"], feed.attributes["y"]) == (3.0, 4.0)


def test_one_seed_is_one_ward() -> None:
    assert hours_of(ward(1), 20) == hours_of(ward(1), 20)
    assert hours_of(ward(1), 20) != hours_of(ward(2), 20)


def read_png(picture: bytes) -> np.ndarray:
    """Written from the format's description, chunk by chunk."""
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    at, data, head = 8, b"", b""
    while at < len(picture):
        (length,) = struct.unpack_from(">I", picture, at)
        kind, body = picture[at + 4 : at + 8], picture[at + 8 : at + 8 + length]
        (check,) = struct.unpack_from(">I", picture, at + 8 + length)
        assert check == zlib.crc32(kind + body)
        head, data = (body, data) if kind == b"IHDR" else (head, data + body)
        at += 12 + length
    width, height, bits, colour, *_ = struct.unpack(">IIBBBBB", head)
    assert (bits, colour) == (8, 0)
    rows = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, width + 1)
    assert (rows[:, 0] == 0).all()
    return rows[:, 1:]


def test_a_picture_is_a_png_that_others_can_read() -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (7, 13)).astype(np.uint8)
    assert np.array_equal(read_png(png(pixels)), pixels)
    image = pytest.importorskip("matplotlib.image")
    from io import BytesIO

    assert np.array_equal((image.imread(BytesIO(png(pixels))) * 255).round(), pixels)


@pytest.mark.parametrize("pulse", [40.0, 75.0, 150.0])
def test_a_picture_shows_as_many_beats_as_the_pulse_says(pulse: float) -> None:
    pixels = read_png(ecg_png(pulse, 0.9))
    assert pixels.shape == (ECG_HEIGHT, ECG_WIDTH)
    ink = pixels == 0
    assert ink.any(axis=0).all()
    is_peak = ink[: ECG_HEIGHT // 3].any(axis=0)
    peaks = int((is_peak[1:] & ~is_peak[:-1]).sum())
    assert abs(peaks - pulse * 4.0 / 60.0) <= 1.0


def test_pictures_go_on_where_the_last_ended() -> None:
    seconds = np.linspace(0.0, 2.0, 50)
    later = ecg_signal(60.0, (0.3 + 1.5) % 1.0, seconds + 1.5)
    assert np.allclose(later, ecg_signal(60.0, 0.3, seconds))
