"""Prepares torch networks for inference, and checks that they are deterministic."""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import importlib
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import structlog
from chameleon_core.plugin_api import ConfigError
from chameleon_tvm.api import first_line

from chameleon_networks._source_location import location_of

log = structlog.get_logger()

_MAX_SHOWN = 3
"""Most modules that a warning names."""


def initialise(network: Any, seed: int = 0) -> Any:
    """Fill a network with random weights, and put it into evaluation mode.

    Weights are scaled by their fan-in (He et al. 2015), and normalization layers get random
    statistics. So the outputs of the network neither vanish nor explode, and a wrong kernel
    anywhere in the network changes the outputs.

    Args:
        network: A torch module, which is changed in place.
        seed: The seed of a separate generator. torch's global generator is not used.
    """
    torch = importlib.import_module("torch")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in network.modules():
            _initialise_module(module, generator)
    return network.eval()


def _initialise_module(module: Any, generator: Any) -> None:
    nn = importlib.import_module("torch").nn
    if isinstance(module, nn.Conv2d | nn.Linear):
        fan_in = module.weight[0].numel()
        module.weight.normal_(0.0, (2.0 / fan_in) ** 0.5, generator=generator)
        if module.bias is not None:
            module.bias.uniform_(-0.1, 0.1, generator=generator)
    elif isinstance(module, nn.Embedding):
        module.weight.normal_(0.0, 0.5, generator=generator)
    elif isinstance(module, nn.BatchNorm2d | nn.LayerNorm):
        module.weight.uniform_(0.5, 1.0, generator=generator)
        module.bias.uniform_(-0.1, 0.1, generator=generator)
        if isinstance(module, nn.BatchNorm2d):
            if module.running_mean is not None:
                module.running_mean.uniform_(-0.1, 0.1, generator=generator)
            if module.running_var is not None:
                module.running_var.uniform_(0.8, 1.2, generator=generator)


def evaluated(network: Any) -> Any:
    """Put a network into evaluation mode. Logs a warning if that changes the network's outputs.

    Args:
        network: A torch module, which is changed in place.
    """
    changed = [name for name, module in network.named_modules() if _differs_in_training(module)]
    if changed:
        log.warning(
            "network_in_training_mode",
            modules=changed if len(changed) <= _MAX_SHOWN else [*changed[:_MAX_SHOWN], "..."],
            reason="these compute otherwise in training; the network is delivered as `.eval()` "
            "makes it, without dropout and with the running statistics of its batch norms",
            hint="Call `.eval()` on the module before you return it.",
        )
    try:
        return network.eval()
    except NotImplementedError:
        return network  # a module that was exported and then quantized has no modes


def _differs_in_training(module: Any) -> bool:
    """Whether a module is in training mode and would compute something else in evaluation mode."""
    nn = importlib.import_module("torch").nn
    drops = isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0  # noqa: SLF001
    # Attention and recurrent layers have an attribute ``dropout``.
    rate = getattr(module, "dropout", 0)
    drops = drops or (isinstance(rate, float) and rate > 0)
    averages = getattr(module, "running_mean", None) is not None
    return module.training and (drops or averages or isinstance(module, nn.RReLU))


def check_program(program: Any) -> Any:
    """A program without dropout, whose answers follow from its inputs and its explicit state."""
    program = check_deterministic(disable_dropout(program))
    _warn_of_changed_inputs(program)
    change = state_change(program)
    if change is None:
        return program
    try:
        return with_explicit_state(program)
    except Exception as error:  # torch raises errors of many classes
        raise ConfigError(
            f"{location_of(change).sentence} changes what later calls read, which torch cannot "
            f"make an input of the network: {first_line(error)}",
            hint="Register it with `register_buffer`, or make it an input and an output.",
        ) from error


def disable_dropout(program: Any) -> Any:
    """Switch off dropout that was exported in training mode, and log a warning if there was any."""
    dropouts = [node for node in _nodes(program) if _is_dropout(node)]
    for node in dropouts:
        names = _argument_names(node)
        switch = next((name for name in ("train", "training") if name in names), "dropout_p")
        value, position = 0.0 if switch == "dropout_p" else False, names.index(switch)
        if position < len(node.args):
            node.args = (*node.args[:position], value, *node.args[position + 1 :])
        else:
            node.kwargs = {**node.kwargs, switch: value}
    for module in {node.graph.owning_module for node in dropouts}:
        module.recompile()
    if dropouts:
        log.warning(
            "dropout_left_out",
            operators=len(dropouts),
            reason="the network leaves out numbers at random, as in training; a delivered network "
            "does not",
        )
    return program


