"""The backend ``chameleon`` of ``torch.compile``.

torch passes each graph that it traces to the backend. torch's own code answers the first call. A
network that Chameleon delivers computes later calls if it returns the same outputs in less time.
Otherwise torch's code continues, and one line of the log says why.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import structlog
import torch
from chameleon_core.api import words
from torch import Tensor, fx
from torch.autograd import forward_ad

from chameleon_networks._artifact.load import load
from chameleon_networks._backends import FallbackError, graph_checks
from chameleon_networks._backends.graph_checks import Comparisons, Weights, check_outputs
from chameleon_networks._backends.graph_deliveries import Delivery, digest_of
from chameleon_networks._backends.graph_options import BACKGROUND, PREDICTED, BackendOptions

log = structlog.get_logger()

Graph = Callable[..., Any]

_ROUNDS = 3
"""Number of timed calls of the network and of torch's code, in turns, in one comparison."""
_TIMING_SECONDS = 1.0
"""Seconds after which a comparison times no further call."""
_COMPARED_CALLS = frozenset({4, 16, 64, 256})
"""Calls that compare anew. They wait for torch as well, so few calls do, and none for ever."""
_LAST_COMPARED = max(_COMPARED_CALLS)
"""The call after which a slower network is not needed any more."""
_INSTANCES = 8
"""Most instances of a repeated layer with networks of their own. torch, too, compiles one piece of
code 8 times at most (``torch._dynamo.config.recompile_limit``)."""
_CHANGED = "weights have changed since it was compiled"
_UNKNOWN_VERSIONS = 8
"""Changes of weights to new numbers in a row, after which a graph looks for known ones no more."""
_OTHER = "a call has other weights, which get a network if they come again"


