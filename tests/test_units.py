"""Quantities, against an independent evaluation; amounts that only whole numbers may be."""

from decimal import Context, Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vgpu.errors import MalformedObject
from vgpu.units import MAX_COUNT, parse_count, parse_quantity, parse_whole

POWERS_OF_TWO = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
POWERS_OF_TEN = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
EXACT = Context(prec=400)

digits = st.text("0123456789", min_size=1, max_size=18)
numbers = st.tuples(digits, digits).flatmap(
    lambda pair: st.sampled_from([pair[0], f"{pair[0]}.", f".{pair[1]}", f"{pair[0]}.{pair[1]}"])
)
signs = st.sampled_from(["", "+", "-"])


@given(signs, numbers, st.sampled_from(POWERS_OF_TWO))
def test_a_binary_suffix_multiplies_by_a_power_of_1024(sign: str, number: str, suffix: str) -> None:
    want = EXACT.multiply(Decimal(sign + number), Decimal(1 << (10 * (POWERS_OF_TWO.index(suffix) + 1))))
    assert parse_quantity(sign + number + suffix) == Fraction(want)


@given(signs, numbers, st.sampled_from(sorted(POWERS_OF_TEN)))
def test_a_decimal_suffix_shifts_by_a_power_of_1000(sign: str, number: str, suffix: str) -> None:
    want = Decimal(sign + number).scaleb(POWERS_OF_TEN[suffix], EXACT)
    assert parse_quantity(sign + number + suffix) == Fraction(want)


@given(signs, numbers, st.sampled_from("eE"), st.integers(-64, 64), st.booleans())
def test_an_exponent_shifts_by_powers_of_ten(sign: str, number: str, e: str, exponent: int, plus: bool) -> None:
    text = f"{sign}{number}{e}{'+' if plus and exponent >= 0 else ''}{exponent}"
    assert parse_quantity(text) == Fraction(Decimal(sign + number).scaleb(exponent, EXACT))


@given(st.integers(-(2**63), 2**63))
def test_a_whole_number_is_itself_as_text_and_as_number(number: int) -> None:
    assert parse_quantity(number) == parse_quantity(str(number)) == number


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("1k", 1000),
        ("10k", 10_000),
        ("1M", 10**6),
        ("1E", 10**18),
        ("1E3", 1000),
        ("1Ei", 2**60),
        ("1e-3", Fraction(1, 1000)),
        ("1500m", Fraction(3, 2)),
        ("0.5Ki", 512),
        ("-0", 0),
    ],
)
def test_a_canonical_form_is_read_as_the_api_server_means_it(text: str, want: Fraction | int) -> None:
    assert parse_quantity(text) == want


WRONG = {
    "empty": "", "space before": " 1", "space after": "1 ", "line end": "1\n", "not a number": "nan",
    "infinite": "inf", "signed infinite": "-inf", "no exponent": "1e", "no exponent E+": "1E+",
    "suffix only": "Ki", "point only": ".",
    "sign only": "-", "two signs": "--1", "two points": "1.2.3", "two suffixes": "1kk",
    "exponent and suffix": "1e3Ki", "unknown suffix": "1K", "unknown suffix i": "1ki", "thousands": "1,000",
    "underscore": "1_000", "hexadecimal": "0x10", "fraction": "1/2", "exponent with point": "1e1.5",
    "digits of another script": "٣", "superscript": "²", "minus sign of typography": "−1",
    "exponent bomb": "1e999999999", "small exponent bomb": "1e-999999999", "too long": "1" * 65,
    "absurdly long": "9" * 1_000_000, "NUL": "1\0",
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG.keys())
def test_anything_else_is_malformed_and_the_message_stays_short(text: str) -> None:
    with pytest.raises(MalformedObject) as caught:
        parse_quantity(text)
    assert 10 < len(str(caught.value)) < 300


@pytest.mark.parametrize("value", [None, True, 1.5, 10**1000, [], b"1"])
def test_what_is_neither_text_nor_a_countable_number_is_malformed(value: object) -> None:
    with pytest.raises(MalformedObject):
        parse_quantity(value)  # type: ignore[arg-type]


@given(st.one_of(st.text(), st.text("+-.0123456789eEKMGikmnu", max_size=12)))
@example("1e" + "9" * 60)
def test_no_text_raises_anything_but_malformed(text: str) -> None:
    try:
        value = parse_quantity(text)
    except MalformedObject:
        return
    assert isinstance(value, Fraction)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("1.5", "'1.5' is not a whole number"),
        ("1m", "'1m' is not a whole number"),
        (str(MAX_COUNT + 1), "beyond what can be counted"),
        ("-9E", "beyond what can be counted"),
        ("x", "no quantity"),
    ],
)
def test_a_whole_amount_says_what_is_wrong(text: str, want: str) -> None:
    with pytest.raises(MalformedObject, match=want):
        parse_whole(text)


def test_a_count_is_not_negative() -> None:
    with pytest.raises(MalformedObject, match="'-1k' is negative"):
        parse_count("-1k")
    assert (parse_whole("-1k"), parse_count("2000m"), parse_count(str(MAX_COUNT))) == (-1000, 2, MAX_COUNT)
