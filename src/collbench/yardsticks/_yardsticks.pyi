from typing import Literal

def run(
    work: Literal["exchange", "compute", "copy"], cores: tuple[int, ...], amount: int, repeats: int, limit: float
) -> tuple[tuple[int, int], ...]: ...
