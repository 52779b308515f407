"""Python programs, each in a fork of a process that has imported torch, which takes most of the time that they start.

`ForkedPython` has a server: this file, run. A program runs where its server would end, so it ends as others do. What is
asked before torch is imported, the interpreter's options and PYTHON…, is not for it.
"""

import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

PATIENCE = 120.0
"""Seconds that a program may take."""


class ForkedPython:
    """`run(*args)` is `subprocess.run([sys.executable, *args])`: a program's exit status, and what it said, as text."""

    def __init__(self):
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(PATIENCE)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())], pass_fds=[theirs.fileno()]
            )

    def run(self, *args, env=None, cwd=None, stdout=None):
        """`stdout` is a file for what is not read here."""
        words = {
            "args": [str(arg) for arg in args],
            "env": dict(os.environ if env is None else env),
            "cwd": str(cwd or Path.cwd()),
        }
        with (
            tempfile.TemporaryFile("w+") as out,
            tempfile.TemporaryFile("w+") as err,
            Path(os.devnull).open() as nothing,
        ):
            files = [file.fileno() for file in (nothing, stdout or out, err)]
            socket.send_fds(self._channel, [json.dumps(words).encode()], files)
            status = int(self._channel.recv(64))
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(args, status, out.read(), err.read())

    def close(self):
        """The server ends when nobody is there to ask for a program."""
        self._channel.close()
        self._server.wait(PATIENCE)


def serve(channel):
    """What a program is given, in its process; in the server None, at the end."""
    import torch  # noqa: F401

    while True:
        request, files, *_ = socket.recv_fds(channel, 1 << 20, 3)
        if not request:
            return None
        child = os.fork()
        if not child:
            channel.close()
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            return json.loads(request)
        for file in files:
            os.close(file)
        channel.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def become(args, env, cwd):
    """Run what Python would run with these arguments, with text streams for the files that are open now."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        new = os.fdopen(number, old.mode, -1 if number < 2 else 1, old.encoding, old.errors, closefd=False)
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    kind, *sys.argv = args
    if kind == "-c":
        code, sys.argv[0] = compile(sys.argv[0], "<string>", "exec"), "-c"
        sys.path[0], sys.modules["__main__"] = "", ModuleType("__main__")
        exec(code, vars(sys.modules["__main__"]))
    elif kind == "-m":
        sys.path[0] = cwd
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = args
        sys.path[0] = str(Path(kind).resolve().parent)
        runpy.run_path(kind, run_name="__main__")


if __name__ == "__main__":
    itself = sys.modules["__main__"]  # or its names would go when a program takes its place
    program = serve(socket.socket(fileno=int(sys.argv[1])))
    if program:
        become(**program)
