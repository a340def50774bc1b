"""The template: its knobs, which configurations are legal, and what they do to the loops."""

from chameleon_core.plugin_api import Constraint, DesignSpace, Factorization
from chameleon_tvm.api import ScheduledTemplate


class GramTemplate(ScheduledTemplate):
    """Threads compute tiles of the output, columns in vectors, one sample after the other."""

    def space(self):
        extent = self.operator.spec.features
        rows = Factorization(name="rows", extent=extent, max_innermost=16)
        columns = Factorization(name="columns", extent=extent, max_innermost=128)
        fits = Constraint(
            reason="the sums of a tile do not fit into registers",
            holds=lambda values: values["rows"][:, 1] * values["columns"][:, 1] <= 512,
        )
        return DesignSpace([rows, columns], constraints=[fits])

    def apply(self, schedule, values):
        m, n, k = schedule.get_loops("gram")
        m, row = schedule.split(m, values["rows"])
        n, column = schedule.split(n, values["columns"])
        schedule.reorder(m, n, k, row, column)
        schedule.parallel(schedule.fuse(m, n))
        schedule.unroll(row)
        schedule.vectorize(column)
        schedule.decompose_reduction("gram", k)
