"""Detects tasks that are out of distribution: unlike those that a predictor was trained on.

The measures of a task are its distance to the nearest trained task and its predicted uncertainty.
It is out of distribution if one of them is above that of 99 % of held-out tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, Self

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_one_shot._tokens.configuration import FixedToken, TaskTokens
from chameleon_one_shot._tokens.vocabulary import Vocabulary

_SAME_DEVICE = float(np.log2(1.25))
"""The largest difference between two measurements of one machine's rates, as a logarithm."""


@attrs.frozen(kw_only=True)
class Limits:
    """The limits beyond which a task or a device is out of distribution.

    Attributes:
        distance: the largest distance of a task to the nearest trained task of its operator.
        device: the largest distance of a device to the nearest trained device.
        deviation: the largest mean predicted standard deviation over a task's configurations.
    """

    distance: float
    device: float
    deviation: float


@attrs.frozen(kw_only=True, eq=False)
class OODDetector:
    """The tasks and devices that a predictor was trained on, to detect tasks unlike them.

    Attributes:
        tasks: the standardised numbers of the trained tasks, shape (tasks, numbers).
        devices: the numbers of the trained devices as logarithms, shape (devices, numbers).
    """

    tasks: NDArray[np.float64]
    task_columns: tuple[str, ...]
    devices: NDArray[np.float64]
    device_columns: tuple[str, ...]
    limits: Limits

    @classmethod
    def fit(
        cls,
        trained: Sequence[TaskTokens],
        held_out: Sequence[TaskTokens],
        deviations: Sequence[float],
        vocabulary: Vocabulary,
    ) -> Self:
        """The detector for trained tasks, with limits from held-out tasks."""
        tasks, task_columns = _table([_standardised(example, vocabulary) for example in trained])
        devices, device_columns = _table([_device(example) for example in trained])
        devices = np.unique(devices, axis=0)
        detector = cls(
            tasks=np.unique(tasks, axis=0),
            task_columns=task_columns,
            devices=devices,
            device_columns=device_columns,
            limits=Limits(distance=np.inf, device=np.inf, deviation=np.inf),
        )
        distances = [detector._distance(example, vocabulary) for example in held_out]
        finite = [distance for distance in distances if np.isfinite(distance)]
        gaps = [
            np.abs(np.delete(devices, row, axis=0) - devices[row]).max(axis=1).min()
            for row in range(len(devices))
            if len(devices) > 1
        ]
        return attrs.evolve(
            detector,
            limits=Limits(
                distance=_upper_bound(finite),
                device=max([_SAME_DEVICE, *gaps]),
                deviation=_upper_bound(deviations),
            ),
        )

    def check_task(self, tokens: TaskTokens, vocabulary: Vocabulary) -> str | None:
        """Why a task is out of distribution; None if it is not."""
        task = tokens.fixed[0]
        operator = next(name for name in task.columns if name.startswith("operator="))
        if operator not in self.task_columns:
            return f"no task of the training data has {operator.replace('=', ' ')}"
        # Kernels of another dtype have other instructions.
        for name in task.columns:
            _, dtype_is, dtype = name.partition(".dtype=")
            if dtype_is and name not in self.task_columns:
                return f"no task of the training data has {operator.replace('=', ' ')} in {dtype}"
        knobs = {knob.name for knob in tokens.knobs}
        if knobs and knobs <= set(vocabulary.unknown(tokens)):
            return f"none of its knobs ({in_quotes(sorted(knobs))}) is in the training data"
        distance = self._distance(tokens, vocabulary)
        if distance > self.limits.distance:
            return (
                f"its sizes differ by {distance:.2f} from the most similar training task; the "
                f"limit, learned from held-out tasks, is {self.limits.distance:.2f}"
            )
        return None

    def check_uncertainty(self, deviation: float) -> str | None:
        """Why a predictor is too uncertain about a task; None if it is certain enough."""
        limit = self.limits.deviation
        if deviation <= limit * (1.0 + 1e-9):  # a tolerance for rounding errors
            return None
        return (
            f"its mean predicted standard deviation is {deviation:.2f}; the limit, learned from "
            f"held-out tasks, is {limit:.2f}"
        )

    def _distance(self, tokens: TaskTokens, vocabulary: Vocabulary) -> float:
        """The root mean square difference to the nearest trained task of the same operator."""
        own = _standardised(tokens, vocabulary)
        row = np.array([own.get(name, 0.0) for name in self.task_columns])
        operator_columns = [
            at for at, name in enumerate(self.task_columns) if name.startswith("operator=")
        ]
        same = (self.tasks[:, operator_columns] == row[operator_columns]).all(axis=1)
        if not same.any():
            return float("inf")
        differences = (self.tasks[same] - row) ** 2
        return float(np.sqrt(differences.mean(axis=1)).min())

    def check_device(self, tokens: TaskTokens) -> str | None:
        """Why a device is out of distribution; None if it is not."""
        new = sorted(set(_device(tokens)) - set(self.device_columns))
        differences = self._device_differences(tokens)
        nearest = differences[self._nearest(tokens)]
        gap = float(nearest.max(initial=0.0))
        if not new and gap <= self.limits.device:
            return None
        columns = new or [self.device_columns[int(nearest.argmax())]]
        return f"the device differs from every one in the training data: {in_quotes(columns)}"

    def nearest_device(self, tokens: TaskTokens) -> FixedToken:
        """The trained device that is most similar to a task's device."""
        values = self.devices[self._nearest(tokens)]
        # Zeros stand for missing numbers.
        present = np.flatnonzero(values)
        return attrs.evolve(
            tokens.fixed[1],
            columns=tuple(self.device_columns[at] for at in present),
            values=values[present].astype(np.float32),
        )

    def _nearest(self, tokens: TaskTokens) -> int:
        return int(self._device_differences(tokens).max(axis=1, initial=0.0).argmin())

    def _device_differences(self, tokens: TaskTokens) -> NDArray[np.float64]:
        """The absolute difference of each trained device from a task's device, number by number."""
        device = _device(tokens)
        return np.abs(self.devices - [device.get(name, 0.0) for name in self.device_columns])

    def to_json(self) -> dict[str, Any]:
        """The attributes as JSON values; ``of_json`` is the inverse."""
        return {
            "tasks": np.round(self.tasks, 4).tolist(),
            "task_columns": list(self.task_columns),
            "devices": np.round(self.devices, 4).tolist(),
            "device_columns": list(self.device_columns),
            "limits": attrs.asdict(self.limits),
        }

    @classmethod
    def of_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            tasks=np.array(value["tasks"], np.float64),
            task_columns=tuple(value["task_columns"]),
            devices=np.array(value["devices"], np.float64),
            device_columns=tuple(value["device_columns"]),
            limits=Limits(**value["limits"]),
        )


