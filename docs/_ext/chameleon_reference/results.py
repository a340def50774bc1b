"""The page of results: every key of ``run --json`` and ``best.json``, as the classes say it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import attrs
from chameleon_core._loop.end.result import OperatorResult, RunResult, VariantResult
from chameleon_core._measurement import Spending
from chameleon_core._network_result import NetworkResult

from chameleon_reference.markdown import cell, section, table

_ENTRY = re.compile(r"^    (\w+): (.*?)(?=^    \w|^\S|\Z)", re.MULTILINE | re.DOTALL)

_SAID_BY = {"spent_seconds": "spending", "run": "folder"}
"""Keys that have another name than the attribute that they are."""

_SUMS = {"wall_seconds": "the sum of all that ``spent_seconds`` divides."}
"""Keys that are no attribute."""

_PARTS = {
    "A rival in another precision": NetworkResult.Rival,
    "A kernel of the network": NetworkResult.Kernel,
    "An operator that was never timed": NetworkResult.Unmeasured,
    "A choice of dtypes": NetworkResult.FrontPoint,
    "A footprint": NetworkResult.Footprint,
    "The layout": NetworkResult.Layout,
    "Agreement in half precision": NetworkResult.OwnPrecision,
}
"""Parts of a network's result."""


def results() -> dict[str, dict[str, str]]:
    """The keys of each kind of object with what they hold."""
    operator = OperatorResult(name="", task={"flop": 0.0}, space="", fingerprint="")
    run = RunResult(folder=Path(), seconds=0.0, operators=())
    return {
        "The run": _told(RunResult, [*run.to_json(), "slower"]),
        "An operator": _told(OperatorResult, [*operator.to_json(), "recorded", "predicted"]),
        "A variant of an operator's comparison": _told(VariantResult, _fields(VariantResult)),
        "An operator's wall-clock time": _told(Spending, _fields(Spending)),
        "The network": _told(NetworkResult, [*_fields(NetworkResult), "ratio"]),
        **{title: _told(kind, _fields(kind)) for title, kind in _PARTS.items()},
        "A bucket of shapes": _told(
            NetworkResult.Bucket, [*_fields(NetworkResult.Bucket), "ratio"]
        ),
    }


def results_page() -> str:
    """All of them."""
    parts = [
        section(
            "Results",
            "The keys of the JSON object that `chameleon run --json` prints, and that the file "
            "`best.json` of the run folder holds. Times are in seconds. A value is `null` if it "
            "does not apply; keys about networks may be missing.",
            level=1,
        )
    ]
    for title, keys in results().items():
        rows = [[f"`{key}`", cell(about.replace("``", "`"))] for key, about in keys.items()]
        parts.append(section(title, table(["key", "meaning"], rows)))
    return "\n".join(parts)


def _fields(kind: type) -> list[str]:
    return [field.name for field in attrs.fields(kind)]


def _told(kind: type, keys: list[str]) -> dict[str, str]:
    """What a class says of keys: in its docstring, or in that of a property."""
    said = dict(_SUMS)
    for base in reversed(kind.__mro__[:-1]):
        said |= dict(_ENTRY.findall(inspect.getdoc(base) or ""))
    for key in keys:
        member = getattr(kind, key, None)
        if isinstance(member, property) and member.__doc__:
            said.setdefault(key, member.__doc__)
    return {key: said.get(_SAID_BY.get(key, key), said.get(key, "")) for key in dict.fromkeys(keys)}
