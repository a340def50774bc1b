"""What `chameleon transform` reaches, and whether its checks are worth anything.

    python benchmarks/transforms.py judge [NETWORK ...]      seconds to judge 1000 networks
    python benchmarks/transforms.py latency [NETWORK ...]    the fastest network that is accepted
    python benchmarks/transforms.py scores                   rank correlation with accuracy, digits
    python benchmarks/transforms.py retrain                  accuracy of a network 3 times as fast

`--candidates`, `--networks`, `--epochs`, `--seeds` and `--threads` make them shorter.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from chameleon_core.pipeline import from_dict
from chameleon_transforms import data
from chameleon_transforms.delivery import retrain
from chameleon_transforms.delivery.point import write_candidate
from chameleon_transforms.delivery.weights import Carrier
from chameleon_transforms.network.changed import changed_network, replacements
from chameleon_transforms.network.space import Candidate, NetworkSpace
from chameleon_transforms.network.traced import traced
from chameleon_transforms.scores.judge import Judge
from chameleon_transforms.session import Session
from scipy.stats import spearmanr
from torch import Tensor

HERE = Path(__file__).resolve().parent
NETWORKS = ("resnet18_cifar", "resnet34_cifar", "resnext29_cifar", "resnet18_large")
SCORES = ("fisher", "synflow", "naswot")
DIGIT = (1, 3, 8, 8)
TRAINED_WITH = 1200
"""Digits that are trained with; the others are held out."""


def processor() -> str:
    """The CPU's name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((one.partition(":")[2].strip() for one in lines if "model name" in one), "?")


def session(network: str, folder: Path, **options: Any) -> Session:
    """What the command makes of one of the networks.

    Args:
        network: a function of `transform_networks.py`.
        folder: where its measurements are kept.
        options: of the section `transform`.
    """
    source = f"{HERE / 'transform_networks.py'}:{network}"
    document = {
        "model": {"torch": source},
        "target": "native",
        "transform": options,
        "baselines": [],
        "output": str(folder / network),
    }
    return Session(from_dict(document))


def judge(given: argparse.Namespace) -> None:
    """Seconds to judge networks, each at its initialisation, on one minibatch of eight."""
    for name in given.network or NETWORKS:
        found = session(name, given.folder)
        (stage,) = found.options.scores
        score, space, judge = stage.create(), found.space, found.judge
        least = judge.score(space.candidate(space.original), score)
        rows = space.design.sample(given.candidates, np.random.default_rng(0))
        began, used = time.monotonic(), time.process_time()
        scored = judge.scored([space.candidate(row) for row in rows], {"fisher": score})
        scores = [one["fisher"] for one in scored]
        took, used = time.monotonic() - began, time.process_time() - used
        accepted = float(np.mean(np.array(scores) >= least))
        print(
            f"{name}: {len(rows)} networks judged in {took:.0f} s ({used:.0f} s of a core), "
            f"{took / len(rows) * 1000:.0f} s for 1000; {accepted:.0%} accepted",
            flush=True,
        )


def latency(given: argparse.Namespace) -> None:
    """The fastest network whose Fisher Potential is not below the tuned original's."""
    for name in given.network or NETWORKS:
        found = session(
            name,
            given.folder,
            candidates=given.candidates,
            measurements=given.measurements,
            per_round=given.per_round,
        )
        result = found.run()
        before = result["original"]["seconds"]
        best = result["front"][0]
        how = "measured" if result["measured"] else "predicted"
        print(
            f"{name}: original {1e3 * before:.3f} ms, fastest accepted {1e3 * best['seconds']:.3f} "
            f"ms, {before / best['seconds']:.2f} times as fast, sums of convolutions {how} "
            f"alone; {result['judged']} judged, {result['seconds']:.0f} s",
            flush=True,
        )


# -- the digits -------------------------------------------------------------------------------


