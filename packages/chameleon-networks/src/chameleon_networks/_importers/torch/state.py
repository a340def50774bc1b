"""Turns the buffers that a torch program changes into inputs and outputs of the program."""

from __future__ import annotations

import dataclasses
import importlib
import warnings
from collections.abc import Mapping
from typing import Any

STATE = "new_state"
"""The keyword by which such a program takes its buffers. It marks the program, also in a file."""


def with_explicit_state(program: Any) -> Any:
    """A program that takes the buffers which it changes, and returns their new values.

    The keyword ``STATE`` has a mapping of the buffers, by their names in the module. The program
    returns a pair: what it returned before, and such a mapping of the new values.
    """
    export = importlib.import_module("torch.export")
    kinds = importlib.import_module("torch.export.graph_signature")
    tree = importlib.import_module("torch.utils._pytree")
    with warnings.catch_warnings():  # of torch's own code
        warnings.simplefilter("ignore", FutureWarning)
        program = program.run_decompositions({})  # operators in place become functions
    graph, signature = program.graph_module.graph, program.graph_signature
    written = {**signature.parameters_to_mutate, **signature.buffers_to_mutate}
    result_of = {target: result for result, target in written.items()}
    changed = [spec for spec in signature.input_specs if spec.target in result_of]
    inputs = [spec for spec in signature.input_specs if spec.target not in result_of]
    *_, last = (node for node in graph.nodes if node.op == "placeholder")
    for spec in changed:
        [node] = graph.find_nodes(op="placeholder", target=spec.arg.name)
        if node is not last:
            last.append(node)
        last = node
        inputs.append(kinds.InputSpec(kinds.InputKind.USER_INPUT, spec.arg, None))
    outputs = list(zip(signature.output_specs, graph.output_node().args[0], strict=True))
    results = {spec.arg.name: pair for pair in outputs if (spec := pair[0]).target is not None}
    of_user = [pair for pair in outputs if pair[0].kind.name == "USER_OUTPUT"]
    for spec in changed:
        made, value = results[result_of[spec.target]]
        of_user.append((kinds.OutputSpec(kinds.OutputKind.USER_OUTPUT, made.arg, None), value))
    graph.output_node().args = (tuple(value for _, value in of_user),)
    tensors = {**program.state_dict, **program.constants}
    state = {spec.target: tensors[spec.target].detach().clone() for spec in changed}
    positional, keywords = program.example_inputs
    keywords = {**keywords, STATE: state}
    root, *others = program.module_call_graph
    returned = tree.tree_unflatten([0] * root.signature.out_spec.num_leaves, root.signature.out_spec)
    names = root.signature.forward_arg_names
    called = dataclasses.replace(
        root.signature,
        in_spec=tree.tree_structure((positional, keywords)),
        out_spec=tree.tree_structure((returned, dict.fromkeys(state, 0))),
        forward_arg_names=names and [*names, STATE],
    )
    return export.ExportedProgram(
        program.graph_module,
        graph,
        kinds.ExportGraphSignature(inputs, [spec for spec, _ in of_user]),
        {name: value for name, value in program.state_dict.items() if name not in state},
        program.range_constraints,
        [dataclasses.replace(root, signature=called), *others],
        (positional, keywords),
        {name: value for name, value in program.constants.items() if name not in state},
        verifiers=program.verifiers,
    )


def state_of(program: Any) -> Mapping[str, Any]:
    """The initial values of the buffers that a program takes by the keyword ``STATE``."""
    _, keywords = program.example_inputs
    state: Mapping[str, Any] = keywords.get(STATE, {})
    return state
