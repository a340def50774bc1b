"""Any function made small over a design space, in one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from chameleon_core.api.checks import a_space, takes_knobs, whole_number
from chameleon_core.api.measurements import Measurements, Trial
from chameleon_core.api.tuner import Tuner
from chameleon_core.space import DesignSpace


@attrs.frozen(kw_only=True)
class Minimum:
    """What ``minimize`` found.

    Attributes:
        best: the best configuration, or None where none succeeded.
        measurements: everything that was evaluated.
    """

    best: Trial | None
    measurements: Measurements


def minimize(
    function: Callable[..., Any], space: DesignSpace, *, budget: int, **tuner: Any
) -> Minimum:
    """Find the configuration for which a function's value is the smallest.

    The function is called in this process, one configuration after another; what hangs or crashes
    the process is not caught. It ends before the budget is spent where the space has no more, or
    where a callback returns ``STOP``.

    Args:
        function: takes knob values by their names and returns a number above 0, such as seconds, or
            whatever else ``Tuner.tell`` takes; an exception is a failed configuration.
        space: from ``design_space``, or any ``DesignSpace``.
        budget: evaluations at most; those that a ``store`` has count.
        tuner: what ``Tuner`` takes, such as ``explorer``, ``seed``, ``store`` or ``callbacks``.

    Returns:
        The best configuration, and everything that was evaluated.

    Raises:
        ConfigError: an argument is wrong.
        PluginError: a stage breaks its contract.
        RunFolderError: the store is in use, cannot be written, or belongs to another search.
    """
    whole_number(budget, "budget", hint="it is how often the function is called at most")
    takes_knobs(function, a_space(space))
    with Tuner(space, **tuner) as search:
        while search.measured < budget and not search.stopped:
            batch = search.ask(min(search.batch_size, budget - search.measured))
            if not len(batch):
                break
            search.evaluate(batch, function)
        rows = search.rows()
        return Minimum(best=search.best, measurements=Measurements(lambda: rows))


__all__ = ["Minimum", "minimize"]
