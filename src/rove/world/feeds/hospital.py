"""A ward of intensive care: monitors that publish vital signs often, and pictures now and then.

The difficulty of such a ward: a pulse is a few bytes, an electrocardiogram is a picture of a
hundred thousand, both come all the time, and the pulse of a patient in trouble must get through. So
patients drift around values of their own and have *episodes* (fast or slow heart, low oxygen, low
pressure) that come and go within minutes, and pictures are real PNG files, drawn from the signal of
the pulse.

    ward/PATIENT/vitals   patient, pulse (a minute), spo2 (%), systolic, diastolic (mmHg), x, y
    ward/PATIENT/ecg      patient, pulse, width, height, ecg (the picture, bytes)

PNG needs nothing but zlib. Its data is stored, not compressed: the bytes are then the same
everywhere (libraries of zlib compress differently), the size is known, and a policy that compresses
pictures has an effect. The paper has a grain, like a scan; without it a picture would compress to a
kilobyte, and quality would not matter. A picture has 100,328 bytes and takes 0.5 ms; 100 patients
with one every 10 s, 0.8 ms of processor time a tick of 0.1 s.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

import numpy as np
import numpy.typing as npt

from rove.world.feeds.audiences import FeedPublication, Timetable
from rove.world.runs.state import Floats, Ints, Longs
from rove.world.traffic.curves import bump

ECG_WIDTH: Final = 400
ECG_HEIGHT: Final = 250
ECG_S: Final = 4.0
"""What a picture shows."""
_PAPER, _LINES, _INK = 255, 225, 0
_SQUARE: Final = 20
_GRAIN: Final = np.random.Generator(np.random.PCG64(1)).integers(
    0, 8, (ECG_HEIGHT, ECG_WIDTH), np.uint8
)
"""Always the same sheet."""

_PULSE, _SPO2, _SYSTOLIC, _DIASTOLIC = range(4)
_LOW: Final = np.array([20.0, 60.0, 50.0, 30.0])
_HIGH: Final = np.array([220.0, 100.0, 230.0, 140.0])
EPISODES: Final = np.array(
    [
        [0.0, 0.0, 0.0, 0.0],
        [65.0, -2.0, 10.0, 5.0],  # the heart races
        [-35.0, -2.0, -15.0, -8.0],  # it slows
        [20.0, -14.0, 8.0, 4.0],  # oxygen falls
        [25.0, -3.0, -45.0, -25.0],  # pressure falls
    ]
)
"""How far each kind takes the four values at its height; the first is none."""
EPISODES_PER_HOUR: Final = 6.0
"""And patient. More than a real ward has: a scenario lasts minutes."""
EPISODE_S: Final = (30.0, 180.0)
_CALM_S: Final = 60.0
"""In which a drift is forgotten."""
_DRIFT: Final = np.array([4.0, 0.7, 5.0, 3.5])

_WAVES: Final = (
    (0.18, 0.025, 0.15),
    (0.345, 0.010, -0.15),
    (0.37, 0.012, 1.0),
    (0.395, 0.010, -0.3),
    (0.62, 0.045, 0.3),
)
"""P, Q, R, S and T: when in a beat, how wide, how high."""


class HospitalWard:
    """Patients, their state and what their monitors publish."""

    def __init__(
        self,
        rng: np.random.Generator,
        *,
        patients: int,
        every_s: float = 1.0,
        image_every_s: float = 10.0,
        beds: Floats | None = None,
        name: str = "patient",
    ) -> None:
        """`beds` are the patients' places, a row of x and y each, if they matter."""
        self._rng = rng
        self._name = name
        self._beds = beds
        self._usual = np.column_stack(
            [
                rng.uniform(58.0, 92.0, patients),
                rng.uniform(95.0, 99.0, patients),
                rng.uniform(105.0, 140.0, patients),
                rng.uniform(62.0, 88.0, patients),
            ]
        )
        self._drift = np.zeros((patients, 4))
        self._episode: Ints = np.zeros(patients, np.int32)
        self._begins = np.zeros(patients)
        self._lasts_s = np.ones(patients)
        self._beat = rng.uniform(0.0, 1.0, patients)
        """How far into a beat of the heart each one was when looked at last."""
        self._at = 0.0
        self._vitals_times = Timetable(patients, every_s)
        self._image_times = Timetable(patients, image_every_s)

    def __len__(self) -> int:
        return len(self._usual)

    def feeds(self, at: float) -> list[FeedPublication]:
        """What is published at a time; to be asked every tick."""
        self._live(at)
        vitals = self._vitals_times.due(at)
        images = self._image_times.due(at).tolist()
        values = self.values(at)
        found = self._of_vitals(vitals, values, at)
        return found + [self._of_ecg(patient, values, at) for patient in images]

    # -- how they are --------------------------------------------------------------------------

    def _live(self, at: float) -> None:
        passed_s = at - self._at
        self._at = at
        push = self._rng.uniform(-1.0, 1.0, self._drift.shape)
        forget = min(1.0, passed_s / _CALM_S)
        # So weighed, drifts stay about as wide however long the ticks are.
        self._drift += _DRIFT * push * np.sqrt(6.0 * forget) - forget * self._drift
        self._episode[at >= self._begins + self._lasts_s] = 0
        chance = EPISODES_PER_HOUR * passed_s / 3600.0
        begins = (self._rng.random(len(self)) < chance) & (self._episode == 0)
        who = np.flatnonzero(begins)
        self._episode[who] = self._rng.integers(1, len(EPISODES), len(who))
        self._begins[who] = at
        self._lasts_s[who] = self._rng.uniform(*EPISODE_S, len(who))
        self._beat = (self._beat + passed_s * self.values(at)[:, _PULSE] / 60.0) % 1.0

    def values(self, at: float) -> Floats:
        """Pulse, oxygen, pressures of all patients, a row each."""
        part = np.clip((at - self._begins) / self._lasts_s, 0.0, 1.0)
        height = (4.0 * part * (1.0 - part))[:, None]
        values = self._usual + self._drift + height * EPISODES[self._episode]
        found: Floats = np.clip(values, _LOW, _HIGH)
        return found

    @property
    def is_in_trouble(self) -> npt.NDArray[np.bool_]:
        """Which patients have an episode."""
        found: npt.NDArray[np.bool_] = self._episode > 0
        return found

    # -- what is published ---------------------------------------------------------------------

    def _of_vitals(self, who: Longs, values: Floats, at: float) -> list[FeedPublication]:
        found = []
        for patient, (pulse, spo2, systolic, diastolic) in zip(
            who.tolist(), values[who].round(1).tolist(), strict=True
        ):
            attributes: dict[str, object] = {
                "patient": patient,
                "pulse": pulse,
                "spo2": spo2,
                "systolic": systolic,
                "diastolic": diastolic,
            }
            if self._beds is not None:
                attributes["x"], attributes["y"] = self._beds[patient].tolist()
            found.append(FeedPublication(f"ward/{self._name}{patient}/vitals", attributes, at))
        return found

    def _of_ecg(self, patient: int, values: Floats, at: float) -> FeedPublication:
        pulse = round(float(values[patient, _PULSE]), 1)
        attributes: dict[str, object] = {
            "patient": patient,
            "pulse": pulse,
            "width": ECG_WIDTH,
            "height": ECG_HEIGHT,
            "ecg": ecg_png(pulse, float(self._beat[patient])),
        }
        return FeedPublication(f"ward/{self._name}{patient}/ecg", attributes, at)


