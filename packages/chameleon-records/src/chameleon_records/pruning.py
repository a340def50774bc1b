"""What stays when a database is pruned."""

from __future__ import annotations

import attrs
from chameleon_core.stages import Record, RecordKey

from chameleon_records.databases.contract import Kept


@attrs.frozen(kw_only=True)
class Rules:
    """What goes; a record goes that any of these names.

    Attributes:
        before: those measured before this time, in seconds since 1970.
        versions: those of these versions of distributions, as ``apache-tvm=0.26.0``.
        targets: those of targets in which one of these texts is, such as ``znver2``.
        best: all but the fastest so many of each task; what failed goes first.
    """

    before: float | None = None
    versions: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    best: int | None = None

    @property
    def kept(self) -> Kept:
        """Which records of a key stay."""

        def stay(key: RecordKey, records: list[Record]) -> list[Record]:
            if self._goes(key):
                return []
            recent = [
                one for one in records if self.before is None or one.measured_at >= self.before
            ]
            if self.best is None:
                return recent
            valid = (one for one in recent if one.measurement.ok)
            order = sorted(valid, key=lambda one: (one.measurement.cost, one.measurement.config))
            return order[: self.best]

        return stay

    def _goes(self, key: RecordKey) -> bool:
        versions = key.conditions.get("versions")
        if isinstance(versions, dict):
            own = {f"{name}={version}" for name, version in versions.items()}
            if own & set(self.versions):
                return True
        return any(text in key.target for text in self.targets)


__all__ = ["Rules"]
