"""Every function, against exact or independent computation: to the last bit, or to a stated error.

Sums, products, quotients and roots are compared with exact fractions rounded once, which is
what 64-bit floats promise. Distances are compared with the spherical law of cosines in 60
digits, a different formula in a different arithmetic.
"""

import math
import sys
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rove.lang import functions
from rove.lang.functions import EARTH_RADIUS_M, NAMES, NUMERIC, arithmetic, call, negate
from rove.lang.limits import INTEGER_MAX, INTEGER_MIN
from rove.lang.values import Known, Number
from rove.testing import strategies
from tests.effort import examples

FLOAT_MAX = sys.float_info.max
TINY = 5e-324

numbers: st.SearchStrategy[Number] = (
    strategies.numbers
    | st.integers(INTEGER_MIN, INTEGER_MAX)
    | st.integers(-100, 100)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.floats(-1e3, 1e3)
)
no_numbers: st.SearchStrategy[Known] = st.sampled_from([None, True, False, "", "1", "a"])


def same(found: object, expected: object) -> bool:
    """Equal, and of the same type: 1 is not 1.0 here."""
    return type(found) is type(expected) and found == expected


def rounded(exact: Fraction) -> float | None:
    """The float nearest to `exact`; None beyond the largest."""
    try:
        return exact.numerator / exact.denominator  # rounds once, to nearest, ties to even
    except OverflowError:
        return None


def within_64_bits(exact: Fraction) -> int | None:
    return int(exact) if INTEGER_MIN <= exact <= INTEGER_MAX else None


def exactly(operator: str, left: Number, right: Number) -> Number | None:
    """`left operator right` by fractions: integers stay integers, all else is one rounding."""
    integers = isinstance(left, int) and isinstance(right, int)
    if not integers or operator == "/":
        left, right = float(left), float(right)
    a, b = Fraction(left), Fraction(right)
    if operator == "/":
        return rounded(a / b) if b else None
    result = {"+": a + b, "-": a - b, "*": a * b}[operator]
    return within_64_bits(result) if integers else rounded(result)


# --- arithmetic -------------------------------------------------------------------------------


@examples(650)
@given(st.sampled_from("+-*/"), numbers, numbers)
@example("+", FLOAT_MAX, math.ulp(FLOAT_MAX) / 2)
@example("+", FLOAT_MAX, math.nextafter(math.ulp(FLOAT_MAX) / 2, 0))
@example("/", INTEGER_MAX, INTEGER_MAX - 1)
def test_arithmetic_is_exact_or_rounded_once(operator: str, left: Number, right: Number) -> None:
    assert same(arithmetic(operator, left, right), exactly(operator, left, right))


@pytest.mark.parametrize(
    ("left", "operator", "right", "expected"),
    [
        (1, "+", 2, 3),
        (1, "+", 2.0, 3.0),
        (2, "*", 3.0, 6.0),
        (7, "/", 2, 3.5),
        (6, "/", 3, 2.0),
        (INTEGER_MAX, "+", 0, INTEGER_MAX),
        (INTEGER_MAX, "+", 1, None),
        (INTEGER_MAX, "+", 1.0, 2.0**63),
        (INTEGER_MIN, "-", 1, None),
        (INTEGER_MIN, "-", 0, INTEGER_MIN),
        (INTEGER_MIN, "+", -1, None),
        (0, "-", INTEGER_MIN, None),
        (-1, "-", INTEGER_MIN, INTEGER_MAX),
        (INTEGER_MIN, "*", -1, None),
        (INTEGER_MIN, "*", 1, INTEGER_MIN),
        (2**32, "*", 2**31, None),
        (-(2**32), "*", 2**31, INTEGER_MIN),
        (3037000500, "*", 3037000500, None),
        (3037000499, "*", 3037000499, 3037000499**2),
        (INTEGER_MIN, "/", -1, 2.0**63),
        (FLOAT_MAX, "+", FLOAT_MAX, None),
        (-FLOAT_MAX, "-", FLOAT_MAX, None),
        (FLOAT_MAX, "*", 1.0000000000000002, None),
        (FLOAT_MAX, "*", 1, FLOAT_MAX),
        (1, "/", TINY, None),
        (FLOAT_MAX, "/", 0.5, None),
        (TINY, "/", 2, 0.0),
        (TINY, "*", 0.5, 0.0),
        (1, "/", 0, None),
        (1, "/", 0.0, None),
        (1, "/", -0.0, None),
        (0, "/", 0, None),
        (0.0, "/", -0.0, None),
        (0, "/", 5, 0.0),
        (9007199254740993, "-", 9007199254740992, 1),
        (9007199254740993, "-", 9007199254740992.0, 0.0),
        (9007199254740993, "/", 1, 9007199254740992.0),
    ],
)
def test_the_edges_of_arithmetic(
    left: Number, operator: str, right: Number, expected: Number | None
) -> None:
    assert same(arithmetic(operator, left, right), expected)


