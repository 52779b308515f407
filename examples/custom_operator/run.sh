#!/bin/sh
# Builds the kernel, then a program that calls the operators, and runs it. The folder to build in may be named.
set -e
here=$(cd "$(dirname "$0")" && pwd)
build=${1:-$here/build}
mkdir -p "$build"
ACLGRAD_PLUGINS="$here/squared_relu${ACLGRAD_PLUGINS:+:$ACLGRAD_PLUGINS}"
export ACLGRAD_PLUGINS

${CC:-cc} -O2 -fPIC -shared $(aclgrad config --cflags) "$here/squared_relu/kernel.c" \
    -o "$here/squared_relu/libsquared_relu.so"
aclgrad cc "$here/main.cpp" -o "$build/main"
"$build/main"
