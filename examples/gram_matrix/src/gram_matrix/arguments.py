"""What a pipeline file says of the operator."""

import attrs
from chameleon_tvm.api import OperatorSpec


@attrs.frozen(kw_only=True)
class GramSpec(OperatorSpec):
    """The products of all pairs of features, summed over samples."""

    kind = "gram"
    samples: int = attrs.field(validator=attrs.validators.ge(1))
    features: int = attrs.field(validator=attrs.validators.ge(1))

    @property
    def flop(self):
        """Floating-point operations of one evaluation."""
        return 2.0 * self.samples * self.features**2