@given(st.sampled_from("+-*/"), numbers, no_numbers)
def test_arithmetic_with_what_is_no_number_is_unknown(
    operator: str, number: Number, other: Known
) -> None:
    assert arithmetic(operator, number, other) is None
    assert arithmetic(operator, other, number) is None
    assert arithmetic(operator, other, other) is None


@examples(150)
@given(numbers, numbers)
def test_sums_and_products_have_no_order_of_operands(left: Number, right: Number) -> None:
    assert same(arithmetic("+", left, right), arithmetic("+", right, left))
    assert same(arithmetic("*", left, right), arithmetic("*", right, left))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, -5),
        (-5, 5),
        (0, 0),
        (2.5, -2.5),
        (INTEGER_MAX, -INTEGER_MAX),
        (INTEGER_MIN, None),
        (-(2.0**63), 2.0**63),
        (FLOAT_MAX, -FLOAT_MAX),
        (None, None),
        (True, None),
        ("1", None),
    ],
)
def test_negation(value: Known, expected: Known) -> None:
    assert same(negate(value), expected)


def test_the_negative_of_a_float_zero_is_the_other_zero() -> None:
    assert math.copysign(1, float(str(negate(0.0)))) == -1


# --- functions of numbers -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("abs", [-3], 3),
        ("abs", [-2.5], 2.5),
        ("abs", [INTEGER_MIN], None),
        ("abs", [INTEGER_MIN + 1], INTEGER_MAX),
        ("abs", [-(2.0**63)], 2.0**63),
        ("least", [3, 2], 2),
        ("least", [3, 2.5, 1.5, 2], 1.5),
        ("least", [9007199254740993, 9007199254740992.0], 9007199254740992.0),
        ("least", [1, 1.0], 1),
        ("least", [1.0, 1], 1.0),
        ("greatest", [9007199254740993, 9007199254740992.0], 9007199254740993),
        ("greatest", [1, 1.0], 1),
        ("greatest", [1.0, 1], 1.0),
        ("greatest", [INTEGER_MAX, 2.0**63], 2.0**63),
        ("greatest", [-FLOAT_MAX, INTEGER_MIN], INTEGER_MIN),
        ("sqrt", [4], 2.0),
        ("sqrt", [2], 1.4142135623730951),
        ("sqrt", [0], 0.0),
        ("sqrt", [-0.0], 0.0),
        ("sqrt", [-TINY], None),
        ("sqrt", [-1], None),
        ("sqrt", [FLOAT_MAX], 1.3407807929942596e154),
        ("pow", [2, 10], 1024.0),
        ("pow", [2, -1], 0.5),
        ("pow", [0, 0], 1.0),
        ("pow", [0, -1], None),
        ("pow", [-0.0, -3], None),
        ("pow", [-8, 1 / 3], None),
        ("pow", [-2, 3], -8.0),
        ("pow", [-2, 0.5], None),
        ("pow", [10, 308], 1e308),
        ("pow", [10, 309], None),
        ("pow", [-10, 309], None),
        ("pow", [10, -400], 0.0),
        ("pow", [1, FLOAT_MAX], 1.0),
        ("pow", [FLOAT_MAX, 1], FLOAT_MAX),
        ("pow", [FLOAT_MAX, 2], None),
        ("sin", [0], 0.0),
        ("cos", [0], 1.0),
        ("floor", [2.7], 2.0),
        ("floor", [-2.1], -3.0),
        ("floor", [-TINY], -1.0),
        ("floor", [7], 7),
        ("floor", [INTEGER_MIN], INTEGER_MIN),
        ("floor", [1e300], 1e300),
        ("floor", [-FLOAT_MAX], -FLOAT_MAX),
        ("floor", [4503599627370495.5], 4503599627370495.0),
        ("ceil", [2.1], 3.0),
        ("ceil", [-2.7], -2.0),
        ("ceil", [TINY], 1.0),
        ("ceil", [-0.5], 0.0),
        ("ceil", [INTEGER_MAX], INTEGER_MAX),
        ("ceil", [FLOAT_MAX], FLOAT_MAX),
        ("ceil", [4503599627370495.5], 4503599627370496.0),
    ],
)
def test_the_edges_of_functions(name: str, arguments: list[Known], expected: Number | None) -> None:
    assert same(call(name, arguments), expected)


