from typing_extensions import Buffer

Words = tuple[int, ...]
GateFields = tuple[int, Words | None, Words | None, Buffer, bool, int, int]

def measure(
    call: Words, completion: Words | None, gate: GateFields, entered: Buffer, left: Buffer, late: Buffer
) -> tuple[int, int]: ...
def set_limit(seconds: float, text: str, code: int) -> None: ...
def lift_limit() -> None: ...
