"""What every section of a configuration is, and how a value that cannot be used is refused."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from fedlens.foundation.errors import WrongUse

LEAST_NOISE = 1e-6
"""The least noise multiplier above 0."""


class ConfigError(WrongUse):
    """A setting that cannot be used; the message names it, its value and the fix."""


class Section(BaseModel):
    """A frozen table of settings: unknown keys, wrong types and infinities are refused.

    A setting's docstring is its text in the reference.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        validate_default=True,
    )


def _a_noise_multiplier(value: float) -> float:
    require_valid(value == 0 or value >= LEAST_NOISE, f"give a number ≥ {LEAST_NOISE:g}, or 0")
    return value


Count = Annotated[int, Field(gt=0)]
NotNegativeCount = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Probability = Annotated[float, Field(gt=0, le=1)]
NoiseMultiplier = Annotated[float, Field(ge=0), AfterValidator(_a_noise_multiplier)]


def require(holds: bool, name: str, value: object, fix: str) -> None:
    """Refuse a setting for what another one is.

    Raises:
        ConfigError: ``holds`` is False.
    """
    if not holds:
        raise ConfigError(f"{name} = {value!r} cannot be used: {fix}")


def require_valid(holds: bool, fix: str) -> None:
    """Refuse the value that is being checked, with what to give in its place."""
    if not holds:
        raise ValueError(fix)


def refusal(error: ValidationError, known: Iterable[str]) -> ConfigError:
    """The first thing that a validation found, as one line that a person can act on.

    Args:
        error: of the whole configuration, so that places in it are whole keys.
        known: all keys there are, to guess what an unknown one was to be.
    """
    found = error.errors()[0]
    cause = found.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        # itself, raised again, it and the validation would hold each other, which pydantic's part
        # in Rust hides from Python's collector: 20 kB a refusal would never be given back
        return ConfigError(str(cause))
    key = ".".join(str(part) for part in found["loc"] if part != "[key]")
    if found["type"] == "extra_forbidden":
        return ConfigError(f"unknown setting {key!r}{_nearest(key, known)}")
    if found["type"] == "missing":
        return ConfigError(f"{key} is missing: give it")
    fix = _fix(found["type"], found.get("ctx", {}), found["msg"])
    table = isinstance(found["input"], Mapping | BaseModel)
    value = "" if table else f" = {found['input']!r}"
    return ConfigError(f"{key}{value} cannot be used: {fix}")


_FIXES = {
    "greater_than": "give a number above {gt}",
    "greater_than_equal": "give a number ≥ {ge}",
    "less_than": "give a number below {lt}",
    "less_than_equal": "give a number of {le} at most",
    "literal_error": "choose one of {expected}",
    "finite_number": "give a finite number",
    "int_type": "give a value of type int",
    "float_type": "give a value of type float",
    "string_type": "give a value of type str",
    "bool_type": "give a value of type bool",
    "string_pattern_mismatch": "give a name of small letters, digits and '_'",
    "model_type": "give a table of settings",
    "model_attributes_type": "give a table of settings",
    "dict_type": "give a table of settings",
}


def _fix(kind: str, context: dict[str, Any], message: str) -> str:
    if kind == "value_error":
        return str(context["error"])
    return _FIXES.get(kind, message).format(**context)


def _nearest(key: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(key, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else "; see `fedlens simulate --help`"
