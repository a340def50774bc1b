"""Writes the folder of a chosen network: code, weights, data and a script for training.

The code is plain torch, which can be read and changed without this package.
"""

from __future__ import annotations

import inspect
import json
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import structlog
import torch
from chameleon_core.plugin_api import ConfigError
from torch import Tensor, fx, nn

from chameleon_transforms._delivery.weights import WeightTransfer
from chameleon_transforms._nest.modules import TransformedConvolution
from chameleon_transforms._network.replacement import with_modules
from chameleon_transforms._network.space import Candidate, NetworkSpace
from chameleon_transforms._search.front import Point

log = structlog.get_logger()

_RETRAIN = Path(__file__).with_name("retrain.py")
_HELD_OUT = 5
"""One sample in this many is kept for testing."""
_MOST_BYTES = 1 << 30
"""Largest number of bytes of data that are copied into the folder."""


def write_point(
    space: NetworkSpace,
    point: Point,
    images: Tensor,
    data: Iterable[tuple[Tensor, Tensor]],
    folder: Path,
) -> list[str]:
    """Write a chosen network's code, weights and data; return layers not transferred."""
    folder.mkdir(parents=True, exist_ok=True)
    candidate = space.candidate(point.config)
    fresh = write_candidate(space, candidate, images, folder)
    write_network(space.network.module, images, folder, "original")
    shutil.copyfile(_RETRAIN, folder / "retrain.py")
    described: dict[str, Any] = {**point.to_json(), "initial_weights": fresh}
    (folder / "point.json").write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")
    write_data(data, folder / "data")
    return fresh


def write_candidate(
    space: NetworkSpace, candidate: Candidate, images: Tensor, folder: Path
) -> list[str]:
    """Write a network as files ``network``; return layers with initial weights."""
    modules, fresh = WeightTransfer(space, candidate).modules()
    if fresh:
        log.warning("layers_keep_initial_weights", layers=fresh)
    changed = with_modules(space.network.module, modules)
    write_network(changed, images, folder, "network")
    return fresh


def write_data(data: Iterable[tuple[Tensor, Tensor]], folder: Path) -> None:
    """Write a fifth of the samples to ``test.pt``, the others to ``train.pt``."""
    batches: list[tuple[Tensor, Tensor]] = []
    size = 0
    for batch in data:
        batches.append(batch)
        size += batch[0].numel() * batch[0].element_size()
        if size > _MOST_BYTES:
            samples = sum(len(labels) for _, labels in batches)
            log.warning("data_truncated", samples=samples, bytes=size)
            break
    folder.mkdir(exist_ok=True)
    pictures, labels = map(torch.cat, zip(*batches, strict=True))
    held_out = torch.arange(len(labels)) % _HELD_OUT == _HELD_OUT - 1
    for name, chosen in (("train", ~held_out), ("test", held_out)):
        torch.save((pictures[chosen], labels[chosen]), folder / f"{name}.pt")


WEIGHTS = "weights.pt"

_PROLOGUE = '''"""A network that `chameleon transform` wrote; it needs torch alone.

`make()` returns the module with its weights, and example inputs; `Network()` the module alone.
"""

from __future__ import annotations

import math
import operator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

device = torch.device
inf = math.inf


'''

_EPILOGUE = '''

def make():
    """The network with its weights, ready for inference, and example inputs."""
    network = Network()
    network.load_state_dict(torch.load(Path(__file__).with_name({weights!r}), weights_only=True))
    return network.eval(), (torch.zeros({shape}),)
'''


def write_network(network: fx.GraphModule, images: Tensor, folder: Path, name: str) -> None:
    """Write a network's code as ``NAME.py`` and its weights beside it."""
    weights = f"{name}.{WEIGHTS}"
    text = (
        _PROLOGUE
        + inspect.getsource(TransformedConvolution)
        + "\n\n"
        + "\n".join(_network_lines(network))
        + "\n"
    )
    text += _EPILOGUE.format(weights=weights, shape=tuple(images.shape))
    (folder / f"{name}.py").write_text(text, encoding="utf-8")
    torch.save(_renamed(network), folder / weights)


