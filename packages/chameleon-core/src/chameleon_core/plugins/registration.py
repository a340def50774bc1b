"""What a hook spec says about the kind of plugin that it registers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar, get_args, get_type_hints

import attrs
import pluggy

PROJECT = "chameleon"
hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)

Hook = TypeVar("Hook", bound=Callable[..., Iterable[Any]])

_PREFIX = f"{PROJECT}_"
_KIND = "kind_of_plugin"


@attrs.frozen(kw_only=True)
class Kind:
    """One kind of plugin.

    Attributes:
        name: the plural, as in ``chameleon plugins`` and ``chameleon_<name>``.
        noun: the singular, for sentences.
        record: the class of its records.
        takes_context: whether its factory is called with a context beside its options.
        contract: ``"module:Class"``, the abstract class whose methods it must have, or None.
        distribution: the first-party distribution that brings some, for install hints.
        unique: whether a name belongs to one distribution alone, because records of measurements
            hold it; the first-party distribution's names are its own.
        conformance: ``"module:Class"``, the suite that checks such a plugin.
    """

    name: str
    noun: str
    record: type
    takes_context: bool = False
    contract: str | None = None
    distribution: str
    unique: bool = False
    conformance: str

    @property
    def hook(self) -> str:
        """Name of the registration hook."""
        return f"{_PREFIX}{self.name}"


def registers(
    *,
    distribution: str,
    conformance: str,
    contract: str | None = None,
    noun: str = "",
    takes_context: bool = False,
    unique: bool = False,
) -> Callable[[Hook], Hook]:
    """Make a method the hook spec of a kind: ``chameleon_<name>``, annotated with its records.

    Args:
        distribution: see :class:`Kind`, as all below.
        conformance: a suite.
        contract: an abstract class.
        noun: where it is another one than the name says.
        takes_context: whether factories take a context.
        unique: whether names are.
    """

    def mark(hook: Hook) -> Hook:
        name = hook.__name__.removeprefix(_PREFIX)
        (record,) = get_args(get_type_hints(hook)["return"])
        kind = Kind(
            name=name,
            noun=noun or name.replace("_", " ").removesuffix("s"),
            record=record,
            takes_context=takes_context,
            contract=contract,
            distribution=distribution,
            unique=unique,
            conformance=conformance,
        )
        setattr(hook, _KIND, kind)
        return hookspec(hook)

    return mark


def kinds_of(specs: type) -> dict[str, Kind]:
    """The kinds that the hook specs of a class register, by name, in their order.

    Args:
        specs: a class; the specs of those that it is derived from come before its own.
    """
    found = [spec for one in reversed(specs.__mro__) for spec in vars(one).values()]
    kinds = [getattr(spec, _KIND) for spec in found if hasattr(spec, _KIND)]
    return {kind.name: kind for kind in kinds}
