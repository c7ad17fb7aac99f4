"""The weights of the network as one vector, and which parts of it each parameter server holds."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise

INPUTS, HIDDEN, CLASSES = 784, 100, 10

#: The variables, in the order in which the weights stand in the vector: weights and biases of both layers.
SHAPES = ((INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))

#: Where each variable lies in the vector.
PLACES = tuple(slice(*ends) for ends in pairwise(accumulate(map(math.prod, SHAPES), initial=0)))

#: Length of the vector: 79,510.
WEIGHTS = PLACES[-1].stop

#: Parts of the vector.
Share = tuple[slice, ...]


def shares(servers: int, shard: str) -> tuple[Share, ...]:
    """What each server holds.

    `even`: one part each, of lengths that differ by at most 1. `variable`: whole variables in turn, of which the
    first is the number of steps, as TensorFlow's `replica_device_setter` places those of its example mnist_replica.
    """
    if shard == "even":
        ends = [WEIGHTS * number // servers for number in range(servers + 1)]
        return tuple((slice(*both),) for both in pairwise(ends))
    turns = list(enumerate(PLACES, start=1))
    return tuple(tuple(place for turn, place in turns if turn % servers == server) for server in range(servers))


def length(share: Share) -> int:
    """Weights in it."""
    return sum(part.stop - part.start for part in share)
