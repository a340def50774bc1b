"""Networks of other libraries: causal language models of ``transformers``, and images' of ``timm``.

python benchmarks/model_cases.py                  # transformers, each made small
python benchmarks/model_cases.py --library timm   # a hundred of timm, drawn by a digest

timm imports parts of ``torchvision`` that no network needs; a stand-in suffices for these.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from hashlib import sha256
from math import log2
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import torch
from case_suite import NoNetworkError, RefusedError, Suite, main
from chameleon_core._errors import ExitCode
from chameleon_networks import load
from chameleon_networks._importers.torch.programs import export_module
from chameleon_system._processes.stamps import temporary_folder
from torch_cases import check_outputs, compared

_TOKENS = 16
_HEAD = 8
"""Numbers of a token in the smallest attention head."""
_MOST_LAYERS = 4
_MOST = {
    r"vocab": 200,
    r"token_id|token_index": 99,
    r"position|seq|n_ctx": 256,
    r"shared_layers": 2,
    r"layers?$|blocks$|depth|layers_per_stack": _MOST_LAYERS,
    r"per_tok|top_?k|moe_k$|n_group|expert_group": 2,
    r"experts$|expert_num$": 8,
}
"""The largest numbers of a small configuration, by patterns of their names."""
_WIDTHS = re.compile(r"(size|dim|rank|embd|d_model|ffn|d_ff|dff|width|d_inner|channels|d_ssm)$")
_NO_WIDTHS = re.compile(r"image|patch|window|chunk|kernel|block|codebook|batch")


def small(kind: Any) -> Any:
    """A configuration of ``transformers`` with few layers, words and experts, and narrow heads.

    All widths become narrower by one factor, so that those that must agree do. Numbers of heads
    stay, and so does whatever the configuration derives from other numbers.
    """
    usual = kind()
    text = usual.get_text_config(decoder=True)
    names = {"heads": "num_attention_heads", "width": "hidden_size", "head": "head_dim"}
    numbers = {
        short: vars(text).get(text.attribute_map.get(name, name)) for short, name in names.items()
    }
    head = numbers["head"] or (numbers["width"] or _HEAD) // (numbers["heads"] or 1)
    factor = 1 << int(log2(max(1, head // _HEAD)))
    smaller = _smaller(usual, factor)
    if "head_dim" in vars(usual):
        smaller["head_dim"] = head // factor
    config = kind(**smaller)
    if "is_decoder" in vars(config):
        config.is_decoder = True
    return config


def _smaller(config: Any, factor: int) -> dict[str, Any]:
    """The numbers of a configuration and of those in it that become smaller."""
    smaller: dict[str, Any] = {}
    layers = {
        value
        for name, value in vars(config).items()
        if name.endswith(("layers", "layer")) and type(value) is int
    }
    for name, value in vars(config).items():
        if hasattr(value, "get_text_config"):
            smaller[name] = {"model_type": value.model_type, **_smaller(value, factor)}
        elif isinstance(value, list) and len(value) > _MOST_LAYERS and len(value) in layers:
            smaller[name] = value[:_MOST_LAYERS]
        elif type(value) is int and value > 0:
            most = next((most for words, most in _MOST.items() if re.search(words, name)), None)
            if most is not None:
                smaller[name] = min(value, most)
            elif _WIDTHS.search(name) and not _NO_WIDTHS.search(name) and value >= 2 * factor:
                smaller[name] = value // factor
    return smaller


class LanguageModels(Suite):
    """The causal language models of ``transformers``, by the name of their kind."""

    def cases(self) -> Mapping[str, str]:
        from transformers.models.auto import modeling_auto  # noqa: PLC0415 - takes seconds

        names = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        return dict.fromkeys(names, "transformers")

    def run(self, case: str) -> str | None:
        from transformers import CONFIG_MAPPING, AutoModelForCausalLM  # noqa: PLC0415 - takes seconds
        from transformers.utils import logging  # noqa: PLC0415 - likewise

        logging.set_verbosity_error()
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        try:
            config = small(CONFIG_MAPPING[case])
            model = AutoModelForCausalLM.from_config(config)
        except Exception as error:
            words = " ".join(str(error).split())
            raise NoNetworkError(f"its library does not build it: {words}") from error
        with torch.no_grad():
            for weight in model.parameters():
                # Among equal numbers, as weights of zero give them, the largest one is any.
                weight.add_(0.02 * torch.randn_like(weight))
        return compared(Logits(model.eval(), config), case)


class ImageModels(Suite):
    """A hundred networks of ``timm``, drawn by a digest of their names."""

    def cases(self) -> Mapping[str, str]:
        names = sorted(_timm().list_models(), key=lambda name: sha256(name.encode()).digest())
        drawn = names[:_IMAGE_MODELS]
        seen = len(drawn) * 3 // 4
        return {
            **dict.fromkeys(drawn[:seen], "timm"),
            **dict.fromkeys(drawn[seen:], "timm, unseen"),
        }

    def run(self, case: str) -> str | None:
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model = _timm().create_model(case).eval()
        if sum(weight.numel() for weight in model.parameters()) > _MOST_WEIGHTS:
            raise NoNetworkError(f"it has over {_MOST_WEIGHTS:,} weights")
        usual = model.pretrained_cfg
        is_fixed = usual.get("fixed_input_size") or usual.get("min_input_size")
        images = torch.randn(1, *(usual["input_size"] if is_fixed else _SMALL_IMAGE))
        with torch.inference_mode(), temporary_folder() as folder:
            expected = model(images)
            network = _delivered(model, images, Path(folder))
            check_outputs([network(images.numpy())], [expected], Images(model, images))
            ours, theirs = _milliseconds(lambda: network(images.numpy()), lambda: model(images))
        return f"{theirs / ours:.2f} times as fast as torch ({ours:.2f} and {theirs:.2f} ms)"


def _delivered(model: torch.nn.Module, images: torch.Tensor, folder: Path) -> Any:
    """The network that `chameleon run` delivers without measurements.

    Raises:
        RefusedError: it delivers none; the message has its last line.
    """
    torch.export.save(export_module(model, (images,), "model").program, folder / "model.pt2")
    pipeline = {
        "model": {"torch": {"source": "model.pt2", "compare": False}},
        "baselines": [],
        "budget": {"measurements": 0},
        "output": "run",
    }
    (folder / "pipeline.yaml").write_text(json.dumps(pipeline))
    command = [sys.executable, "-m", "chameleon_cli", "run", "pipeline.yaml"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if not (folder / "run/network/manifest.json").exists():
        words = " ".join(ended.stderr.split()[-_LAST_WORDS:])
        if ended.returncode in {ExitCode.USAGE, ExitCode.NO_VALID_RESULT}:
            raise RefusedError(words)
        raise RuntimeError(f"chameleon run ended with {ended.returncode}: {words}")
    return load(folder / "run/network")


def _milliseconds(*calls: Callable[[], Any]) -> list[float]:
    """The shortest time of each call, measured in turns."""
    rounds = []
    for _ in range(_ROUNDS):
        times = []
        for call in calls:
            started = time.perf_counter()
            call()
            times.append(1e3 * (time.perf_counter() - started))
        rounds.append(times)
    return [min(times) for times in zip(*rounds, strict=True)]


_ROUNDS = 20
_LAST_WORDS = 60
_IMAGE_MODELS = 100
_MOST_WEIGHTS = 350_000_000
_SMALL_IMAGE = (3, 128, 128)


def _timm() -> Any:
    for name in ("", ".transforms", ".transforms.functional", ".ops", ".ops.misc", ".datasets"):
        sys.modules.setdefault(f"torchvision{name}", MagicMock())
    return importlib.import_module("timm")


class Images(torch.nn.Module):
    """A network with its input."""

    def __init__(self, model: Any, images: torch.Tensor) -> None:
        super().__init__()
        self._model = model
        self.inputs = (images,)

    def forward(self, images: Any) -> Any:
        """What the network gives."""
        return self._model(images)


class Logits(torch.nn.Module):
    """A language model as a network that gives its logits for some tokens."""

    def __init__(self, model: Any, config: Any) -> None:
        super().__init__()
        self._model = model
        words = config.get_text_config().vocab_size
        self.inputs = (torch.randint(words, (1, _TOKENS)),)

    def forward(self, tokens: Any) -> Any:
        """The logits of each token."""
        return self._model(input_ids=tokens, use_cache=False).logits


SUITES = {"transformers": LanguageModels, "timm": ImageModels}


def of_library(library: str) -> Suite:
    """The suite of a library."""
    return SUITES[library]()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--library", choices=SUITES, default="transformers")
    given, words = parser.parse_known_args()
    sys.exit(main("model_cases:of_library", words, options=(given.library,)))
