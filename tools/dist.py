"""Builds what a release consists of, into dist/: the sdist, and a wheel for x86-64 and one for AArch64.

`make dist` runs this in an environment of its own. Zig compiles the parts in C for both processors, and for the C
library of 2014 (glibc 2.17), whatever this machine has. auditwheel tells from the symbols whether that is so. All times
are that of the commit, and owners are left out, so two builds of a commit are the same bytes.

As `python tools/dist.py cc ARCH ...` it is the compiler that setup.py starts.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURES, GLIBC = ("x86_64", "aarch64"), (2, 17)


def compile_with_zig(arch: str, arguments: list[str]) -> None:
    """A static program has musl in it, which needs nothing of a system."""
    library = "musl" if "-static" in arguments else f"gnu.{GLIBC[0]}.{GLIBC[1]}"
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"{arch}-linux-{library}", "-fno-sanitize=undefined"]
    os.execv(sys.executable, [*zig, *arguments])  # noqa: S606 - a compiler


def run(*command: str | Path, folder: Path, **variables: str) -> str:
    """What it printed; the output of a failure is shown."""
    done = subprocess.run(
        command, cwd=folder, env=os.environ | variables, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def anew(archive: Path, moment: int) -> bytes:
    """An sdist with the time of the commit, in the order of names, without owners."""
    out = io.BytesIO()
    with tarfile.open(archive) as old, tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = moment, 0, 0, "", ""
            member.mode, member.pax_headers = 0o755 if member.isdir() or member.mode & 0o100 else 0o644, {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    return gzip.compress(out.getvalue(), mtime=moment)


def sdist(out: Path, work: Path, moment: int) -> Path:
    """The source distribution of the commit, without what lies about in the clone, and with the man page."""
    packed = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        tar.extractall(work / "clone")  # noqa: S202 - our own
    man = ("-Q", "-b", "man", "docs", "share/man/man1")  # without warnings: `make site` checks the pages
    run(sys.executable, "-m", "sphinx", *man, folder=work / "clone")
    for page in (work / "clone" / "share" / "man" / "man1").glob("*.1"):  # targets of links within the manual
        page.write_text(re.sub(r" \\%<(#[^>]*)?>", "", page.read_text(encoding="utf-8")), encoding="utf-8")
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", work, folder=work / "clone")
    (made,) = work.glob("*.tar.gz")
    path = out / made.name
    path.write_bytes(anew(made, moment))
    return path


def wheel(arch: str, source: Path, out: Path, work: Path) -> None:
    """A wheel of the sdist for a processor, which is named by the symbols in it."""
    with tarfile.open(source) as tar:
        tar.extractall(work / arch)  # noqa: S202 - our own
    (tree,) = (work / arch).iterdir()
    compiler = f"{sys.executable} {Path(__file__).resolve()} cc {arch}"
    variables = {
        "CC": compiler, "LDSHARED": f"{compiler} -shared", "CFLAGS": f"-g0 -I{headers(work / arch / 'headers')}",
        "_PYTHON_HOST_PLATFORM": f"linux-{arch}", "COLLBENCH_PARTS": "all",
    }  # fmt: skip
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", work / arch, folder=tree, **variables)
    (made,) = (work / arch).glob("*.whl")
    run(sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "--wheel-dir", out, made, folder=work)
    if not list(out.glob(f"*manylinux_{GLIBC[0]}_{GLIBC[1]}_{arch}.whl")):
        sys.exit(f"the symbols of {made.name} are newer than glibc {GLIBC[0]}.{GLIBC[1]}: see auditwheel show")


def headers(folder: Path) -> Path:
    """Debian keeps Python's configuration by processor; that of this one fits the other, which has types as wide."""
    import sysconfig

    version = f"python{sysconfig.get_python_version()}"
    for arch in ARCHITECTURES:
        link = folder / f"{arch}-linux-gnu" / version
        link.parent.mkdir(parents=True)
        link.symlink_to(Path("/usr/include", str(sysconfig.get_config_var("MULTIARCH")), version))
    return folder


def main() -> None:
    """Build all of them, and check their metadata."""
    if sys.argv[1:2] == ["cc"]:
        compile_with_zig(sys.argv[2], sys.argv[3:])
    out = ROOT / "dist"
    out.mkdir(exist_ok=True)
    for old in out.iterdir():
        old.unlink()
    moment = run("git", "log", "-1", "--format=%ct", folder=ROOT).strip()
    os.environ |= {"SOURCE_DATE_EPOCH": moment, "ZIG_GLOBAL_CACHE_DIR": str(ROOT / ".venvs" / "zig"),
                   "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        source = sdist(out, Path(folder), int(moment))
        for arch in ARCHITECTURES:
            wheel(arch, source, out, Path(folder))
    made = sorted(out.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *made, folder=ROOT)
    for path in made:
        sys.stdout.write(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")


if __name__ == "__main__":
    main()
