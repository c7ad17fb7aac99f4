# Spack recipe of docker for Python, of which Spack's own repository has older versions.

from spack_repo.builtin.build_systems.python import PythonPackage

from spack.package import *


class PyDocker(PythonPackage):
    """Talks to Docker Engine by its HTTP interface."""

    homepage = "https://github.com/docker/docker-py"
    pypi = "docker/docker-7.1.0.tar.gz"

    license("Apache-2.0", checked_by="collbench")

    version("7.1.0", sha256="ad8c70e6e3f8926cb8a92619b832b4ea5299e2831c14284663184e200546fa6c")

    depends_on("python@3.8:", type=("build", "run"))
    depends_on("py-hatchling", type="build")
    depends_on("py-hatch-vcs", type="build")
    depends_on("py-requests@2.26:", type=("build", "run"))
    depends_on("py-urllib3@1.26:", type=("build", "run"))
