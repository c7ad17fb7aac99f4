"""Builds the parts in C, and puts plans and Dockerfiles into the package; the rest is in pyproject.toml."""

import os
import re
from pathlib import Path
from typing import Any

from setuptools import Command, Extension, setup
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext

#: What an installed collbench needs beside its code: launch plans, Dockerfiles, and what installs it in an image.
SHIPPED = (
    "LICENSE", "README.md", "constraints.txt", "pyproject.toml", "setup.py",
    "launch/*.toml", "containers/*.Dockerfile", "containers/with/*.Dockerfile", "containers/site/README.md",
)  # fmt: skip

FLAGS = ["-std=gnu11", "-Wall", "-Wextra", "-Werror=implicit-function-declaration"]


# All optional, unless COLLBENCH_PARTS is "all", as for what is published: without a compiler installation succeeds, the
# python driver is used, the workload says why it is skipped, and readings of yardsticks say why they have no values.
OPTIONAL = os.environ.get("COLLBENCH_PARTS") != "all"


def part(name: str, *flags: str, **fields: Any) -> Extension:
    """The module of a source in C, compiled with these flags."""
    source = f"src/collbench/{name.replace('.', '/')}.c"
    return Extension(f"collbench.{name}", [source], extra_compile_args=[*flags, *FLAGS], optional=OPTIONAL, **fields)


MODULES = (
    part("timing._loop", "-O2", depends=["src/collbench/timing/_loop_timed.h"], py_limited_api=True),
    # as stream.c is usually compiled: gcc then makes a call of memcpy of the copy, there as here
    part("workloads._stream", "-O3", "-pthread", extra_link_args=["-pthread"], py_limited_api=True),
    part("workloads._chase", "-O2", py_limited_api=True),
    part("yardsticks._yardsticks", "-O2", "-pthread", extra_link_args=["-pthread"], py_limited_api=True),
)
# A program: static, so that it is the same in every image.
CLOCK = part("workloads._clock", "-O2", "-static", extra_link_args=["-static", "-s"])


#: Where links of the README lead on an index, which has no other file of the clone.
FILES = "https://github.com/collbench/collbench/"


def page_of_index() -> str:
    """The README, with whole addresses in the place of paths."""
    text = Path("README.md").read_text(encoding="utf-8")
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:|#)", rf"\g<1>{FILES}raw/main/", text)
    return re.sub(r"(?<=\]\()(?!https?:|#)", f"{FILES}blob/main/", text)


class BuildParts(build_ext):
    """Links `CLOCK` as a program, which has no suffix, and all others as modules."""

    def get_ext_filename(self, fullname: str) -> str:
        """The path of a part, relative to the folder of packages."""
        is_program = fullname.rpartition(".")[2] == CLOCK.name.rpartition(".")[2]
        return str(Path(*fullname.split("."))) if is_program else super().get_ext_filename(fullname)

    def build_extension(self, ext: Extension) -> None:
        """Compile and link a part."""
        if ext is not CLOCK:
            super().build_extension(ext)
            return
        path = Path(self.get_ext_fullpath(ext.name))
        objects = self.compiler.compile(ext.sources, self.build_temp, extra_postargs=ext.extra_compile_args)
        self.compiler.link_executable(objects, path.name, str(path.parent), extra_postargs=ext.extra_link_args)


class BuildSourceTree(Command):
    """Copies `SHIPPED` to collbench/source_tree; an editable installation finds it in the clone.

    The methods are those that setuptools asks of a part of `build`: what it names as its sources goes into the sdist.
    """

    def initialize_options(self) -> None:
        """Before anything is known."""
        self.build_lib = ""
        self.editable_mode = False

    def finalize_options(self) -> None:
        """Into the same folder as the code."""
        self.build_lib = self.get_finalized_command("build_py").build_lib

    def get_source_files(self) -> list[str]:
        """Where an image is made of it there are no plans and no Dockerfiles, and so none in the image."""
        return sorted(str(path) for pattern in SHIPPED for path in Path().glob(pattern))

    def get_output_mapping(self) -> dict[str, str]:
        """Copy to source."""
        root = Path(self.build_lib, "collbench", "source_tree")
        return {str(root / source): source for source in self.get_source_files()}

    def get_outputs(self) -> list[str]:
        """The copies."""
        return list(self.get_output_mapping())

    def run(self) -> None:
        """Copy."""
        if self.editable_mode:
            return
        for copy, source in self.get_output_mapping().items():
            self.mkpath(str(Path(copy).parent))
            self.copy_file(source, copy)


build.sub_commands.append(("build_source_tree", None))
setup(
    long_description=page_of_index(),
    long_description_content_type="text/markdown",
    ext_modules=[*MODULES, CLOCK],
    data_files=[
        ("share/man/man1", [str(page) for page in Path().glob("share/man/man1/*.1")])
    ],  # tools/dist.py makes it
    cmdclass={"build_ext": BuildParts, "build_source_tree": BuildSourceTree},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
