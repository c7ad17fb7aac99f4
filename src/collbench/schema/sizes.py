"""The sizes of a sweep: a range, or a list."""

from __future__ import annotations

import msgspec

from collbench.errors import PlanError
from collbench.units import parse_size

#: A sweep of more sizes than this is a typing error.
MOST_SIZES = 10_000


class Sizes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sweep from `min` to `max` bytes: times `factor`, or plus `step` bytes when that is given."""

    min: str | int = "8"
    max: str | int = "4M"
    factor: int = 2
    step: str | int | None = None

    def expand(self) -> tuple[int, ...]:
        """The sizes in bytes, ascending.

        Raises:
            PlanError: min above max; a factor below 2, a step below 1 or far too many steps where more than one size
                is asked for.
            UnitError: a size that cannot be read.
        """
        low, high = parse_size(self.min), parse_size(self.max)
        if low > high:
            raise PlanError(f"sizes: min {self.min} is above max {self.max}. Swap them, or give one size as both.")
        if low == high:
            return (low,)
        step = None if self.step is None else parse_size(self.step)
        if step is not None and step < 1:
            raise PlanError("sizes: step must be at least 1 byte.")
        if step is None and self.factor < 2:
            raise PlanError(f"sizes: factor {self.factor} never reaches max. Use 2 or more, or a step in bytes.")
        if step is not None and (high - low) // step >= MOST_SIZES:
            raise PlanError(f"sizes: step {self.step} gives more than {MOST_SIZES} sizes. A larger one, or a factor?")
        sizes = [low]
        while (following := sizes[-1] * self.factor or 1 if step is None else sizes[-1] + step) <= high:
            sizes.append(following)
        return tuple(sizes)


def sizes_in_bytes(asked: Sizes | tuple[str | int, ...] | None) -> tuple[int, ...]:
    """The sizes that a plan asks for; 8 B to 4 MiB where it says nothing.

    Raises:
        PlanError, UnitError: as `Sizes.expand`.
    """
    if asked is None or isinstance(asked, Sizes):
        return (asked or Sizes()).expand()
    return tuple(parse_size(size) for size in asked)
