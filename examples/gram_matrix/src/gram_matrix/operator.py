"""The operator: its input, what it gives in NumPy, and the function to schedule."""

from chameleon_tvm.api import Operator, seeded_array, te


class Gram(Operator):
    """The input has shape (samples, features), the output (features, features)."""

    def inputs(self):
        return [seeded_array((self.spec.samples, self.spec.features), "float32", 0)]

    def reference(self, inputs):
        return [inputs[0].T.astype("float64") @ inputs[0]]

    def prim_func(self):
        samples, extent = self.spec.samples, self.spec.features
        x = te.placeholder((samples, extent), name="x")
        k = te.reduce_axis((0, samples), name="k")
        out = te.compute((extent, extent), lambda m, n: te.sum(x[k, m] * x[k, n], k), name="gram")
        return te.create_prim_func([x, out])
