"""Deep learning by torch: training, alone and by many ranks, and the operations that training consists of.

Nothing but the registry knows this package. Plans are made of it without torch; what runs in a rank imports it.
"""

FAMILIES = {
    "deepbench_programs": ("deepbench_conv", "deepbench_gemm", "deepbench_rnn"),
    "suite": ("ddp", "parameter_server", "time_to_train", "train"),
}
HELPERS = ("datasets", "ddp", "fathom_networks", "fathom_sequences", "parameter_server", "time_to_train", "train",
           "transformer")  # fmt: skip
