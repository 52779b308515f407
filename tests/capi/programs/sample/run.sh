#!/bin/bash
# As the samples of the vendor are run: the environment is sourced, CMake finds CANN through it, the program runs.
HERE=$(cd "$(dirname "${BASH_SOURCE:-$0}")" && pwd)
if [ -n "$ASCEND_INSTALL_PATH" ]; then
    _ASCEND_INSTALL_PATH=$ASCEND_INSTALL_PATH
elif [ -n "$ASCEND_HOME_PATH" ]; then
    _ASCEND_INSTALL_PATH=$ASCEND_HOME_PATH
else
    _ASCEND_INSTALL_PATH=/usr/local/Ascend/ascend-toolkit/latest
fi
source "$_ASCEND_INSTALL_PATH/bin/setenv.bash" || exit 1
export DDK_PATH=$_ASCEND_INSTALL_PATH
export NPU_HOST_LIB=$_ASCEND_INSTALL_PATH/$(arch)-$(uname -s | tr '[:upper:]' '[:lower:]')/devlib

rm -rf "$HERE/build" "$HERE/output" && mkdir -p "$HERE/build" "$HERE/output" && cd "$HERE/build" || exit 1
cmake ../src -DCMAKE_SKIP_RPATH=TRUE > cmake.log 2>&1 || { cat cmake.log; echo "ERROR: cmake failed"; exit 1; }
make > make.log 2>&1 || { cat make.log; echo "ERROR: make failed"; exit 1; }
export LD_LIBRARY_PATH=$_ASCEND_INSTALL_PATH/opp/vendors/customize/op_api/lib:$LD_LIBRARY_PATH
cd "$HERE/output" && ./execute_hardsigmoid_op