def check_deterministic(program: Any) -> Any:
    """Check that a program draws no random numbers, and return it unchanged."""
    for node in _nodes(program):
        if node.op == "call_function" and draws_random_numbers(node):
            raise ConfigError(
                f"{location_of(node).sentence} draws random numbers, so that the network gives "
                "other answers each time and none can be checked",
                hint="Make them an input of the network, or leave them out.",
            )
    return program


def _nodes(program: Any) -> list[Any]:
    """All nodes of a program, those of the branches of ``torch.cond`` included."""
    parts = [part for part in program.graph_module.modules() if hasattr(part, "graph")]
    return [node for part in parts for node in part.graph.nodes]


def state_change(program: Any) -> Any:
    """An operator that changes what outputs of later calls depend on, or None.

    An example is a decoder that writes into its cache.
    """
    stateful = _mutated_buffers(program)
    outputs = set(program.graph_signature.user_outputs)
    for node in program.graph.nodes if stateful else ():
        name = getattr(node.target, "__name__", "").partition(".")[0]
        sources = node.all_input_nodes[1:] if name in _OVERWRITING else node.all_input_nodes
        if name == _TRAINING_BATCH_NORM:
            sources = [arg for arg in sources if arg in node.args[:_TRAINING_BATCH_NORM_INPUTS]]
        source = next((arg for arg in sources if arg in stateful), None)
        if source is not None and node.op == "call_function":
            for changed in (node, *map(_storage_owner, _mutated_arguments(node))):
                stateful[changed] = stateful[source]
        elif name in _OVERWRITING and name.endswith("_"):
            stateful.pop(node.args[0], None)
    for node, change in stateful.items():
        if node.name in outputs:
            return change
    return None


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
    returned = tree.tree_unflatten(
        [0] * root.signature.out_spec.num_leaves, root.signature.out_spec
    )
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


_OVERWRITING = {"copy_", "zero_", "fill_", "copy", "zeros_like", "full_like"}
"""Operators whose result does not depend on the numbers of their first argument."""

_TRAINING_BATCH_NORM, _TRAINING_BATCH_NORM_INPUTS = "_native_batch_norm_legit_functional", 3
"""Batch norm in training, and the number of its arguments that its outputs depend on. The running
mean and variance, which follow, are only updated."""


def _mutated_buffers(program: Any) -> dict[Any, Any]:
    """The weights and buffers that a call changes, each with the first operator that does."""
    signature = program.graph_signature
    weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    state_names = {*weights, *signature.inputs_to_lifted_tensor_constants}
    nodes = {node.name: node for node in program.graph.nodes}
    buffers = {target: nodes[name] for name, target in weights.items()}
    written = {**signature.parameters_to_mutate, **signature.buffers_to_mutate}
    changed = {buffers[target]: nodes[name] for name, target in written.items()}
    for base, node in _writes(program):
        if base.name in state_names:
            changed.setdefault(base, node)
    return changed


def _writes(program: Any) -> Iterator[tuple[Any, Any]]:
    """Nodes whose memory operators write to, each with such an operator."""
    for node in program.graph.nodes:
        for base in map(_storage_owner, _mutated_arguments(node)):
            yield base, node


def _warn_of_changed_inputs(program: Any) -> None:
    """Log a warning if a program writes to its inputs, which a delivered network does not."""
    signature = program.graph_signature
    written = {base.name for base, _ in _writes(program)}
    written |= set(signature.user_inputs_to_mutate.values())
    if changed := [name for name in signature.user_inputs if name in written]:
        log.warning(
            "changes_of_inputs_left_out",
            inputs=", ".join(changed),
            reason="the network changes these inputs in place; a delivered network does not",
            hint="Return the new values, or register the tensors with `register_buffer`.",
        )


def _mutated_arguments(node: Any) -> list[Any]:
    """The arguments that an operator writes to."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    places = enumerate(schema.arguments)
    written = [
        node.args[position] if position < len(node.args) else node.kwargs.get(arg.name)
        for position, arg in places
        if arg.alias_info is not None and arg.alias_info.is_write
    ]
    tensors = (part for arg in written for part in (arg if isinstance(arg, Sequence) else (arg,)))
    return [tensor for tensor in tensors if hasattr(tensor, "name")]


def _storage_owner(node: Any) -> Any:
    """The node whose memory a node has: the node itself, or what it is a view or a part of."""
    while node.target is operator.getitem or _aliases_first_argument(node):
        node = node.args[0]
    return node


def _aliases_first_argument(node: Any) -> bool:
    """Whether a node's result is its first argument, or views of it."""
    schema = getattr(node.target, "_schema", None)
    return bool(schema and schema.returns and schema.returns[0].alias_info)