def _upper_bound(values: Sequence[float]) -> float:
    """The estimated limit below which 99 % of further values are, if values are normal."""
    count = len(values)
    if count < 2:  # noqa: PLR2004
        return float("inf")
    spread = float(np.std(values, ddof=1)) * float(np.sqrt(1.0 + 1.0 / count))
    return max(float(np.mean(values)) + _students_t(count - 1) * spread, *values)


def _students_t(freedom: int) -> float:
    """The 0.99 quantile of Student's t (Abramowitz and Stegun 1964, formula 26.7.5)."""
    z = NormalDist().inv_cdf(0.99)
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def _standardised(tokens: TaskTokens, vocabulary: Vocabulary) -> dict[str, float]:
    task = tokens.fixed[0]
    values = vocabulary.standardise(task.columns, task.values)
    return dict(zip(task.columns, values.tolist(), strict=True))


def _device(tokens: TaskTokens) -> dict[str, float]:
    device = tokens.fixed[1]
    return dict(zip(device.columns, device.values.tolist(), strict=True))


def _table(rows: Sequence[Mapping[str, float]]) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    names = tuple(sorted({name for row in rows for name in row}))
    return np.array([[row.get(name, 0.0) for name in names] for row in rows]), names


def in_quotes(names: Sequence[str], most: int = 4) -> str:
    """The first names in quotes, and the number of further names."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more
