"""What a build is for those who use it: its folders, a compiler's options, and the files that shells and CMake read."""

from __future__ import annotations

from pathlib import Path

LINKED = ("ascendcl", "nnopbase", "opapi")
"""The names that together have every function, as the documents' programs are linked."""

CMAKE = """\
get_filename_component(_aclgrad_root "${{CMAKE_CURRENT_LIST_DIR}}/../../.." ABSOLUTE)
if(NOT TARGET aclgrad::aclnn)
  add_library(aclgrad::aclnn INTERFACE IMPORTED)
  set_target_properties(aclgrad::aclnn PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${{_aclgrad_root}}/include"
    INTERFACE_LINK_LIBRARIES "{libraries}")
endif()
unset(_aclgrad_root)
"""
SET_ENV = """\
# Source this file: programs built against these headers then find the libraries, and CMake samples find both.
ASCEND_CUSTOM_PATH={place}
if [ -n "${{BASH_SOURCE:-}}" ]; then  # the folder may have been moved, and bash knows where to
    ASCEND_CUSTOM_PATH="$(cd "$(dirname "$BASH_SOURCE")" && pwd)"
fi
export ASCEND_CUSTOM_PATH
export LD_LIBRARY_PATH="$ASCEND_CUSTOM_PATH/lib64${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
"""


class Installation:
    """A folder with include/, lib64/ and set_env.sh."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.include = root / "include"
        self.lib = root / "lib64"
        self.cmake = self.lib / "cmake" / "aclgrad"

    @property
    def compile_flags(self) -> list[str]:
        """What a compiler needs to find the headers."""
        return [f"-I{self.include}"]

    @property
    def link_flags(self) -> list[str]:
        """What a linker needs; the program then finds the libraries by itself."""
        found_first = f"-Wl,--disable-new-dtags,-rpath,{self.lib}"  # whatever LD_LIBRARY_PATH has under these names
        return [f"-L{self.lib}", found_first, *(f"-l{name}" for name in LINKED)]
