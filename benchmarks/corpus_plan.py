"""What a corpus is once its file is read: cases, budgets, and which of them are held out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
import cattrs
from chameleon_core._errors import ConfigError
from chameleon_core._pipeline.annotations import parse_duration
from chameleon_core._words import did_you_mean
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

HELD_OUT_ONE_IN = 4
"""One case in so many is held out."""


@attrs.frozen(kw_only=True)
class Case:
    """One network in one form.

    Attributes:
        name: of the case.
        network: ``module:function`` of ``corpus_networks``.
        form: what the run is given: the torch function, or an ONNX file that torch exports of it.
        source: who wrote the network.
        family: what it is built of.
        task: what it is for.
        gflop: 1e9 operations of its convolutions and matrix products, an addition and a
            multiplication counted apart.
        held_out: whether it is left alone during development.
    """

    name: str
    network: str
    form: Literal["torch", "onnx"] = "torch"
    source: Literal["torchvision", "transformers", "written here"]
    family: str
    task: str
    gflop: float
    held_out: bool = False


@attrs.frozen(kw_only=True)
class Spending:
    """What a run may spend on tuning; a limit that is None does not hold.

    Attributes:
        measurements: configurations of all operators together.
        wall_time: as a duration, such as ``2m``.
    """

    measurements: int | None = None
    wall_time: str | None = None


@attrs.frozen(kw_only=True)
class Large:
    """What holds instead for networks of much work.

    Attributes:
        gflop: from so much work on.
        wall_time: as a duration.
    """

    gflop: float
    wall_time: str


@attrs.frozen(kw_only=True)
class Plan:
    """A corpus.

    Attributes:
        title: of the table.
        target: of every pipeline.
        budget: of every network.
        large: what holds for those of much work.
        deadline: after which a run is killed, as a duration.
        seen: functions that had been looked at before anything was held out.
        cases: the networks.
    """

    title: str
    target: str
    budget: Spending
    large: Large
    deadline: str
    seen: tuple[str, ...]
    cases: tuple[Case, ...]

    def budget_of(self, case: Case) -> dict[str, Any]:
        """The ``budget`` section of a case's pipeline."""
        given = {"measurements": self.budget.measurements, "wall_time": self.budget.wall_time}
        if case.gflop > self.large.gflop and self.budget.wall_time is not None:
            given["wall_time"] = self.large.wall_time
        return {**{key: value for key, value in given.items() if value}, "scope": "network"}

    @property
    def deadline_seconds(self) -> float:
        """The deadline in seconds."""
        return parse_duration(self.deadline)


def read_plan(file: Path) -> Plan:
    """The corpus of a file.

    Raises:
        ConfigError: it is no corpus; says what is wrong.
    """
    converter = cattrs.Converter(forbid_extra_keys=True)
    try:
        document = YAML(typ="safe").load(file.read_text(encoding="utf-8"))
        plan = converter.structure(document, Plan)
    except (OSError, YAMLError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", hint="Name a YAML file.") from error
    except (cattrs.BaseValidationError, KeyError, TypeError, ValueError) as error:
        told = "; ".join(cattrs.transform_error(error))
        raise ConfigError(f"{file} is no corpus: {told}", hint="See benchmarks/corpus.yaml.") from (
            error
        )
    names = [case.name for case in plan.cases]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{file} has {', '.join(twice)} twice", hint="Names are unique.")
    return plan


def drawn(network: str) -> bool:
    """Whether a network is one that chance holds out.

    The draw depends on the function's name alone, so that another case changes it for no other
    one, and a network is held out in all of its forms or in none.

    Args:
        network: ``module:function``.
    """
    function = network.partition(":")[2]
    return hashlib.sha256(f"corpus:{function}".encode()).digest()[0] % HELD_OUT_ONE_IN == 0


def chosen(
    plan: Plan, *, only: Sequence[str] = (), held_out: bool = False, every: bool = False
) -> list[Case]:
    """The cases that a command is about.

    Args:
        plan: the corpus.
        only: names; nothing else counts where there are any.
        held_out: those held out, rather than those developed with.
        every: both.

    Raises:
        ConfigError: there is no case of a name.
    """
    by_name: Mapping[str, Case] = {case.name: case for case in plan.cases}
    unknown = [name for name in only if name not in by_name]
    if unknown:
        raise ConfigError(
            f"the corpus has no {unknown[0]!r}{did_you_mean(unknown[0], by_name)}",
            hint="`--list` shows its networks.",
        )
    if only:
        return [by_name[name] for name in only]
    return [case for case in plan.cases if every or case.held_out == held_out]