def chameleon(
    graph: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Graph:
    """Compile a graph for ``torch.compile(model, backend="chameleon")``.

    Args:
        graph: A function of tensors, weights included, that returns a tuple of tensors.
        example_inputs: The arguments with which torch traced the graph.
        mode: The argument ``mode`` of ``torch.compile``, which overrides ``options["mode"]``.
        options: The options by name, as in ``BackendOptions``.

    Returns:
        A function that takes the same arguments as ``graph`` and returns the same outputs.

    Raises:
        ConfigError: An option is unknown or has a wrong value.
    """
    chosen = BackendOptions.of(mode, options)
    if reason := graph_checks.fallback_reason(example_inputs):
        _log_fallback(reason)
        unchanged: Graph = graph.forward
        return unchanged
    weights = [i for i, value in enumerate(example_inputs) if graph_checks.is_weight(value)]
    return CompiledGraph(graph, weights, chosen)


def _memory(value: Tensor) -> int:
    """The address of the memory that a tensor shares with its views."""
    return int(value.untyped_storage().data_ptr())


def _shares_memory(value: Any, addresses: Collection[int]) -> bool:
    """Whether an output is a view of a tensor in memory at one of some addresses."""
    return isinstance(value, Tensor) and value.numel() > 0 and _memory(value) in addresses


def _with_outputs(graph: fx.GraphModule, outputs: Collection[int]) -> fx.GraphModule:
    """A copy of a graph that returns only some outputs."""
    graph = fx.GraphModule(graph, copy.deepcopy(graph.graph))
    last = graph.graph.output_node()
    last.args = (tuple(last.args[0][index] for index in outputs),)
    graph.recompile()
    return graph


def _clocked(function: Graph, arguments: Sequence[Tensor]) -> tuple[Any, float]:
    """The answer of a call, and its seconds."""
    start = perf_counter()
    answer = function(*arguments)
    return answer, perf_counter() - start


def _log_fallback(reason: str) -> None:
    log.info("graph_computed_by_torch", reason=reason)


class _ChangeError(FallbackError):
    """Weights were changed during a comparison, which says nothing about the network."""


class CompiledGraph:
    """A torch graph as a thread-safe function, by a network if it is right and faster."""

    def __init__(
        self,
        graph: fx.GraphModule,
        weights: Collection[int],
        options: BackendOptions,
        instances: int = _INSTANCES,
    ) -> None:
        self._graph = graph
        self._weight_indices = frozenset(weights)
        self._options = options
        self.instances = instances
        self.next: CompiledGraph | None = None
        self._first = threading.Lock()
        self._has_started = self._stays = self._awaits = False
        self._folder: Path | None = None
        self._tried: Path | None = None
        self._candidate: Any = None
        self._network: Any = None
        self._calls = 0
        self._comparisons: Comparisons | None = None
        self.weights = Weights((), ())
        self._layouts: Any = None
        self._views: list[int] = []
        self._view_graph: Graph = tuple
        self._inputs: list[int] = []
        self._traced = graph
        self._version: CompiledGraph | fx.GraphModule | None = None
        """Computes calls with the weights as they are now; None is this graph itself."""
        self._versions: dict[str, CompiledGraph | fx.GraphModule | None] = {}
        self._unknown_versions = 0

    def __call__(self, *arguments: Tensor) -> Any:  # noqa: PLR0911 - one return for each way
        """Compute the outputs of the graph, as a tuple."""
        if forward_ad._current_level >= 0:  # noqa: SLF001 - a network computes no tangents
            return self._graph(*arguments)
        network = self._network
        is_ready = network is not None and self._tried is self._folder and self._version is None
        if is_ready and self.weights.are_same(arguments):
            try:
                answer = self._computed(network, arguments)
            except Exception as error:  # noqa: BLE001 - torch answers
                self._stay(f"its network failed: {words.in_one_line(error)}")
            else:
                return self._compared(network, arguments, answer)
        if self.weights.are_different(arguments):
            return self._answer_of_other(arguments)
        if self._stays:
            return self._graph(*arguments)
        if not self.weights.are_same(arguments):
            return self._answer_of_changed(arguments)
        if self._version is not None:
            return self._version(*arguments)
        if not self._first.acquire(blocking=False):
            return self._graph(*arguments)
        try:
            return self._answer_and_adopt(arguments)
        finally:
            self._first.release()

    @property
    def computes(self) -> bool:
        """Whether Chameleon's network computes the graph's outputs now, instead of torch's code."""
        return self._network is not None

    @property
    def settled(self) -> bool:
        """Whether tuning is over, so that no other network will compute the graph's outputs."""
        return not self._awaits and self._folder is self._tried

    def _is_to_compare(self) -> bool:
        """Count a call, and say whether it compares the network with torch's code anew."""
        self._calls += 1
        if self._calls > _LAST_COMPARED:
            self._candidate = None
        return self._calls in _COMPARED_CALLS

    def _answer_of_other(self, arguments: Sequence[Tensor]) -> Any:
        """Answer a call with other weights, which get a network if these here have one."""
        known = following = self.next
        if (
            (known is None or known.weights.are_freed())
            and self.computes
            and self.settled
            and self._first.acquire(blocking=False)
        ):
            try:
                while (following := self.next) is not None and following.weights.are_freed():
                    self.next = following.next
                if following is None:
                    self.next = self._following(arguments, is_first=known is None)
                else:
                    following.instances = self.instances - 1
            finally:
                self._first.release()
        return (following or self._graph)(*arguments)

    def _following(self, arguments: Sequence[Tensor], *, is_first: bool) -> CompiledGraph:
        """The graph for other weights, which get a network if they come again."""
        left = max(self.instances - 1, 0)
        following = CompiledGraph(self._graph, self._weight_indices, self._options, left)
        if not left:
            following._stay(f"more than {_INSTANCES} sets of weights share it")
            return following
        # Weights that each call replaces do not come again, and need no network.
        following.weights = Weights(arguments, self._weight_indices)
        if is_first:
            _log_fallback(_OTHER)
        return following

    def _answer_of_changed(self, arguments: Sequence[Tensor]) -> Any:
        """Answer a call whose weights were changed in place, perhaps to numbers of earlier calls.

        An adapter, for example, is copied over another one, and later back.
        """
        if not self.instances or not self._first.acquire(blocking=False):
            return self._graph(*arguments)
        try:
            weights = Weights(arguments, self._weight_indices)
            self._version = version = self._version_of(arguments)
            if isinstance(version, CompiledGraph):
                version.weights = weights
            self.weights = weights
        except FallbackError as error:
            self._stay(str(error))
        finally:
            self._first.release()
        return (self._graph if self._stays else version or self)(*arguments)

    def _version_of(self, arguments: Sequence[Tensor]) -> CompiledGraph | fx.GraphModule | None:
        """The graph for the numbers that weights have now; only numbers that return get one."""
        digest = digest_of(self._traced, arguments, self._weight_indices)
        if digest not in self._versions:
            self._versions[digest] = self._graph
            self._unknown_versions += 1
            if self._unknown_versions > _UNKNOWN_VERSIONS:
                raise FallbackError("weights change again and again")
            _log_fallback(_CHANGED)
            return self._graph
        self._unknown_versions = 0
        networks = sum(version is not self._graph for version in self._versions.values())
        if self._versions[digest] is self._graph and self.computes and networks < _INSTANCES:
            graph = CompiledGraph(self._graph, self._weight_indices, self._options, instances=0)
            self._versions[digest] = graph
        return self._versions[digest]

    def _computed(self, network: Any, arguments: Sequence[Tensor]) -> Any:
        arrays = network.arrays([arguments[index].detach() for index in self._inputs])
        answer = [torch.from_numpy(array) for array in network.run(arrays)]
        if self._layouts is not None:
            outputs, answer = answer, list(copy.deepcopy(self._layouts))
            for own, output in zip(answer, outputs, strict=True):
                # An expanded axis repeats the same memory, which a copy must not write twice.
                once = tuple(slice(1) if stride == 0 else slice(None) for stride in own.stride())
                own[once].copy_(output[once])
        if self._views:
            for place, view in zip(self._views, self._view_graph(*arguments), strict=True):
                answer.insert(place, view)
        return tuple(answer)

    def _answer_and_adopt(self, arguments: Sequence[Tensor]) -> Any:
        """Answer a call with torch's own code, and adopt the delivered network for later calls."""
        answer, torchs = _clocked(self._graph, arguments)
        try:
            if not self._has_started:
                self._begin(arguments, answer)
                self._has_started = True
            folder = self._folder
            if folder is None or self._stays:
                return answer
            if folder is not self._tried:
                self._tried, self._calls, self._candidate = folder, 1, None
                self._candidate = self._adopted(folder, arguments, answer)
            elif self._is_to_compare() and (candidate := self._candidate) is not None:
                self._timed(candidate)(*arguments)  # the first call after others takes longer
                self._compare(candidate, arguments, answer, torchs)
        except _ChangeError:
            self._tried = None  # a call with the weights of before compares again
        except Exception as error:  # noqa: BLE001 - torch has answered, whatever its export raises
            self._drop(None, error)
        return answer

    def _begin(self, arguments: Sequence[Tensor], answer: Sequence[Any]) -> None:
        """Have a network delivered: at once, or in the background while torch answers calls."""
        if any(arguments[index].is_inference() for index in self._weight_indices):
            raise FallbackError("weights were made in inference mode, where changes go unseen")
        self.weights = Weights(arguments, self._weight_indices)
        self._inputs = [i for i in range(len(arguments)) if i not in self._weight_indices]
        own, places = set(map(_memory, arguments)), range(len(answer))
        self._views = [place for place in places if _shares_memory(answer[place], own)]
        computed = [place for place in places if place not in self._views]
        if not computed:
            raise FallbackError("all outputs are views of arguments")
        inputs = [arguments[index] for index in self._inputs]
        graph_checks.check_answer([answer[place] for place in computed], inputs)
        outputs = [answer[place].detach() for place in computed]
        if len(set(map(_memory, outputs))) < len(outputs) or not all(
            value.is_contiguous() for value in outputs
        ):
            # Copies have the same strides, and share memory as the outputs do.
            self._layouts = copy.deepcopy(tuple(outputs))
        seconds = None if self._options.mode == PREDICTED else self._options.seconds
        graph = self._graph
        if self._views:
            self._view_graph = views = _with_outputs(graph, self._views)
            views.graph.eliminate_dead_code()
            views.recompile()
            graph = _with_outputs(graph, computed)
        weights, records = self._weight_indices, self._options.records
        delivery = Delivery(graph, arguments, weights, seconds=seconds, records=records)
        self._traced, self._versions = delivery.graph, {delivery.digest: None}
        if self._options.mode != BACKGROUND or delivery.is_there():
            self._folder = delivery.folder()
        else:
            self._begin_beside(delivery)

    def _begin_beside(self, delivery: Delivery) -> None:
        """Have a predicted and a tuned network delivered in a thread."""
        predicted = delivery.predicted()
        try:
            if not predicted.is_there():
                predicted.prepare()
        except FallbackError:  # tuning may find a better network
            delivery.prepare()
        else:
            with contextlib.suppress(FallbackError):  # the thread logs the refusal
                delivery.prepare(exported=predicted)
        thread = threading.Thread(target=self._tune_beside, args=(predicted, delivery), daemon=True)
        self._awaits = True
        try:
            thread.start()
        except RuntimeError:
            self._awaits = False
            raise

    def _tune_beside(self, predicted: Delivery, tuned: Delivery) -> None:
        try:
            with contextlib.suppress(Exception):  # the tuned network's failure is logged
                self._folder = predicted.folder(nice=True)
            self._folder = tuned.folder(nice=True)
        except Exception as error:  # noqa: BLE001 - nobody waits for this thread
            with self._first:  # a call may just be trying the predicted network
                if self._comparisons is None and self._folder is self._tried:
                    self._stay(words.in_one_line(error))
                else:
                    log.info("tuned_network_not_made", reason=words.in_one_line(error))
        finally:
            self._awaits = False

    def _adopted(self, folder: Path, arguments: Sequence[Tensor], answer: Any) -> Any:
        """Load a network, which computes later calls if it returns torch's outputs in less time."""
        network: Any = None
        try:
            network = load(folder, threads=torch.get_num_threads())
            outputs = self._computed(network, arguments)
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            with contextlib.suppress(OSError):  # so that the next process compiles it again
                if network is None:
                    (folder / "manifest.json").unlink()
            raise FallbackError(f"its network cannot be used: {error}") from error
        check_outputs(outputs, answer)
        if not self._takes_over(network, folder, arguments):
            log.info("network_not_used", reason="it is slower than the earlier network")
        return network

    def _takes_over(self, network: Any, folder: Path, arguments: Sequence[Tensor]) -> bool:
        """Compare a network with torch's code, unless the network that computes is faster."""
        if self._network is not None:
            ours, earliers = self._seconds(network, self._timed(self._network), arguments)
            if ours > earliers:
                return False
        self._comparisons = comparisons = Comparisons(folder)
        if comparisons.share > 1.0:
            comparisons.add(*self._seconds(network, self._graph, arguments))
        self._decide(network, comparisons)
        return True

    def _compared(self, network: Any, arguments: Sequence[Tensor], answer: Any) -> Any:
        """The answer of a network; torch's answer in a call that compares both again."""
        if not self._is_to_compare() or not self._first.acquire(blocking=False):
            return answer
        candidate = self._candidate or network
        try:
            if self._network is not network or self._tried is None:
                return answer
            own, (answer, torchs) = answer, _clocked(self._graph, arguments)
            try:
                check_outputs(own, answer)
            except Exception as error:  # noqa: BLE001 - torch has answered
                self._drop(network, error)
                return answer
            if candidate is network:
                self._compare(network, arguments, answer, torchs)
            else:
                check_outputs(self._timed(candidate)(*arguments), answer)
                self._takes_over(candidate, self._tried, arguments)
        except _ChangeError:
            pass  # the next call notices
        except Exception as error:  # noqa: BLE001 - torch has answered
            self._drop(candidate, error)
        finally:
            self._first.release()
        return answer

    def _compare(
        self, network: Any, arguments: Sequence[Tensor], answer: Sequence[Tensor], torchs: float
    ) -> None:
        """Compare one call of a network with torch's answer, which took some seconds."""
        outputs, ours = _clocked(self._timed(network), arguments)
        check_outputs(outputs, answer)
        if self._comparisons is not None:
            self._comparisons.add(ours, torchs)
            self._decide(network, self._comparisons)

    def _decide(self, network: Any, comparisons: Comparisons) -> None:
        """Let the network or torch's code compute later calls, and log a change."""
        before, comparisons.wins = comparisons.wins, comparisons.share <= 1.0
        self._network = network if comparisons.wins and not self._stays else None
        share = f"{comparisons.share:.2f} times as long as torch's code"
        if comparisons.wins and not before:
            log.info("graph_computed_by_network", folder=str(comparisons.folder), takes=share)
        elif not comparisons.wins and before is not False:
            _log_fallback(f"its network is slower: it takes {share}")

    def _timed(self, network: Any) -> Graph:
        """All that a call does if a network computes it."""

        def call(*arguments: Tensor) -> Any:
            if not self.weights.are_same(arguments):
                raise _ChangeError(_CHANGED)
            return self._computed(network, arguments)

        return call

    def _seconds(
        self, network: Any, rival: Graph, arguments: Sequence[Tensor]
    ) -> tuple[float, float]:
        """The shortest of a few interleaved calls of a network and of its rival, in seconds."""
        sides: list[Graph] = [self._timed(network), rival]
        seconds: list[list[float]] = [[], []]
        while len(seconds[1]) < _ROUNDS and sum(map(sum, seconds)) < _TIMING_SECONDS:
            for side, spent in zip(sides, seconds, strict=True):
                spent.append(_clocked(side, arguments)[1])
        return min(seconds[0]), min(seconds[1])

    def _drop(self, network: Any, error: Exception) -> None:
        """Stop using a network after an error; another network or torch's code computes."""
        self._candidate = None
        if self._network is network:
            self._network = None
        if self._network is not None or self._awaits:
            log.info("network_not_used", reason=words.in_one_line(error))
        else:
            self._stay(words.in_one_line(error))

    def _stay(self, reason: str) -> None:
        """Let torch's own code compute all later calls, and log the reason once."""
        if not self._stays:
            self._stays = True
            _log_fallback(reason)
        self._network = self._candidate = None
