"""What a value must be, in plain words: one fault of a pydantic ValidationError enters, half a sentence leaves.

No key and no value is named here; who read them knows how they are called where they were written.
"""

from collections.abc import Mapping
from typing import Any

_WORDS: Mapping[str, str] = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be above {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be below {lt}",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "string_pattern_mismatch": "must be of the form {pattern}",
    "enum": "must be {expected}",
    "literal_error": "must be {expected}",
    "dict_type": "must be keys with values",
    "model_type": "must be keys with values",
    "model_attributes_type": "must be keys with values",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "frozen_set_type": "must be a list",
    "value_error": "{error}",
}


def must_be(fault: Mapping[str, Any]) -> str:
    """What the value of this entry of `ValidationError.errors()` must be; pydantic's own words for a rare kind."""
    words = _WORDS.get(fault["type"])
    return str(fault["msg"]) if words is None else words.format_map(fault.get("ctx", {}))