@examples(150)
@given(st.lists(numbers, min_size=2, max_size=5))
def test_least_and_greatest_are_the_ends_of_the_exact_order(values: list[Number]) -> None:
    by_fraction = sorted(values, key=Fraction)
    assert call("least", list(values)) == by_fraction[0]
    assert call("greatest", list(values)) == by_fraction[-1]
    assert any(same(call("least", list(values)), value) for value in values)


@examples(150)
@given(numbers)
def test_the_root_is_rounded_once(value: Number) -> None:
    with localcontext(prec=80, Emin=-2000, Emax=2000):
        exact = float(Decimal(float(value)).sqrt()) if value >= 0 else None
    assert same(call("sqrt", [value]), exact)


@examples(150)
@given(numbers)
def test_floor_and_ceil_are_exact(value: Number) -> None:
    kind = type(value)
    assert same(call("floor", [value]), kind(Fraction(value).__floor__()))
    assert same(call("ceil", [value]), kind(Fraction(value).__ceil__()))


@examples(150)
@given(numbers)
def test_abs_is_the_distance_to_zero(value: Number) -> None:
    exact = abs(Fraction(value))
    fits = isinstance(value, float) or exact <= INTEGER_MAX
    assert same(call("abs", [value]), type(value)(exact) if fits else None)


@given(st.integers(-9, 9), st.integers(0, 9))
def test_pow_of_small_integers_is_exact(base: int, exponent: int) -> None:
    assert same(call("pow", [base, exponent]), float(base**exponent))


@examples(150)
@given(numbers, numbers)
def test_pow_is_a_finite_float_or_unknown(base: Number, exponent: Number) -> None:
    result = call("pow", [base, exponent])
    assert result is None or (isinstance(result, float) and math.isfinite(result))


def series(first: Decimal, factor: Decimal, step: int) -> Decimal:
    """first - first*f/(s(s+1)) + ...: the alternating series of sine (step 2) and cosine (1)."""
    total = term = first
    while abs(term) > Decimal(10) ** -50:
        term = -term * factor / (step * (step + 1))
        total += term
        step += 2
    return total


@given(st.floats(-10, 10))
def test_sine_and_cosine_agree_with_their_series(angle: float) -> None:
    with localcontext(prec=70):
        exact = Decimal(angle)
        sine = float(series(exact, exact * exact, 2))
        cosine = float(series(Decimal(1), exact * exact, 1))
    assert call("sin", [angle]) == pytest.approx(sine, rel=4e-16, abs=1e-300)
    assert call("cos", [angle]) == pytest.approx(cosine, rel=4e-16, abs=1e-300)


