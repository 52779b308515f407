"""What a build is for those who use it: folders as CANN has them, a compiler's options, files for shells and builds.

include, lib64                                          what there is; everything else leads there
runtime, atc, compiler, acllib, fwkacllib, x86_64-linux  each with include, lib64 (and lib64/stub, devlib)
opp/vendors/customize/op_api, opp/built-in/…/op_api      where operators have their headers and libraries
set_env.sh, bin/setenv.bash                              what a shell sources
lib64/cmake/aclgrad, lib64/pkgconfig                     what builds look for
"""

from __future__ import annotations

import platform
import shlex
from pathlib import Path

from ..._version import __version__

LINKED = ("ascendcl", "nnopbase", "opapi")
"""The names that together have every function, as the documents' programs are linked."""
NAMES = (
    "ascendcl", "acl_rt", "acl_mdl", "acl_op_executor", "acl_op_compiler", "nnopbase", "opapi", "opapi_math",
    "opapi_nn", "opapi_cv", "opapi_transformer", "cust_opapi", "aclnn_math", "aclnn_ops_infer", "aclnn_ops_train",
    "acl_cblas", "acl_dvpp", "acl_tdt_channel", "acl_tdt_queue", "runtime",
)  # fmt: skip
"""What programs link with, some of it in every sample and never called; all of them are the one library."""

_ARCHITECTURE = f"{platform.machine()}-linux"
_OP_API = ("opp/vendors/customize/op_api", "opp/built-in/op_impl/ai_core/tbe/op_api")
LINKS = {
    "include/aclnnop/level2": ".",
    "lib64/stub": ".",
    "lib/cmake": "../lib64/cmake",  # where CMake looks on systems whose libraries are in lib
    **{
        f"{part}/{name}": f"../{name}"
        for part in ("runtime", "atc", "compiler", "acllib", "fwkacllib", _ARCHITECTURE)
        for name in ("include", "lib64")
    },
    f"{_ARCHITECTURE}/devlib": "../lib64",
    **{f"{place}/include": f"{'../' * (place.count('/') + 1)}include" for place in _OP_API},
    **{f"{place}/lib": f"{'../' * (place.count('/') + 1)}lib64" for place in _OP_API},
}
"""Symbolic links, by where they are."""

CMAKE = """\
get_filename_component(_aclgrad_root "${{CMAKE_CURRENT_LIST_DIR}}/../../.." ABSOLUTE)
if(NOT TARGET aclgrad::aclnn)
  add_library(aclgrad::aclnn INTERFACE IMPORTED)
  set_target_properties(aclgrad::aclnn PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "{includes}"
    INTERFACE_LINK_LIBRARIES "{libraries}")
endif()
unset(_aclgrad_root)
"""
PKG_CONFIG = """\
prefix=${{pcfiledir}}/../..
Name: aclgrad
Description: CANN's aclnn gradient operators on every machine
Version: {version}
Cflags: {includes}
Libs: -L${{prefix}}/lib64 -Wl,-rpath,${{prefix}}/lib64 {libraries}
"""
SET_ENV = """\
# Source this file: builds then find headers and libraries where they look for CANN, and programs find the libraries.
ASCEND_HOME_PATH={place}
if [ -n "${{BASH_SOURCE:-}}" ]; then  # the folder may have been moved, and bash knows where to
    ASCEND_HOME_PATH="$(cd "$(dirname "$BASH_SOURCE")" && pwd)"
fi
export ASCEND_HOME_PATH
export ASCEND_TOOLKIT_HOME="$ASCEND_HOME_PATH"
export ASCEND_CUSTOM_PATH="$ASCEND_HOME_PATH"
export ASCEND_OPP_PATH="$ASCEND_HOME_PATH/opp"
export LD_LIBRARY_PATH="$ASCEND_HOME_PATH/lib64${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
export PKG_CONFIG_PATH="$ASCEND_HOME_PATH/lib64/pkgconfig${{PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}}"
export CMAKE_PREFIX_PATH="$ASCEND_HOME_PATH${{CMAKE_PREFIX_PATH:+:$CMAKE_PREFIX_PATH}}"
"""
SETENV_BASH = """\
# What samples source; everything is in set_env.sh, a folder further up.
. "$(dirname "${BASH_SOURCE:-$0}")/../set_env.sh"
"""

INCLUDES = ("include", "include/aclnnop", "include/aclnn")
"""Where compilers look for headers."""


def texts(place: Path) -> dict[str, str]:
    """Files that shells, CMake and pkg-config read, by their path in the folder, which is to be at `place`."""
    libraries = ";".join([f"${{_aclgrad_root}}/lib64/lib{name}.so" for name in LINKED])
    includes = ";".join([f"${{_aclgrad_root}}/{folder}" for folder in INCLUDES])
    return {
        "set_env.sh": SET_ENV.format(place=shlex.quote(str(place))),
        "bin/setenv.bash": SETENV_BASH,
        "lib64/cmake/aclgrad/aclgrad-config.cmake": CMAKE.format(libraries=libraries, includes=includes),
        "lib64/pkgconfig/aclgrad.pc": PKG_CONFIG.format(
            version=__version__,
            includes=" ".join(f"-I${{prefix}}/{folder}" for folder in INCLUDES),
            libraries=" ".join(f"-l{name}" for name in LINKED),
        ),
        "version.info": f"Version={__version__}\n",
    }


class Installation:
    """A folder like that of CANN."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.include = root / "include"
        self.lib = root / "lib64"
        self.cmake = self.lib / "cmake" / "aclgrad"
        self.pkg_config = self.lib / "pkgconfig"

    @property
    def compile_flags(self) -> list[str]:
        """What a compiler needs to find the headers."""
        return [f"-I{self.root / folder}" for folder in INCLUDES]

    @property
    def link_flags(self) -> list[str]:
        """What a linker needs; the program then finds the libraries by itself."""
        found_first = f"-Wl,--disable-new-dtags,-rpath,{self.lib}"  # whatever LD_LIBRARY_PATH has under these names
        return [f"-L{self.lib}", found_first, *(f"-l{name}" for name in LINKED)]
