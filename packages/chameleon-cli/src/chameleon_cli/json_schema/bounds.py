"""What attrs' own validators refuse, as keywords of JSON Schema; other functions say nothing."""

from __future__ import annotations

from typing import Any

from attrs import validators

Schema = dict[str, Any]

NOTHING: Schema = {"not": {}}
"""What no value fits."""

# attrs names the classes of its validators nowhere; one of each tells them.
_NUMBER: Any = type(validators.ge(0))
_OPTIONAL: Any = type(validators.optional(validators.ge(0)))
_AND: Any = type(validators.and_(validators.ge(0)))
_IN: Any = type(validators.in_(()))
_LONGER: Any = type(validators.min_len(0))
_SHORTER: Any = type(validators.max_len(0))
_EACH: Any = type(validators.deep_iterable(validators.ge(0)))

_COMPARED = {
    ">=": "minimum",
    ">": "exclusiveMinimum",
    "<=": "maximum",
    "<": "exclusiveMaximum",
}


def bounds_of(validator: Any) -> Schema:  # noqa: PLR0911 - one for each kind
    """The keywords that say what a validator takes.

    Those about numbers hold for numbers alone, as those about lengths for what has one, so that
    ``null`` and words beside them need no more.

    Args:
        validator: of a field: None, one of ``attrs.validators``, or any function.
    """
    if isinstance(validator, _NUMBER):
        return {_COMPARED[validator.compare_op]: validator.bound}
    if isinstance(validator, _IN):
        return {"enum": list(validator.options)}
    if isinstance(validator, _LONGER):
        return {"minLength": validator.min_length, "minItems": validator.min_length}
    if isinstance(validator, _SHORTER):
        return {"maxLength": validator.max_length, "maxItems": validator.max_length}
    if isinstance(validator, _EACH):
        inner = bounds_of(validator.member_validator)
        return {**bounds_of(validator.iterable_validator), **({"items": inner} if inner else {})}
    if isinstance(validator, _OPTIONAL):
        found = bounds_of(validator.validator)
        return {**found, "enum": [*found["enum"], None]} if "enum" in found else found
    if isinstance(validator, _AND):
        joined: Schema = {}
        for one in validator._validators:  # noqa: SLF001 - attrs gives them no other way
            joined |= bounds_of(one)
        return joined
    return {}
