"""Reads a plan of a collection: networks, numbers of tasks and measurements, and searches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from chameleon_core.api import DocumentReader, Registry, ResolvedPipeline, words
from chameleon_core.plugin_api import ModelChoice, Node

_SEARCH_KEYS = ("preset", "explorer", "cost_model", "sampler", "synthesizer")
"""The keys of a pipeline that a search of a plan may have."""

_SHARED_KEYS = ("target", "space", "runner")
"""The keys of a pipeline that a plan sets for all searches."""

_CHANGEABLE_KEYS = frozenset({"tasks", "measurements", "runner"})
"""The keys that may change when a collection is continued."""

_DEFAULT_SEARCHES: tuple[dict[str, Any], ...] = ({"preset": "default"},)


@attrs.frozen(kw_only=True)
class Amounts:
    """The numbers of a plan, such as the numbers of tasks and measurements.

    Attributes:
        batch_size: the number of candidates per batch of a task. Large batches take less time.
        tasks_per_run: the number of tasks of one run, whose candidates become one part (file).
        most_gflop: the largest allowed size of a task, in 1e9 operations of one evaluation.
        seed: the seed of the tasks and of the searches.
    """

    tasks: int = attrs.field(default=300, validator=attrs.validators.ge(1))
    measurements: int = attrs.field(default=140, validator=attrs.validators.ge(1))
    batch_size: int = attrs.field(default=20, validator=attrs.validators.ge(1))
    tasks_per_run: int = attrs.field(default=10, validator=attrs.validators.ge(1))
    most_gflop: float = attrs.field(default=2.0, validator=attrs.validators.gt(0))
    seed: int = attrs.field(default=0, validator=attrs.validators.ge(0))


_AMOUNTS = tuple(field.name for field in attrs.fields(Amounts))
KEYS = (
    *_SHARED_KEYS,
    "networks",
    "precision",
    "operators",
    "hold_out",
    *_AMOUNTS,
    "searches",
    "output",
)
"""All keys of a plan."""


@attrs.frozen(kw_only=True)
class Plan:
    """A plan that says which tasks are drawn and measured for a data set, and how.

    Attributes:
        networks: the networks whose operators the collected tasks resemble.
        operators: the only kinds of operators that are collected; empty for all kinds.
        hold_out: networks whose tasks, and similar ones, must not be collected.
        searches: pipelines with the stages of a search; the runs use them in turn.
        document: the plan with its defaults and without its output, as JSON values.
    """

    networks: tuple[ModelChoice, ...]
    operators: Sequence[str]
    hold_out: tuple[ModelChoice, ...]
    amounts: Amounts
    searches: tuple[ResolvedPipeline, ...]
    output: Path
    document: Mapping[str, Any]


def differences(plan: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """The keys in which two plans differ, except keys that may change during a collection."""
    return [key for key in KEYS if key not in _CHANGEABLE_KEYS and plan.get(key) != other.get(key)]


def read_plan(
    path: str | Path, overrides: Iterable[str] = (), *, registry: Registry | None = None
) -> Plan:
    """Read a plan."""
    wanted = "a plan must be a mapping with 'networks:' and 'output:'"
    return _PlanReader(path, overrides, registry, keys=KEYS, wanted=wanted).plan()


class _PlanReader(DocumentReader):
    """Checks a plan, and collects the problems of all its parts."""

    def plan(self) -> Plan:
        amounts = self._amounts()
        output = self._output()
        precision = self.root.get("precision")
        networks = self._networks("networks", precision)
        if not networks:
            self.say(self.root.mark, "a plan needs 'networks', a list of models to learn from")
        operators = self.value(self.root, "operators", list[str], [])
        hold_out = self._networks("hold_out")
        searches = self._searches(amounts)
        self.check()
        return Plan(
            networks=networks,
            operators=operators or (),
            hold_out=hold_out,
            amounts=amounts,
            searches=searches,
            output=output,
            document={
                **{key: searches[0].document[key] for key in _SHARED_KEYS},
                "networks": [network.model.to_json() for network in networks],
                **({} if precision is None else {"precision": precision.plain()}),
                **({"operators": operators} if operators else {}),
                "hold_out": [entry.model.to_json() for entry in hold_out],
                **attrs.asdict(amounts),
                "searches": [
                    {key: search.document[key] for key in _SEARCH_KEYS if key in search.document}
                    for search in searches
                ],
            },
        )

    def _amounts(self) -> Amounts:
        with self.collecting():
            amounts: Amounts = self.structurer.make(self.root.only(_AMOUNTS), Amounts, "the plan")
            return amounts
        return Amounts()

    def _output(self) -> Path:
        text: str | None = self.value(self.root, "output", str)
        if text is None or not text.strip():
            self.say(self.root.mark, "a plan needs 'output', the data set's folder")
        return Path.cwd() / Path(text or ".").expanduser()

    def _networks(self, key: str, precision: Node | None = None) -> tuple[ModelChoice, ...]:
        networks = []
        for entry in self._sequence(self.root.get(key), f"'{key}' is a list of models"):
            sections = {"model": entry, **({} if precision is None else {"precision": precision})}
            with self.collecting():
                networks.append(self.model_choice(*self._shared(), entry.with_value(sections)))
        return tuple(networks)

    def _searches(self, amounts: Amounts) -> tuple[ResolvedPipeline, ...]:
        node = self.root.get("searches")
        entries: Sequence[Node]
        if node is None or node.value in (None, ()):
            entries = [self.root.with_value(search) for search in _DEFAULT_SEARCHES]
        else:
            entries = self._sequence(
                node, "'searches' is a list of mappings with stages of a search"
            )
        searches = []
        for entry in entries:
            for key, item in entry.items():
                if key not in _SEARCH_KEYS:
                    guess = words.did_you_mean(key, _SEARCH_KEYS)
                    self.say(item.key_mark, f"a search has no key '{key}'{guess}")
            defaults = {
                "model": {"tasks": "tasks.json"},
                "baselines": [],
                "scheduler": "round-robin",
                "seed": amounts.seed,
                "budget": {
                    "measurements": amounts.measurements,
                    "batch_size": amounts.batch_size,
                    "scope": "task",
                },
            }
            search = (entry.only(_SEARCH_KEYS), entry.with_value(defaults))
            with self.collecting():
                searches.append(self.pipeline(*self._shared(), *search))
        return tuple(searches)

    def _sequence(self, node: Node | None, what: str) -> Sequence[Node]:
        if node is None or node.value is None:
            return ()
        if not node.is_sequence:
            self.say(node.mark, f"{what}, and here is {node.in_words()}")
            return ()
        entries: Sequence[Node] = node.value
        return entries

    def _shared(self) -> tuple[Node, Node]:
        """The keys that the plan sets for all pipelines, and their default values."""
        return self.root.with_value({"target": "native", "output": "run"}), self.root.only(
            _SHARED_KEYS
        )
