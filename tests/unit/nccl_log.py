"""Lines of NCCL's log by the version that writes them, after the formats of its sources, and what is read of each.

For 2.32, whose sources are not public yet, after the formats in the library. Names, numbers, addresses are made up.
"""

from __future__ import annotations

from typing import NamedTuple


class Line(NamedTuple):
    """What follows `NCCL INFO`, and the first and the last of `VERSIONS` that write it so."""

    text: str
    first: str
    last: str


#: Those whose sources or library were read.
VERSIONS = ("2.19.3", "2.22.3", "2.23.4", "2.24.3", "2.27.7", "2.28.9", "2.29.2", "2.29.7", "2.30.7", "2.32.3")
FIRST, LAST = VERSIONS[0], VERSIONS[-1]

#: Lines of a connection, and the way that is named; None: it is not about one.
WAYS: dict[Line, str | None] = {
    Line("Channel 00/0 : 0[0] -> 1[1] via P2P/direct pointer", FIRST, LAST): "P2P/direct pointer",
    Line("Channel 03/1 : 4[4] -> 5[5] via P2P/direct pointer/read", FIRST, LAST): "P2P/direct pointer/read",
    Line("Channel 00/0 : 0[0] -> 1[1] via P2P/IPC", FIRST, LAST): "P2P/IPC",
    Line("Channel 00/0 : 0[0] -> 1[1] via P2P/IPC/read/CE", FIRST, LAST): "P2P/IPC/read/CE",
    Line("Channel 23/0 : 6[6] -> 7[7] via P2P/CUMEM", FIRST, LAST): "P2P/CUMEM",
    Line("Channel 23/0 : 6[6] -> 7[7] via P2P/CUMEM/read", FIRST, LAST): "P2P/CUMEM/read",
    Line("Channel 01/0 : 3[3] -> 4[0] via P2P/CUMEM/CE", FIRST, LAST): "P2P/CUMEM/CE",
    Line("Channel 11/0 : 3[3] -> 4[0] via P2P/MNNVL", "2.22.3", LAST): "P2P/MNNVL",
    Line("Channel 02/0 : 0[0] -> 3[3] via P2P/indirect/2[2]", FIRST, LAST): "P2P/indirect/2[2]",
    Line("Channel 02/0 : 0[0] -> 3[3] via P2P/indirect/2[2]/read", FIRST, LAST): "P2P/indirect/2[2]/read",
    Line("Channel 00 : 0[0] -> 1[1] via SHM/direct/direct", FIRST, "2.29.7"): "SHM/direct/direct",
    Line("Channel 00 : 0[0] -> 1[1] via SHM/CE/direct", FIRST, "2.29.7"): "SHM/CE/direct",
    Line("Channel 07 : 1[1] -> 0[0] via SHM/CE/CE", FIRST, "2.29.7"): "SHM/CE/CE",
    Line("Channel 07 : 1[1] -> 0[0] via SHM/direct", "2.30.7", LAST): "SHM/direct",
    Line("Channel 00/0 : 1[1] -> 2[0] [send] via NET/Socket/0", FIRST, LAST): "NET/Socket/0",
    Line("Channel 00/0 : 3[1] -> 0[0] [receive] via NET/Socket/1/Shared", FIRST, LAST): "NET/Socket/1/Shared",
    Line("Channel 05/1 : 9[1] -> 1[1] [send] via NET/IB/4/GDRDMA/Shared", FIRST, LAST): "NET/IB/4/GDRDMA/Shared",
    Line("Channel 05/0 : 9[1] -> 1[1] [receive] via NET/IB/4/GDRDMA", FIRST, LAST): "NET/IB/4/GDRDMA",
    Line("Channel 05/0 : 9[1] -> 1[1] [receive] via NET/IB/4/GDRDMA(PCI)", "2.27.7", LAST): "NET/IB/4/GDRDMA(PCI)",
    # through the network card of another GPU (PXN), by its proxy's rank
    Line("Channel 05/1 : 9[1] -> 6[6] [send] via NET/IB/4(12)/GDRDMA", FIRST, LAST): "NET/IB/4(12)/GDRDMA",
    Line("Channel 01/0 : 0[0] -> 8[0] [send] via NET/Made Up/2/GDRDMA", FIRST, LAST): "NET/Made Up/2/GDRDMA",
    Line("CollNet 00/1 : 0 [send] via COLLNET/SHARP/0", FIRST, LAST): "COLLNET/SHARP/0",
    Line("CollNet 01/0 : 8 [receive] via COLLNET/SHARP/3/GDRDMA", FIRST, LAST): "COLLNET/SHARP/3/GDRDMA",
    Line("CollNet 01/0 : 8 [receive] via COLLNET/SHARP/3/GDRDMA(PCI)", "2.27.7", LAST): "COLLNET/SHARP/3/GDRDMA(PCI)",
    Line("NVLS comm 0x7a10 headRank 2 nHeads 8 buffSize 4194304 memSize 2097152 nvlsPerRankSize 201326592 "
         "nvlsTotalSize 1610612736", FIRST, FIRST): "NVLS",
    Line("NVLS comm 0x7a10 headRank 2 nHeads 8 buffSize 4194304 nvlsPerRankSize 201326592 nvlsTotalSize 1610612736",
         "2.22.3", "2.24.3"): "NVLS",
    Line("NVLS comm 0x7a10 headRank -1 nHeads 8 nvlsRanks 8 buffSize 4194304 nvlsPerRankSize 201326592 nvlsTotalSize "
         "1610612736", "2.27.7", LAST): "NVLS",
    Line("NVLS multicast support is available on dev 3", FIRST, LAST): None,
    Line("Channel 00/24 : 0 1 2 3", FIRST, LAST): None,
    Line("Using network Socket", FIRST, LAST): None,
    Line("Connected all rings", FIRST, LAST): None,
}  # fmt: skip

