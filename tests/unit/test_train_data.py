"""As many examples as a training is to have."""

from __future__ import annotations

import numpy as np

from collbench.workloads.dl.datasets import Examples, as_many, described


def test_rows_come_in_random_order_and_again_where_they_are_few() -> None:
    rows = np.arange(30, dtype=np.uint8).reshape(10, 3)
    many = as_many(rows, 25)
    assert sorted(many[:10].tolist()) == rows.tolist() and many[:10].tolist() != rows.tolist()
    assert (many[10:20] == many[:10]).all() and (many[20:] == many[:5]).all()
    assert (as_many(rows, 4) == many[:4]).all()


def test_a_label_says_how_many_of_them_and_from_which_files() -> None:
    rows, files = np.zeros((10, 3), np.uint8), {"a": "0123456789abcdef", "b": "f" * 64}
    assert described(Examples(rows, "made-up 10 x 2"), 10) == "made-up 10 x 2"
    of_files = "(a sha256 0123456789ab, b sha256 ffffffffffff)"
    assert described(Examples(rows, "MNIST", files), 4) == f"MNIST, 4 of 10 examples {of_files}"
    assert described(Examples(rows, "MNIST", files), 12) == f"MNIST, 10 examples, repeated up to 12 {of_files}"
