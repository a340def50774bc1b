"""Operators as tasks."""

from chameleon_tvm.operators.base import OPERATORS, Operator, operator_of

__all__ = ["OPERATORS", "Operator", "operator_of"]