def _renamed(network: fx.GraphModule) -> dict[str, Tensor]:
    """The state dictionary with the names that modules have in the written code."""
    named = sorted(_modules(network), key=len, reverse=True)
    names = {}
    for key, value in network.state_dict().items():
        owner = next((name for name in named if key.startswith(f"{name}.")), None)
        short = key.replace(".", "_") if owner is None else _word(owner) + key[len(owner) :]
        names[short] = value.detach().cpu().clone()
    return names


def _word(name: str) -> str:
    return "m_" + name.replace(".", "_")


def _modules(network: fx.GraphModule) -> list[str]:
    called = [str(node.target) for node in network.graph.nodes if node.op == "call_module"]
    return list(dict.fromkeys(called))


def _network_lines(network: fx.GraphModule) -> Iterator[str]:
    yield "class Network(nn.Module):"
    yield "    def __init__(self):"
    yield "        super().__init__()"
    for name in _modules(network):
        yield f"        self.{_word(name)} = {constructor(network.get_submodule(name), name)}"
    for node in network.graph.nodes:
        if node.op == "get_attr":
            yield f"        {_attribute(network, str(node.target))}"
    yield ""
    yield from (f"    {line}" if line else "" for line in _forward(network))


def _attribute(network: fx.GraphModule, name: str) -> str:
    owner, _, last = name.rpartition(".")
    value = getattr(network.get_submodule(owner), last)
    text = f"torch.empty({tuple(value.shape)}, dtype={value.dtype})"
    word = name.replace(".", "_")
    if isinstance(value, nn.Parameter):
        return f"self.{word} = nn.Parameter({text})"
    return f"self.register_buffer({word!r}, {text})"


def _forward(network: fx.GraphModule) -> list[str]:
    """The code of ``forward``, with modules and attributes renamed as in the written code."""
    copied = fx.Graph()
    copied.output(copied.graph_copy(network.graph, {}))
    for node in copied.nodes:
        node.type = None
        if node.op == "call_module":
            node.target = _word(str(node.target))
        elif node.op == "get_attr":
            node.target = str(node.target).replace(".", "_")
    written = copied.python_code("self")
    # The globals of torch include names that this graph does not use.
    foreign = {
        name for name in set(written.globals) - _KNOWN if re.search(rf"\b{name}\b", written.src)
    }
    if foreign:
        raise ConfigError(
            f"the code of the network cannot be written: it calls {', '.join(sorted(foreign))}",
            hint="Use functions of torch in the network's forward.",
        )
    text: str = written.src
    return text.strip().splitlines()


def _shapes(module: nn.Module) -> dict[str, torch.Size]:
    return {name: value.shape for name, value in module.state_dict().items()}


_KNOWN = frozenset({"torch", "nn", "operator", "math", "inf", "device"})
"""Names that the written file defines or imports."""


def constructor(module: nn.Module, name: str) -> str:
    """Python code that makes a torch module like a given one, without its weights."""
    if isinstance(module, TransformedConvolution):
        channels = 0 if module.bias is None else len(module.bias)
        return f"TransformedConvolution({module.plan!r}, {channels})"
    text = f"nn.{module!r}".replace("\n", " ")
    space: dict[str, Any] = {"nn": nn, "inf": float("inf"), "torch": torch}
    try:
        rebuilt = eval(text, space)  # noqa: S307 - only torch wrote this text
        same = type(rebuilt) is type(module) and _shapes(rebuilt) == _shapes(module)
    except Exception:  # noqa: BLE001 - a user's module may print anything
        same = False
    if not same:
        raise ConfigError(
            f"the code of module {name!r}, a {type(module).__name__}, cannot be written",
            hint="Use modules of torch.nn whose printed form is the code that makes them.",
        )
    return text
