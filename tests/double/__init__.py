"""A GPU that is none, for machines without one: memory that the host may not touch, and a stream that waits.

Device addresses point at pages without any right: a library that is handed one, or a copy that is missing, ends in
SIGSEGV. What is enqueued happens only when the stream is waited for: a missing completion leaves the poison in place.
The functions have C addresses, so that the native loop calls them as it calls CUDA and NCCL.
"""