# --- unknown ------------------------------------------------------------------------------------


@examples(150)
@given(st.data(), st.sampled_from(sorted(NUMERIC)))
def test_one_argument_that_is_no_number_makes_all_unknown(data: st.DataObject, name: str) -> None:
    _, fewest, most = NUMERIC[name]
    arguments: list[Known] = list(
        data.draw(st.lists(numbers, min_size=fewest, max_size=most or fewest + 2))
    )
    arguments[data.draw(st.integers(0, len(arguments) - 1))] = data.draw(no_numbers)
    assert call(name, arguments) is None


@examples(350)
@given(st.data(), st.sampled_from(sorted(NUMERIC)))
def test_a_function_of_numbers_never_fails_nor_leaves_the_numbers(
    data: st.DataObject, name: str
) -> None:
    _, fewest, most = NUMERIC[name]
    result = call(name, list(data.draw(st.lists(numbers, min_size=fewest, max_size=most or 4))))
    if isinstance(result, int):
        assert INTEGER_MIN <= result <= INTEGER_MAX
    else:
        assert result is None or (isinstance(result, float) and math.isfinite(result))


def test_the_functions_are_those_of_the_specification() -> None:
    expected = "abs least greatest sqrt pow sin cos floor ceil lower distance"
    assert set(NAMES) == set(expected.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ABC", "abc"),
        ("ÉÀ", "éà"),
        ("ΑΣ", "ας"),
        ("", ""),
        ("𐐀", "𐐨"),
        (None, None),
        (1, None),
        (True, None),
    ],
)
def test_lower(text: Known, expected: Known) -> None:
    assert call("lower", [text]) == expected


# --- distance -----------------------------------------------------------------------------------


def arc_sine(x: Decimal) -> Decimal:
    """By its series after halving the argument often enough for it to be short."""
    halvings = 0
    while abs(x) > Decimal("0.01"):
        x = x / ((1 + (1 - x * x).sqrt()) * 2).sqrt()  # sin(a/2) from sin(a)
        halvings += 1
    term = total = x
    n = 1
    while abs(term) > Decimal(10) ** -60:
        term = term * x * x * (2 * n - 1) / (2 * n)
        total += term / (2 * n + 1)
        n += 1
    return total * Decimal(2**halvings)


PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")


def law_of_cosines_m(lat_1: float, long_1: float, lat_2: float, long_2: float) -> float:
    """Metres between two places, in 60 digits; needs no help even for nearby places."""
    with localcontext(prec=75):
        phi_1, phi_2, turn = (
            Decimal(degrees) * PI / 180
            for degrees in (Decimal(lat_1), Decimal(lat_2), Decimal(long_2) - Decimal(long_1))
        )
        sines = [series(angle, angle * angle, 2) for angle in (phi_1, phi_2)]
        cosines = [series(Decimal(1), angle * angle, 1) for angle in (phi_1, phi_2, turn)]
        cosine = sines[0] * sines[1] + cosines[0] * cosines[1] * cosines[2]
        cosine = max(Decimal(-1), min(Decimal(1), cosine))
        angle = arc_sine((1 - cosine * cosine).sqrt())
        return float(Decimal(EARTH_RADIUS_M) * (angle if cosine >= 0 else PI - angle))


def metres(*places: Number) -> float:
    found = call("distance", list(places))
    assert isinstance(found, float)
    return found


ZAGREB, SPLIT = (45.8150, 15.9819), (43.5081, 16.4402)
LONDON, NEW_YORK = (51.5074, -0.1278), (40.7128, -74.0060)
SYDNEY, TOKYO = (-33.8688, 151.2093), (35.6762, 139.6503)
SUVA, APIA = (-18.1248, 178.4501), (-13.8333, -171.7667)


