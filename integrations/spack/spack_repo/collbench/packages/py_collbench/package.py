# Spack recipe of collbench: add this repository to Spack, then spack install py-collbench.

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyCollbench(PythonPackage):
    """Measures how deep-learning and HPC jobs communicate: MPI, NCCL and torch.distributed,
    on the host and in containers, with verdicts on differences."""

    homepage = "https://github.com/collbench/collbench"
    git = "https://github.com/collbench/collbench.git"

    license("Apache-2.0", checked_by="collbench")

    version("main", branch="main")

    variant("analysis", default=True, description="compare, advise, model and report")
    variant("mpi", default=True, description="Measure MPI")
    variant("launch", default=False, description="Start ranks in containers of Docker or Podman")

    depends_on("c", type="build")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@77:", type="build")
    depends_on("py-click@8.1.7:", type=("build", "run"))
    depends_on("py-ml-dtypes@0.4:", type=("build", "run"))
    depends_on("py-msgspec@0.19:", type=("build", "run"))
    depends_on("py-numpy@1.26:", type=("build", "run"))
    depends_on("py-tabulate@0.9:", type=("build", "run"))
    depends_on("py-tqdm@4.66:", type=("build", "run"))

    depends_on("py-mpi4py@4.1:", type=("build", "run"), when="+mpi")
    depends_on("py-jinja2@3.1:", type=("build", "run"), when="+analysis")
    depends_on("py-matplotlib@3.8:", type=("build", "run"), when="+analysis")
    depends_on("py-scipy@1.15:", type=("build", "run"), when="+analysis")
    depends_on("py-docker@7.1:", type=("build", "run"), when="+launch")
    depends_on("py-nvidia-ml-py@12.535:", type=("build", "run"), when="+launch")