class _UnresolvedBranchError(BaseException):
    """A network branches on a value that depends on its inputs; the network must not catch this."""


def export_without_checks(network: Any, export: Callable[[], Any]) -> Any:
    """Export a network without ``if`` branches that raise errors, or return None."""
    # torch does not export an ``if`` that depends on values.
    answers: list[bool] = []
    while True:
        programs = {}
        for answer in (False, True):
            try:
                programs[answer] = _export_with_answers(network, export, [*answers, answer])
            except _UnresolvedBranchError:
                programs[answer] = None
            except Exception as error:  # noqa: BLE001 - the network or torch raised it
                if not _is_raised_by_network(error):
                    return None
        if len(programs) != 1:
            return None
        [(answer, program)] = programs.items()
        answers.append(answer)
        if program is not None:
            log.warning(
                "checks_left_out",
                checks=len(answers),
                reason="the network raises an error for some values of tensors; a delivered "
                "network does not",
            )
            return program


def _export_with_answers(network: Any, export: Callable[[], Any], answers: Sequence[bool]) -> Any:
    """Export a network with given answers to its questions about values, in their order."""
    torch = importlib.import_module("torch")
    aten, dispatch = torch.ops.aten, importlib.import_module("torch.utils._python_dispatch")
    fake = importlib.import_module("torch._subclasses.fake_tensor")
    item = aten._local_scalar_dense.default  # noqa: SLF001 - the operator has this name
    questions = {item, aten.equal.default, aten.allclose.default}

    class Answers(dispatch.TorchDispatchMode):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self._left = iter(answers)

        def __torch_dispatch__(
            self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if operator not in questions or not isinstance(args[0], fake.FakeTensor):
                return operator(*args, **(kwargs or {}))
            is_number = operator is item and args[0].dtype != torch.bool
            if is_number or args[0].constant is not None:
                return operator(*args, **(kwargs or {}))
            answer = next(self._left, None)
            if answer is None:
                raise _UnresolvedBranchError
            return answer

    # If the network raises an error, torch does not call its hooks.
    with contextlib.ExitStack() as modes, contextlib.ExitStack() as handles:
        hooks = (
            network.register_forward_pre_hook(lambda *_: modes.enter_context(Answers()) and None),
            network.register_forward_hook(lambda *_: modes.close()),
        )
        for hook in hooks:
            handles.callback(hook.remove)
        return export()


def _is_raised_by_network(error: Exception) -> bool:
    """Whether a ``raise`` or ``assert`` raised an error, neither C++ nor torch's tracer."""
    trace: Any = error.__traceback__
    while trace.tb_next:
        trace = trace.tb_next
    frame = trace.tb_frame
    tracer = frame.f_globals["__name__"].startswith(("torch._", "torch.fx.", "torch.export."))
    raised = frame.f_code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    return raised and not tracer


def draws_random_numbers(node: Any) -> bool:
    """Whether an operator draws random numbers. Dropout does so only in training mode."""
    torch = importlib.import_module("torch")
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    schema = _schema(node)
    values = {arg.name: arg.default_value for arg in schema}
    values |= dict(zip((arg.name for arg in schema), node.args, strict=False)) | node.kwargs
    probabilities = [values[name] for name in ("p", "dropout", "dropout_p") if name in values]
    training = [values[name] for name in ("train", "training") if name in values]
    if training:
        return any(training) and (not probabilities or any(probabilities))
    return not probabilities or any(probabilities)


def _is_dropout(node: Any) -> bool:
    """Whether an operator drops numbers at random, as dropout or as attention with dropout."""
    if node.op != "call_function" or not draws_random_numbers(node):
        return False
    dropout_names = {"dropout", "dropout_p"} & {*_argument_names(node)}
    return "dropout" in node.target.__name__ or bool(dropout_names)


def _argument_names(node: Any) -> list[str]:
    return [str(arg.name) for arg in _schema(node)]


def _schema(node: Any) -> Any:
    return node.target._schema.arguments  # noqa: SLF001 - torch has no public name
