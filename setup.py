"""Builds the parts in C; everything else about the package stands in pyproject.toml."""

from setuptools import Extension, setup

FLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror=implicit-function-declaration"]

# Both optional: without a compiler installation succeeds, the python driver is used, and the workload says why it is
# skipped.
LOOP = Extension(
    "collbench.timing._loop",
    sources=["src/collbench/timing/_loop.c"],
    extra_compile_args=["-O2", *FLAGS],
    py_limited_api=True,
    optional=True,
)
STREAM = Extension(
    "collbench.workloads._stream",
    sources=["src/collbench/workloads/_stream.c"],
    # a copy stays a loop as the other kernels are: memcpy writes past the caches, which none of them does
    extra_compile_args=["-O3", "-fno-tree-loop-distribute-patterns", *FLAGS],
    py_limited_api=True,
    optional=True,
)

setup(ext_modules=[LOOP, STREAM], options={"bdist_wheel": {"py_limited_api": "cp311"}})
