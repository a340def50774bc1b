"""The work of ``chameleon transform``: searches transformed networks, and writes a chosen one.

The search finds a front: networks that no other network beats in time, score and size together.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
import structlog
import torch
from chameleon_core.api import Interruption, ResolvedPipeline, RunResult, from_dict, run_pipeline
from chameleon_core.plugin_api import ConfigError, StageSpec, load_factory
from chameleon_networks.api import NETWORKS, NetworkOptions, evaluated, initialise
from chameleon_tvm.api import named_object
from torch import Tensor, nn

from chameleon_transforms._data import batches, checked, minibatch
from chameleon_transforms._delivery.network_folder import write_point
from chameleon_transforms._network.channels import TracedNetwork, checked_scores, traced
from chameleon_transforms._network.space import NetworkSpace
from chameleon_transforms._scores.scorer import Scorer
from chameleon_transforms._search.front import Point
from chameleon_transforms._search.latency import OperatorTimes
from chameleon_transforms._search.report import page, table
from chameleon_transforms._search.search import TransformSearch
from chameleon_transforms._section import Transformation

log = structlog.get_logger()

FOLDER = "transform"
"""Name of the folder for all results, inside the pipeline's output folder."""
FRONT = "front.json"


class Session:
    """The work of ``chameleon transform`` on a pipeline."""

    def __init__(
        self,
        pipeline: ResolvedPipeline,
        listeners: Sequence[object] = (),
        interruption: Interruption | None = None,
    ) -> None:
        if "transform" not in pipeline.sections:
            raise ConfigError(
                "the pipeline has no section 'transform'",
                hint="Add `transform: {}`, or options below it.",
            )
        self.pipeline = pipeline
        self.options: Transformation = pipeline.sections["transform"]
        self.folder = pipeline.output / FOLDER
        self._listeners = listeners
        self._interruption = interruption

    @cached_property
    def source(self) -> SourceNetwork:
        """The network before it is transformed."""
        return network_of(self.pipeline.model)

    @cached_property
    def network(self) -> TracedNetwork:
        """The network as a graph, before it is transformed."""
        return traced(self.source.module.eval(), self.source.images)

    @cached_property
    def classes(self) -> int:
        """Number of outputs of the network."""
        _ = self.network  # raises an error that explains a wrong network
        with torch.no_grad():
            outputs = checked_scores(self.source.module.eval()(self.source.images))
        return int(outputs.shape[1])

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(self.source.images.shape[1:])

    def data(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield batches of images and classes, each checked."""
        shape, classes = self._shape, self.classes
        for pair in self._loader():
            yield checked(pair, shape, classes)

    def _loader(self) -> Any:
        options = self.options
        return batches(options.data, self._shape, self.classes, options.batch, self.pipeline.seed)

    @cached_property
    def space(self) -> NetworkSpace:
        """The space of all networks that the search may propose."""
        return NetworkSpace(
            self.network,
            [stage.create() for stage in self.options.transforms],
            sequence=self.options.sequence,
            widths=self.options.widths,
        )

    @cached_property
    def scorer(self) -> Scorer:
        """The judge, which runs candidates on the minibatch."""
        images, labels = minibatch(self._loader(), self._shape, self.classes, self.options.batch)
        images = images.contiguous(memory_format=torch.channels_last)
        return Scorer(self.space, images, labels, self.pipeline.seed)

    def search(self) -> TransformSearch:
        """A new search, which has judged only the original network."""
        times = OperatorTimes(
            self.pipeline,
            self.folder / "operators",
            self.options.measurements,
            records=self.options.records,
            listeners=self._listeners,
            interruption=self._interruption,
        )
        return TransformSearch(
            self.space,
            self.scorer,
            {stage.name: stage.create() for stage in self.options.scores},
            times,
            self.options,
            batch=int(self.source.images.shape[0]),
            seed=self.pipeline.seed,
        )

    def run(self, progress: Callable[[int, int], None] = lambda *_: None) -> dict[str, Any]:
        """Search, write the front as JSON, CSV and HTML, and return the content of the JSON."""
        began = time.monotonic()
        search = self.search()
        points = search.run(progress)
        score = self.options.scores[0].name
        result = {
            "target": self.pipeline.target,
            "network": self._identity,
            "score": score,
            "judged": len(search.points) - 1,
            "accepted": sum(point.accepted for point in search.points[1:]),
            "measured": self.options.per_round > 0,
            "seconds": time.monotonic() - began,
            "original": search.original.to_json(),
            "front": [entry.to_json() for entry in points],
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        texts = {
            FRONT: json.dumps(result, indent=1) + "\n",
            "front.csv": table(points, search.original),
            "front.html": page(search.points, points, score, "Transformed networks"),
        }
        for name, text in texts.items():
            (self.folder / name).write_text(text, encoding="utf-8")
        return result

    @property
    def _identity(self) -> Any:
        """The model and the design space to which a point's row of indices belongs."""
        return [self.pipeline.document["model"], self.space.design.fingerprint]

    def read_front(self) -> dict[str, Any] | None:
        """Read the front of an earlier run; None if missing or of another space."""
        file = self.folder / FRONT
        if not file.is_file():
            return None
        front: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return front if front["network"] == self._identity else None

    def deliver(self, result: dict[str, Any], number: int) -> tuple[Path, list[str]]:
        """Write the folder of a network of the front, and name its layers with initial weights."""
        points = result["front"]
        if not 0 <= number < len(points):
            raise ConfigError(
                f"the front has no point {number}",
                hint=f"There are points 0 to {len(points) - 1}." if points else "It is empty.",
            )
        if not self.source.trained:
            log.warning("original_not_trained", network=self.pipeline.model.name)
        folder = self.folder / f"point_{number}"
        point = Point.from_json(points[number])
        return folder, write_point(self.space, point, self.source.images, self.data(), folder)

    def compile(self, folder: Path) -> RunResult:
        """Tune and compile the chosen network, into the folder ``run`` inside its folder."""
        left_out = ("transform", "warm_start")
        rest = {key: item for key, item in self.pipeline.document.items() if key not in left_out}
        # A torch network has these options as well, except its shapes.
        names = {field.alias for field in attrs.fields(NetworkOptions)} - {"shapes"}
        values = self.pipeline.model.options_json
        options = {name: value for name, value in values.items() if name in names}
        model = {"torch": {**options, "source": f"{folder / 'network.py'}:make"}}
        document = {**rest, "model": model, "output": str(folder / "run")}
        return run_pipeline(
            from_dict(document), listeners=self._listeners, interruption=self._interruption
        )


_HINT = "Transforms need a network: {builtin: resnet18}, or {torch: 'net.py:make'}."


@attrs.frozen(kw_only=True, eq=False)
class SourceNetwork:
    """A network before it is transformed.

    Attributes:
        images: An example of its only input.
        trained: Whether the weights come from the user, not from random initialization.
    """

    module: nn.Module
    images: Tensor
    trained: bool


def network_of(model: StageSpec) -> SourceNetwork:
    """The network that a pipeline's section ``model`` names."""
    name = model.name.rpartition(":")[2]
    if name == "builtin":
        record = NETWORKS[model.options.network]
        if record.kind != "image":
            raise ConfigError(f"{model.options.network} takes no images", hint=_HINT)
        network = load_factory(record.factory)()
        images = torch.zeros((model.options.batch, *record.inputs))
        return SourceNetwork(module=initialise(network), images=images, trained=False)
    if name != "torch" or model.options.source.endswith(".pt2"):
        raise ConfigError(f"the model {model.name!r} is no module of torch's", hint=_HINT)
    return user_network(model.options.source)


def user_network(source: str) -> SourceNetwork:
    """Call a user's function that returns a network and example inputs."""
    try:
        module, inputs = named_object(source, "frontend 'torch'")()
    except ConfigError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise ConfigError(
            f"{source} did not return a module and example inputs: {type(error).__name__}: {error}",
            hint="Return the torch module and a tuple of example inputs.",
        ) from error
    arrays = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
    image = 4
    if len(arrays) != 1 or not isinstance(arrays[0], Tensor) or arrays[0].dim() != image:
        raise ConfigError(
            f"the network of {source} does not take exactly one batch of images",
            hint="Transforms need a network with one input of shape (n, channels, rows, columns).",
        )
    return SourceNetwork(module=evaluated(module), images=arrays[0], trained=True)
