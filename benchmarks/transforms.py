"""What `chameleon transform` reaches, and whether its checks are worth anything.

    python benchmarks/transforms.py latency [NETWORK ...]    the fastest network that is accepted,
                                                             tuned and timed whole
    python benchmarks/transforms.py scores [NETWORK ...]     rank correlation with accuracy, digits
    python benchmarks/transforms.py retrain [NETWORK ...]    accuracy of a network 3 times as fast

The first takes networks for CIFAR's images and for large ones, the others those for digits.
`--candidates`, `--networks`, `--epochs`, `--seeds` and `--threads` make them shorter.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from chameleon_core._pipeline.load import from_dict
from chameleon_system._processor import processor_name
from chameleon_transforms._session import Session
from transform_digits import NETWORKS as DIGIT_NETWORKS
from transform_retrain import retrained
from transform_scores import report, trained
from transform_whole import Whole, whole

HERE = Path(__file__).resolve().parent
NETWORKS = ("resnet18_cifar", "resnet18_large")
SCORES = ("fisher", "synflow", "naswot", "parameters", "multiply-adds")


def session(
    network: str, folder: Path, keys: Mapping[str, Any] | None = None, **options: Any
) -> Session:
    """What the command makes of one of the networks.

    Args:
        network: a function of `transform_networks.py`.
        folder: where its measurements are kept.
        keys: others of the pipeline.
        options: of the section `transform`.
    """
    source = f"{HERE / 'transform_networks.py'}:{network}"
    document = {
        "model": {"torch": source},
        "target": "native",
        "transform": options,
        "baselines": [],
        "output": str(folder / network),
        **(keys or {}),
    }
    return Session(from_dict(document))


def latency(given: argparse.Namespace) -> None:
    """The fastest network that is accepted, against the tuned original."""
    budget = {"budget": {"measurements": given.budget, "scope": "network"}} if given.budget else {}
    keys = {"scheduler": "gradient", **budget} if given.preset is None else {"preset": given.preset}
    options = {
        "scores": [given.score],
        "candidates": given.candidates,
        "measurements": given.measurements,
        "per_round": given.per_round,
    }
    for name in given.network or NETWORKS:
        found = session(name, given.folder, keys, **options)
        result = found.run()
        before = result["original"]["seconds"]
        best = result["front"][0]
        how = "measured" if result["measured"] else "predicted"
        print(
            f"{name}: original {1e3 * before:.3f} ms, fastest accepted by {given.score} "
            f"{1e3 * best['seconds']:.3f} ms, {before / best['seconds']:.2f} times as fast, sums "
            f"of convolutions {how} alone; {result['judged']} judged, {result['seconds']:.0f} s",
            flush=True,
        )
        if not given.budget:
            continue
        show_whole(f"{name}: whole networks, as delivered", whole(found, result, 0))
        for kind in given.precision:
            typed = session(name, given.folder / kind, {**keys, "precision": kind}, **options)
            show_whole(f"{name}: both with `precision: {kind}`", whole(typed, result, 0))


def show_whole(what: str, timed: Whole) -> None:
    """Print what two whole networks take."""
    print(
        f"{what}: original {1e3 * timed.original:.3f} ms, transformed "
        f"{1e3 * timed.point:.3f} ms, {statistics.median(timed.ratios):.2f} times as fast "
        f"({timed.ratios[0]:.2f} to {timed.ratios[-1]:.2f} turn by turn)",
        flush=True,
    )


# -- the digits -------------------------------------------------------------------------------


def scores(given: argparse.Namespace) -> None:
    """Train random networks from scratch and rank scores by how they foretell the accuracy."""
    for name in given.network or DIGIT_NETWORKS:
        file = given.folder / f"{name}.trained"
        counts = {"networks": given.networks, "epochs": given.epochs, "seeds": given.seeds}
        report(name, SCORES, trained(name, SCORES, file, **counts))


def retraining(given: argparse.Namespace) -> None:
    """Train a network, transform it, train it again with the script, on three seeds."""
    for name in given.network or DIGIT_NETWORKS[:1]:
        found = retrained(name, given.epochs, given.folder / "retrained", given.seeds)
        for seed, one in enumerate(found):
            print(
                f"{name}, seed {seed}: original {one.original:.4f}, transformed ({one.fewer:.2f} "
                f"times fewer multiply-adds, {one.score:.2f} of the original's score) "
                f"{one.carried:.4f} with the weights as carried over, {one.again:.4f} after the "
                f"script, {one.again - one.original:+.4f}",
                flush=True,
            )


def main(given: Sequence[str] | None = None) -> None:
    """Run one of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = {
        "latency": latency,
        "scores": scores,
        "retrain": retraining,
    }
    parser.add_argument("what", choices=commands)
    parser.add_argument("network", nargs="*", help=f"of {', '.join((*NETWORKS, *DIGIT_NETWORKS))}")
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--measurements", type=int, default=8, help="of each operator")
    parser.add_argument("--per-round", type=int, default=8, help="networks measured in a round")
    parser.add_argument(
        "--budget", type=int, default=300, help="measurements of a whole network; 0 compiles none"
    )
    parser.add_argument(
        "--precision",
        action="append",
        default=[],
        metavar="TYPE",
        help="tune and time the whole networks in this type, too; may be given again",
    )
    parser.add_argument("--score", default="fisher", help="what decides; the paper's by default")
    parser.add_argument("--preset", help="of the pipeline, such as one-shot")
    parser.add_argument("--networks", type=int, default=32, help="networks that are trained")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3, help="trainings of each network")
    parser.add_argument("--threads", type=int, default=0, help="of torch; its own default if 0")
    parser.add_argument("--folder", type=Path, default=Path("runs/transforms"))
    options = parser.parse_args(given)
    if options.threads:
        torch.set_num_threads(options.threads)
    print(f"{processor_name()}, torch {torch.__version__} with {torch.get_num_threads()} threads")
    commands[options.what](options)


if __name__ == "__main__":
    main()
