"""Trains the transformed network again, with the original as its teacher; needs only torch.

    python retrain.py                     trains on the batches in the folder `data`
    python retrain.py --data FOLDER       trains on another folder

The folder holds `train.pt` and, to measure accuracy on other data, `test.pt`. Each file is a pair
(images, classes) that `torch.save` wrote: images as floats of shape (n, channels, rows, columns),
classes as integers of shape (n,). The script writes the weights to `retrained.pt`. Rename this file
to `network.weights.pt`, and `network.py` loads it. The method is distillation (Hinton et al.,
2015).
"""

from __future__ import annotations

import argparse
import copy
import importlib
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

HERE = Path(__file__).resolve().parent


def read(folder: Path, name: str) -> tuple[Tensor, Tensor]:
    """Read a file of images and classes for training, and check its shapes and numbers."""
    path = Path(folder) / f"{name}.pt"
    if not path.is_file():
        sys.exit(f"There is no {path}; see `python {Path(__file__).name} --help`.")
    images, classes = torch.load(path, weights_only=True)
    if images.dim() != 4 or classes.shape != images.shape[:1]:
        sys.exit(f"{path} has shapes {tuple(images.shape)} and {tuple(classes.shape)}.")
    if not torch.isfinite(images).all():
        sys.exit(f"{path} has numbers that are not finite.")
    return images.float(), classes.long()


def accuracy(network: nn.Module, images: Tensor, classes: Tensor, batch: int) -> float:
    """The share of images whose class the network predicts."""
    network.eval()
    with torch.no_grad():
        predicted = [network(part).argmax(1) for part in images.split(batch)]
    return float((torch.cat(predicted) == classes).float().mean())


def loss_of(
    scores: Tensor, taught: Tensor | None, classes: Tensor, weight: float, temperature: float
) -> Tensor:
    """The cross-entropy of scores (n, classes), and the distance to the teacher's outputs."""
    loss = nn.functional.cross_entropy(scores, classes)
    if taught is None:
        return loss
    distance = nn.functional.kl_div(
        nn.functional.log_softmax(scores / temperature, 1),
        nn.functional.log_softmax(taught / temperature, 1),
        reduction="batchmean",
        log_target=True,
    )
    return (1 - weight) * loss + weight * temperature**2 * distance


def train(  # noqa: PLR0917 - as in the calls
    network: nn.Module,
    teacher: nn.Module | None,
    images: Tensor,
    classes: Tensor,
    options: argparse.Namespace,
    report: Callable[[str], None] = print,
) -> bool:
    """Train the network in place; return whether every loss was finite."""
    if len(images) < 2:
        sys.exit("One sample has no statistics of a batch; give at least two.")
    batch = min(options.batch, len(images))
    generator = torch.Generator().manual_seed(options.seed)
    optimiser = torch.optim.SGD(
        network.parameters(), options.rate, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    steps = options.epochs * max(1, len(images) // batch)
    warm = max(1, steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda at: min(1.0, (at + 1) / warm) * 0.5 * (1 + math.cos(math.pi * at / steps))
    )
    if teacher is not None:
        teacher.eval()
    for epoch in range(options.epochs):
        network.train()
        good, total = copy.deepcopy(network.state_dict()), 0.0
        # The last batch is left out if it is not full: one of a single sample has no variance.
        order = torch.randperm(len(images), generator=generator).split(batch)
        full = [part for part in order if len(part) == batch]
        for part in full:
            taught = None
            if teacher is not None:
                with torch.no_grad():
                    taught = teacher(images[part])
            loss = loss_of(
                network(images[part]), taught, classes[part], options.distil, options.temperature
            )
            if not torch.isfinite(loss):
                network.load_state_dict(good)
                report(
                    f"epoch {epoch + 1}: the loss is {loss.item()}; the weights are those of the "
                    "epoch before. Try a smaller --rate."
                )
                return False
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 5.0)
            optimiser.step()
            schedule.step()
            total += float(loss.detach())
        report(f"epoch {epoch + 1} of {options.epochs}: loss {total / len(full):.4f}")
    return True


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default=HERE / "data", help="folder with train.pt and test.pt")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.02, help="learning rate at its highest")
    parser.add_argument(
        "--distil", type=float, default=0.7, help="weight of the original's answers"
    )
    parser.add_argument("--temperature", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", default=HERE / "retrained.pt")
    return parser.parse_args(words)


def main() -> int:
    """Train, print the accuracy of both networks, and save the weights."""
    options = arguments()
    sys.path.insert(0, str(HERE))
    network, original = (importlib.import_module(name) for name in ("network", "original"))
    torch.manual_seed(options.seed)
    images, classes = read(options.data, "train")
    student, _ = network.make()
    teacher, _ = original.make()
    finite = train(student, teacher, images, classes, options)
    if (Path(options.data) / "test.pt").is_file():
        held_out = read(options.data, "test")
        for name, model in (("original", teacher), ("transformed", student)):
            print(f"accuracy of the {name}: {accuracy(model, *held_out, options.batch):.4f}")
    torch.save(student.state_dict(), options.output)
    return 0 if finite else 1


if __name__ == "__main__":
    sys.exit(main())
