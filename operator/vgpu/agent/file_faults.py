"""What is wrong with a file that a person wrote, in words: which key, what it holds, what is allowed there.

A pydantic error and the model of the whole file enter, one text leaves. No file is read here.
"""

import reprlib
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from vgpu.wrong_value import must_be

SHOWN_CHARACTERS = 80
NO_YAML = (yaml.YAMLError, ValueError, RecursionError)
"""What reading a text as YAML raises: also for bytes, dates and numbers that are none, and for endless nesting."""


def in_words(error: ValidationError, model: type[BaseModel]) -> str:
    """Every fault of `error`, which arose from reading `model`."""
    return "; ".join(_faults(error, model))


def _faults(error: ValidationError, model: type[BaseModel]) -> Iterator[str]:
    for fault in error.errors(include_url=False):
        key = ".".join(map(str, fault["loc"])) or "entry"
        if fault["type"] == "extra_forbidden":
            yield f"{key}: unknown key; known are {', '.join(_known(model, fault['loc'][:-1]))}"
        elif fault["type"] == "missing":
            yield f"{key}: is needed"
        else:
            yield f"{key}: {must_be(fault)}, got {_shown(fault['input'])!r}"


def _shown(value: Any) -> str:
    """A list that names itself again and again would be endless."""
    text = reprlib.repr(value) if isinstance(value, list | dict) else str(value)
    return text[:SHOWN_CHARACTERS]


def _known(model: type[BaseModel], place: Sequence[int | str]) -> list[str]:
    """The keys of the part of the file at `place`, which names fields, positions, and of a union the branch."""
    models = [model]
    for step in place:
        if not isinstance(step, str):
            continue
        inner = [part for found in models if step in _fields(found) for part in _models_in(_fields(found)[step])]
        models = inner or [found for found in models if found.__name__ in step]
    return sorted({name for found in models for name in _fields(found)})


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    """Key in the file, and the type of what it holds."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models in a type such as `Model | tuple[Other, ...] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in get_args(annotation) for found in _models_in(part)]
