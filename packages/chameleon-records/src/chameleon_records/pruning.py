"""Rules by which a database is pruned."""

from __future__ import annotations

import attrs
from chameleon_core.stages import Record, RecordKey


@attrs.frozen(kw_only=True)
class Rules:
    """Names records to remove; one rule suffices.

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

    def kept(self, key: RecordKey, records: list[Record]) -> list[Record]:
        """The records of a key that stay."""
        if self._goes(key):
            return []
        recent = [
            record for record in records if self.before is None or record.measured_at >= self.before
        ]
        if self.best is None:
            return recent
        valid = [record for record in recent if record.measurement.ok]
        valid.sort(key=lambda record: (record.measurement.cost, record.measurement.config))
        return valid[: self.best]

    def _goes(self, key: RecordKey) -> bool:
        versions = key.conditions.get("versions")
        if isinstance(versions, dict):
            own = {f"{name}={version}" for name, version in versions.items()}
            if own & set(self.versions):
                return True
        return any(text in key.target for text in self.targets)
