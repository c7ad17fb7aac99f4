"""deepbench_rnn: DeepBench's recurrent layers by torch: forward, and the gradients of the input and of the weights."""

from __future__ import annotations

from collbench.workloads._deepbench import Rnn, benchmark
from collbench.workloads._torch import Torch

WORKLOAD = benchmark(
    Rnn,
    "DeepBench rnn",
    "recurrent layers (vanilla, LSTM, GRU), forward and backward through time",
    ("forward", "backward_data", "backward_weights"),
    usual="lstm_h512_n16_t25",
    most=2e10,
    software=(Torch(),),
)