@pytest.mark.parametrize(
    ("here", "there", "about_km"),
    [
        pytest.param(ZAGREB, SPLIT, 259, id="Zagreb-Split"),
        pytest.param(LONDON, NEW_YORK, 5570, id="London-New York"),
        pytest.param(SYDNEY, TOKYO, 7823, id="Sydney-Tokyo, over the equator"),
        pytest.param(SUVA, APIA, 1144, id="Suva-Apia, over the date line"),
    ],
)
def test_known_pairs_of_cities(
    here: tuple[float, float], there: tuple[float, float], about_km: float
) -> None:
    assert metres(*here, *there) == pytest.approx(about_km * 1000, rel=5e-3)
    assert metres(*here, *there) == pytest.approx(law_of_cosines_m(*here, *there), rel=1e-14)


latitudes, longitudes = st.floats(-90, 90), st.floats(-180, 180)
places = st.tuples(latitudes, longitudes)


@examples(150)
@given(places, places)
def test_distance_agrees_with_another_formula_in_sixty_digits(
    here: tuple[float, float], there: tuple[float, float]
) -> None:
    # Degrees become radians with an error of an ulp or two (4e-16 of up to pi); near the
    # antipode the haversine is close to 1, where its last bit is an angle of 2e-8: 0.2 m.
    exact = law_of_cosines_m(*here, *there)
    far = exact > 0.999 * math.pi * EARTH_RADIUS_M
    assert abs(metres(*here, *there) - exact) <= (0.5 if far else 1e-12 * exact + 4e-8)


@examples(150)
@given(places, places)
def test_distance_is_symmetric_to_the_last_bit(
    here: tuple[float, float], there: tuple[float, float]
) -> None:
    assert metres(*here, *there) == metres(*there, *here)
    assert 0 <= metres(*here, *there) <= math.pi * EARTH_RADIUS_M * (1 + 1e-15)


@examples(150)
@given(places)
def test_the_same_place_is_exactly_zero_away(here: tuple[float, float]) -> None:
    assert metres(*here, *here) == 0.0


HALF_WAY_ROUND_M = math.pi * EARTH_RADIUS_M


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param((90, 0, -90, 0), HALF_WAY_ROUND_M, id="pole to pole"),
        pytest.param((90, 17, -90, -60), HALF_WAY_ROUND_M, id="pole to pole, any longitudes"),
        pytest.param((0, 0, 0, 180), HALF_WAY_ROUND_M, id="antipodes on the equator"),
        pytest.param((45, 10, -45, -170), HALF_WAY_ROUND_M, id="antipodes elsewhere"),
        pytest.param((0, 0, 0, 90), HALF_WAY_ROUND_M / 2, id="a quarter of the equator"),
        pytest.param((0, 0, 90, 123), HALF_WAY_ROUND_M / 2, id="equator to pole"),
        pytest.param((0, 0, 0, 1), HALF_WAY_ROUND_M / 180, id="one degree of longitude"),
        pytest.param((10, 5, 11, 5), HALF_WAY_ROUND_M / 180, id="one degree of latitude"),
        pytest.param((0, 179.5, 0, -179.5), HALF_WAY_ROUND_M / 180, id="over the date line"),
    ],
)
def test_distances_that_geometry_knows(arguments: tuple[float, ...], expected: float) -> None:
    assert metres(*arguments) == pytest.approx(expected, rel=3e-15)


def test_all_longitudes_meet_at_a_pole() -> None:
    assert metres(90, 0, 90, 120) < 1e-8


def test_the_radius_is_that_of_the_specification() -> None:
    assert functions.EARTH_RADIUS_M == 6_371_008.8


@pytest.mark.parametrize(
    "arguments", [(200, 0, -200, 10), (1e308, -1e308, 5, 1e300), (91, 0, 89, 0)]
)
def test_places_beyond_the_map_have_some_distance(arguments: tuple[float, ...]) -> None:
    assert 0 <= metres(*arguments) <= HALF_WAY_ROUND_M * (1 + 1e-15)
