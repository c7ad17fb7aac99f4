from typing_extensions import Buffer

Words = tuple[int, ...]
AlignmentFields = tuple[int, Words | None, Words | None, Buffer, bool, int, int, int, float, int]

def measure(
    stages: tuple[tuple[Words, ...], ...],
    completion: Words | None,
    align: AlignmentFields,
    burst: int,
    entered: Buffer,
    left: Buffer,
    late: Buffer,
    marks: Buffer | None,
    reading: tuple[Words, int] | None,
    device: Buffer | None,
    halt: Buffer,
) -> tuple[int, int, int]: ...
def exchange(
    send: Words,
    receive: Words,
    cell: Buffer,
    n: int,
    before: Buffer | None,
    theirs: Buffer | None,
    after: Buffer | None,
) -> tuple[int, int]: ...
def set_limit(seconds: float, text: str, code: int) -> None: ...
def lift_limit() -> None: ...
