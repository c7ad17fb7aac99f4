"""qperf: bandwidth and latency of TCP between two ranks, of which each may be in a container of its own.

qperf measures both by one command, and counts at both ends. iperf3 has no messages that are answered; netperf is not
free software to Debian. Rank 0 is the server, which the client ends. Rank 1 is the client, and says what was measured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from collbench.schema.case import Case
from collbench.workloads.host.files import SHORTEST
from collbench.workloads.program import Measure, Program, parameter
from collbench.workloads.software import Software

BYTES = 1e9  #: A bandwidth is stored as the time of so many bytes.

#: Least, usual and largest size of a socket's buffer (bytes): those of two hold what is on its way at the end.
BUFFERS = ("/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/tcp_wmem")


def listening(port: int | str) -> tuple[str, ...]:
    """The command of a server."""
    return ("qperf", "--listen_port", str(port))


def client(server: str, port: int | str, options: Sequence[str]) -> tuple[str, ...]:
    """The command of a client, which waits 30 s for its server and ends it. Latency is that of 1 byte."""
    return ("qperf", server, "--listen_port", str(port), "--wait_server", "30", "--precision", "9", "-uu", "-vvs",
            *options, "tcp_bw", "--msg_size", "1", "tcp_lat", "quit")  # fmt: skip


def options(case: Case) -> tuple[str, ...]:
    """Of a client: how long, and with what messages."""
    return ("-t", str(case["seconds"]), "-m", str(case["message"]))


def _rank(case: Case) -> str:
    """The command of a rank, for a shell, which knows the rank."""
    serve, ask = listening("$MASTER_PORT"), client("$MASTER_ADDR", "$MASTER_PORT", options(case))
    return f'if [ "$RANK" = 0 ]; then exec {" ".join(serve)}; fi; exec {" ".join(ask)}'


def _numbers(output: str) -> Mapping[str, float]:
    """By test and name, in bytes, ns and seconds: `tcp_bw send_bytes`."""
    parts = re.split(r"^(tcp_\w+):$", output, flags=re.MULTILINE)
    return {f"{test} {name}": float(number) for test, text in zip(parts[1::2], parts[2::2], strict=True)
            for name, number in re.findall(r"^ +(\w+) += +([0-9.]+)", text, re.MULTILINE)}  # fmt: skip


def parse(output: str) -> Mapping[str, Sequence[float]]:
    numbers = _numbers(output)
    return {"transfer": [BYTES / numbers["tcp_bw bw"]], "message": [numbers["tcp_lat latency"] * 1e-9]}


def elapsed(case: Case, output: str) -> float:
    """Seconds of both tests at least: qperf reads the time in steps of 10 ms (times(2))."""
    numbers = _numbers(output)
    sent = numbers["tcp_lat loc_send_msgs"] + numbers["tcp_lat rem_send_msgs"]  # one after the other
    return numbers["tcp_bw recv_bytes"] / numbers["tcp_bw bw"] + sent * numbers["tcp_lat latency"] * 1e-9 - 0.02


def verify(case: Case, output: str) -> int:
    """Bytes and messages that only one end counts, but for the last ones on their way; and whether it ended early."""
    numbers, held = _numbers(output), sum(int(Path(path).read_text(encoding="ascii").split()[2]) for path in BUFFERS)
    under_way = numbers["tcp_bw send_bytes"] - numbers["tcp_bw recv_bytes"]
    lost = max(under_way - held, -under_way - case["message"], 0)
    for sender, receiver in (("loc", "rem"), ("rem", "loc")):
        lost += max(abs(numbers[f"tcp_lat {sender}_send_msgs"] - numbers[f"tcp_lat {receiver}_recv_msgs"]) - 1, 0)
    return int(lost) + int(elapsed(case, output) < SHORTEST * 2 * case["seconds"])


WORKLOAD = Program(
    name="qperf", suite="network", title="qperf",
    summary="bandwidth and latency of TCP between two ranks, the server and the client",
    measures=(Measure("transfer", lambda case: BYTES), Measure("message", lambda case: 1, "messages", shown="time")),
    argv=lambda case, times: ("sh", "-c", _rank(case)),
    parse=parse, verify=verify, elapsed=elapsed, seconds=lambda case: float(2 * case["seconds"]),
    refuses=lambda case: None if case["ranks"] == 2 else "it takes two ranks, a server and a client",
    software=(Software("qperf", "qperf"),), repeated=True, distributed=True, reporter=1,
    axes=(
        parameter("message", 65_536, "bytes that are sent at once where bandwidth is measured", least=1, most=1 << 30),
        parameter("seconds", 5, "time of each test in a sample", least=1, most=3600),
    ),
)  # fmt: skip
