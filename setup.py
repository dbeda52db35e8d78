"""Builds the C++ libraries with CMake; everything else is declared in pyproject.toml."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
BUILD_DIR = ROOT / "build"
PACKAGE = "torch_lazyplug"
# What CMake leaves in the package directory.
ARTIFACTS = ("libtorch_lazyplug.so", "_C.*.so", "_build_info.py")


def tool(name):
    """The tool installed beside this interpreter, whether or not its environment is activated."""
    return shutil.which(name, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


def configure():
    # Tools are named on every run: the cache of an earlier, isolated build may point to an environment that is gone.
    subprocess.check_call(
        [
            tool("cmake"),
            *("-S", str(ROOT), "-B", str(BUILD_DIR), "-G", "Ninja"),
            f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}",
            f"-DPython_EXECUTABLE={sys.executable}",
            *os.environ.get("CMAKE_ARGS", "").split(),
        ]
    )


class CMakeBuild(build_ext):
    """Builds incrementally in build/, into the package directory; a wheel gets copies."""

    def run(self):
        configure()
        subprocess.check_call([tool("cmake"), "--build", str(BUILD_DIR)])
        if not self.inplace:
            self.copy_artifacts(Path(self.build_lib) / PACKAGE)

    def copy_artifacts(self, destination):
        destination.mkdir(parents=True, exist_ok=True)
        for pattern in ARTIFACTS:
            for artifact in (ROOT / PACKAGE).glob(pattern):
                shutil.copy2(artifact, destination)

    def get_outputs(self):
        package = Path(self.get_finalized_command("build_py").build_lib) / PACKAGE
        return [str(package / artifact.name) for p in ARTIFACTS for artifact in (ROOT / PACKAGE).glob(p)]


setup(
    ext_modules=[Extension(f"{PACKAGE}._C", sources=[])],
    cmdclass={"build_ext": CMakeBuild},
    # CMake owns build/ itself.
    options={"build": {"build_base": "build/setuptools"}},
)