def digits(seed: int = 0) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Images and classes to train with, and others that are held out."""
    images, labels = data.digits(DIGIT[1:], 10, seed)
    images = images.contiguous()
    return (
        (images[:TRAINED_WITH], labels[:TRAINED_WITH]),
        (images[TRAINED_WITH:], labels[TRAINED_WITH:]),
    )


def digits_space(network: torch.nn.Module) -> NetworkSpace:
    """All networks of the usual transforms."""
    from chameleon_core.plugins import default_registry  # noqa: PLC0415 - read once

    names = ("group", "depthwise", "bottleneck", "split-outputs", "mixed-groups", "split-rows")
    transforms = [default_registry().create("transforms", name) for name in names]
    return NetworkSpace(
        traced(network, torch.zeros(DIGIT)), transforms, sequence=2, widths=(1, 2, 4)
    )


def small_network() -> torch.nn.Module:
    """The network of the digits, untrained."""
    where = HERE / "transform_networks.py"
    spec = importlib.util.spec_from_file_location("transform_networks", where)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: torch.nn.Module = module.digits_network()
    return made


def options(epochs: int, seed: int, rate: float = 0.05) -> argparse.Namespace:
    """Those of the script that trains again."""
    words = f"--epochs {epochs} --seed {seed} --rate {rate}".split()
    return retrain.arguments(words)


def spread(space: NetworkSpace, count: int) -> Iterator[Candidate]:
    """Random networks, from those that change few layers to those that change all."""
    rng = np.random.default_rng(1)
    rows = space.design.sample(count, rng)
    shares = np.linspace(0.1, 1.0, len(rows))[:, None]
    for row in np.where(rng.random(rows.shape) < shares, rows, 0):
        yield space.candidate(row)


def scores(given: argparse.Namespace) -> None:
    """Train random networks from scratch and rank scores by how they foretell the accuracy."""
    from chameleon_core.plugins import default_registry  # noqa: PLC0415

    train, held_out = digits()
    torch.manual_seed(0)
    space = digits_space(small_network())
    judge = Judge(space, train[0][:64], train[1][:64])
    judges = {name: default_registry().create("network_scores", name) for name in SCORES}
    original = space.candidate(space.original)
    rows = []
    for place, candidate in enumerate([original, *spread(space, given.networks)]):
        torch.manual_seed(place)
        changed = changed_network(space.network.module, replacements(space, candidate))
        for part in changed.modules():
            if hasattr(part, "reset_parameters"):
                part.reset_parameters()
        retrain.train(changed, None, *train, options(given.epochs, 0), lambda _: None)
        accuracy = retrain.accuracy(changed, *held_out, 256)
        found = {name: judge.score(candidate, one) for name, one in judges.items()}
        size = {"parameters": sum(one.parameters for one in candidate.programs.values())}
        rows.append(
            {**found, **size, "multiply-adds": candidate.multiply_adds, "accuracy": accuracy}
        )
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    accuracy = np.array([row["accuracy"] for row in rows[1:]])
    print(f"{len(accuracy)} networks, accuracy {accuracy.min():.4f} to {accuracy.max():.4f}")
    for name in (*SCORES, "parameters", "multiply-adds"):
        values = np.array([row[name] for row in rows[1:]])
        accepted = values >= rows[0][name]
        told = ", ".join(
            f"{what} {accuracy[chosen].mean():.4f} ({chosen.sum()})"
            if chosen.any()
            else f"no {what}"
            for what, chosen in (("accepted", accepted), ("rejected", ~accepted))
        )
        rank, chance = spearmanr(values, accuracy)
        print(f"{name}: rank correlation {rank:.2f} (p {chance:.2g}); {told}")


def cheaper(space: NetworkSpace, judge: Judge, times: float) -> Candidate:
    """The network of most Fisher Potential with about so many times fewer multiply-adds."""
    from chameleon_core.plugins import default_registry  # noqa: PLC0415

    score = default_registry().create("network_scores", "fisher")
    before = space.candidate(space.original).multiply_adds
    found = [one for one in spread(space, 2000) if 1.0 <= before / one.multiply_adds / times <= 1.4]
    return max(found[:100], key=lambda one: judge.score(one, score))


def trained_again(given: argparse.Namespace) -> None:
    """Train a network, transform it, train it again with the script, on three seeds."""
    for seed in range(given.seeds):
        train, held_out = digits(seed)
        torch.manual_seed(seed)
        network = small_network()
        retrain.train(network, None, *train, options(given.epochs, seed), lambda _: None)
        space = digits_space(network.eval())
        judge = Judge(space, train[0][:16], train[1][:16], seed)
        candidate = cheaper(space, judge, 3.0)
        modules, _ = Carrier(space, candidate).modules()
        changed = changed_network(space.network.module, modules)
        before = retrain.accuracy(changed, *held_out, 256)
        retrain.train(
            changed, network, *train, options(given.epochs, seed, rate=0.02), lambda _: None
        )
        with tempfile.TemporaryDirectory() as folder:
            write_candidate(space, candidate, torch.zeros(DIGIT), Path(folder))
        fewer = space.candidate(space.original).multiply_adds / candidate.multiply_adds
        print(
            f"seed {seed}: original {retrain.accuracy(network, *held_out, 256):.4f}, transformed "
            f"({fewer:.1f} times fewer multiply-adds) {before:.4f} with the weights as carried "
            f"over, {retrain.accuracy(changed, *held_out, 256):.4f} trained again",
            flush=True,
        )


def main(given: Sequence[str] | None = None) -> None:
    """Run one of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = {
        "judge": judge,
        "latency": latency,
        "scores": scores,
        "retrain": trained_again,
    }
    parser.add_argument("what", choices=commands)
    parser.add_argument("network", nargs="*", help=f"of {', '.join(NETWORKS)}; all by default")
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--measurements", type=int, default=8, help="of each operator")
    parser.add_argument("--per-round", type=int, default=8, help="networks measured in a round")
    parser.add_argument("--networks", type=int, default=32, help="networks that are trained")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0, help="of torch; its own default if 0")
    parser.add_argument("--folder", type=Path, default=Path("runs/transforms"))
    options = parser.parse_args(given)
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"{processor()}, torch {torch.__version__} with {torch.get_num_threads()} threads")
    commands[options.what](options)


if __name__ == "__main__":
    main()