# -- the picture ------------------------------------------------------------------------------


def ecg_signal(pulse: float, beat: float, seconds: Floats) -> Floats:
    """Millivolts, seconds before a moment at which a heart is at `beat` (0 to 1) of its beat."""
    phase = (beat - seconds * pulse / 60.0) % 1.0
    signal = np.zeros_like(phase)
    for when, wide, high in _WAVES:
        signal += high * bump((phase - when) / wide)
    return signal


def ecg_png(pulse: float, beat: float) -> bytes:
    """The last four seconds as a picture, black on squared paper."""
    paper = np.full((ECG_HEIGHT, ECG_WIDTH), _PAPER, np.uint8)
    paper[::_SQUARE] = _LINES
    paper[:, ::_SQUARE] = _LINES
    paper -= _GRAIN
    seconds = np.linspace(ECG_S, 0.0, ECG_WIDTH + 1)
    signal = ecg_signal(pulse, beat, seconds)
    rows = ((1.3 - signal) / 1.8 * ECG_HEIGHT).astype(np.int64)
    top, bottom = np.minimum(rows[1:], rows[:-1]), np.maximum(rows[1:], rows[:-1])
    row = np.arange(ECG_HEIGHT)[:, None]
    paper[(row >= top - 1) & (row <= bottom)] = _INK
    return png(paper)


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """A picture of grey values, from black to white, as a PNG file."""
    height, width = pixels.shape
    # Each row begins with a 0: it is not filtered.
    rows = np.zeros((height, width + 1), np.uint8)
    rows[:, 1:] = pixels
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 0)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
