"""The networks of Fathom, one file each: our own definitions, of the source of 2019-12 (rdadolf/fathom, 1dc013d).

Oddities that change what is computed are kept, and named in each file. What differs from the original everywhere: the
data are made up; the optimizers are torch's, whose epsilon stands elsewhere in the formula; images are [3, height,
width]; nothing that the original does between two steps is here (reading data, decoding, evaluation, summaries).

This package knows them as far as plans need to, without torch.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Bytes of a number: everything is float32.
ITEM = 4


@dataclass(frozen=True)
class Size:
    """How large a network is.

    `batch` is that of the original, and `on_cpu` the one that a processor gets in its place. `parameters` are numbers
    that are trained; there are so many `copies` of them at a time: weights, gradients, what the optimizer keeps, and
    what it needs while it works. `activations` are the bytes that a sample needs beside them, about.
    """

    batch: int
    parameters: int
    copies: int
    activations: int
    on_cpu: int = 0

    def usual(self, device: str) -> int:
        """The batch where none is asked for."""
        return self.on_cpu if device == "cpu" and self.on_cpu else self.batch

    def memory(self, batch: int, device: str) -> int:
        """Bytes of the host, about: on a GPU the weights alone, which are made here."""
        weights = ITEM * self.parameters
        return weights if device != "cpu" else weights * self.copies + batch * self.activations


MIB = 1 << 20

NETWORKS = {
    "seq2seq": Size(64, 34_633_792, 3, 8 * MIB),
    "memnet": Size(32, 1_800, 6, MIB),
    "speech": Size(32, 2_190_398, 3, 80 * MIB),
    "speech-recurrent": Size(32, 6_386_750, 3, 160 * MIB, on_cpu=1),
    "autoenc": Size(128, 471_584, 6, MIB),
    "residual": Size(16, 6_178_624, 6, 400 * MIB, on_cpu=1),
    "vgg": Size(8, 137_771_561, 6, 240 * MIB, on_cpu=1),
    "alexnet": Size(64, 61_104_937, 6, 16 * MIB),
    "deepq": Size(32, 1_686_180, 5, MIB),
}