#: Lines of a call, and the algorithm and protocol that were chosen; None: it is not about a choice.
CHOICES: dict[Line, tuple[str, str | None] | None] = {
    Line("65536 Bytes -> Algo 0 proto 0 time 21.500000", "2.22.3", "2.22.3"): ("TREE", "LL"),
    Line("AllReduce: 1048576 Bytes -> Algo 1 proto 2 time 63.250000", "2.23.4", "2.23.4"): ("RING", "SIMPLE"),
    Line("AllGather: 8192 Bytes -> Algo 6 proto 2 time 30.125000", "2.23.4", "2.23.4"): ("PAT", "SIMPLE"),
    **{
        Line(f"AllReduce: 4194304 Bytes -> Algo {algorithm} proto {protocol} channel{{Lo..Hi}}={{0..15}}{more}",
             first, last): (algorithm, protocol)
        for first, last, more in (("2.24.3", "2.30.7", ""), ("2.32.3", LAST, " cgaClusterSize 4"))
        for algorithm, protocol in (
            ("RING", "LL"), ("TREE", "LL128"), ("COLLNET_DIRECT", "SIMPLE"), ("COLLNET_CHAIN", "SIMPLE"),
            ("NVLS", "SIMPLE"), ("NVLS_TREE", "SIMPLE"), ("PAT", "SIMPLE"))
    },
    Line("AllReduce [Symmetric]: 2048 Bytes -> Kernel AllReduce_AGxLLMC_R nchannels 8 nthreads 512", "2.27.7",
         "2.27.7"): ("SYMMETRIC", "AGxLLMC_R"),
    Line("AllGather [Symmetric]: 2048 Bytes -> Kernel AllGather_STMC nchannels 8 nthreads 512 nWorks 1", "2.28.9",
         LAST): ("SYMMETRIC", "STMC"),
    Line("ReduceScatter [Symmetric]: 9 Bytes -> Kernel ReduceScatter_RailA2A_LsaLDMC nchannels 4 nthreads 640 nWorks 3",
         "2.29.7", LAST): ("SYMMETRIC", "RailA2A_LsaLDMC"),
    Line("AllReduce [Symmetric]: 2048 Bytes -> Kernel Unknown nchannels 8 nthreads 512 nWorks 1", "2.28.9",
         LAST): ("SYMMETRIC", "Unknown"),
    Line("AllGather [Copy Engine]: 8388608 Bytes -> cudaMemcpy", "2.29.2", LAST): ("COPY_ENGINE", None),
    Line("AlltoAll [Copy Engine]: 8388608 Bytes -> cudaMemcpy; CE synchronization with NVLS", "2.29.2",
         LAST): ("COPY_ENGINE", None),
    Line("AlltoAll [Hierarchical CE]: 8388608 Bytes -> RMA proxy + CE", "2.30.7", LAST): ("HIERARCHICAL_CE", None),
    Line("AllGather [Hierarchical CE]: 8388608 Bytes -> Rail ring RMA proxy + CE", "2.32.3",
         LAST): ("HIERARCHICAL_CE", None),
    Line("ReduceScatter_RailA2A_LsaLDMC : satblocks=4 bufsize=65536 effbw=40.5", "2.29.7", LAST): None,
    Line("AllReduce: tuner chunk size 8388608 exceeds buffer max 4194304, clamping", "2.30.7", LAST): None,
    Line("TUNER/Plugin: Using internal tuner plugin.", "2.22.3", "2.27.7"): None,
}  # fmt: skip

#: Lines of a plugin, and what is named beside the network that it brings.
PLUGINS: dict[Line, str | None] = {
    **{Line(f"NET/Plugin: Loaded net plugin Made Up (v{interface})", first, last): f"Made Up v{interface}"
       for interface, first, last in ((5, FIRST, "2.23.4"), (6, FIRST, LAST), (7, "2.22.3", LAST), (8, "2.24.3", LAST),
                                      (9, "2.24.3", LAST), (10, "2.27.7", LAST), (11, "2.28.9", LAST),
                                      (12, "2.30.7", LAST))},
    Line("NET/Plugin: Loaded coll plugin SHARP (v6)", FIRST, FIRST): None,
    Line("NET/Plugin: Loaded collnet plugin SHARP (v10)", "2.27.7", LAST): None,
    Line("NET/Plugin: Loaded gin plugin Made Up (v11)", "2.28.9", "2.29.7"): None,
    Line("GIN/Plugin: Loaded gin plugin Made Up (v13)", "2.30.7", LAST): None,
    Line("RMA/Plugin: Loaded rma plugin Made Up (v13)", "2.30.7", LAST): None,
    Line("NET/Plugin: Using internal network plugin.", "2.22.3", "2.24.3"): None,
    Line("Successfully loaded external network plugin libnccl-net-made-up.so", "2.28.9", LAST): None,
    Line("Using NCCL_NET_DEVICE_UNPACK net plugin version 7", FIRST, LAST): None,
}  # fmt: skip


def log_of(*lines: Line) -> str:
    return "".join(f"host:17:42 [0] NCCL INFO {line.text}\n" for line in lines)
