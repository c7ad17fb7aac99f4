"""Builds the native timing loop; everything else about the package stands in pyproject.toml."""

from setuptools import Extension, setup

LOOP = Extension(
    "collbench.timing._loop",
    sources=["src/collbench/timing/_loop.c"],
    extra_compile_args=["-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror=implicit-function-declaration"],
    py_limited_api=True,
    optional=True,  # without a compiler installation succeeds, and the python driver is used
)

setup(ext_modules=[LOOP], options={"bdist_wheel": {"py_limited_api": "cp311"}})
