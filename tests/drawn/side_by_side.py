"""All random tests in several processes at once, each of which has its own draws; then what was wrong, and how many.

    PYTHONPATH=src python tests/drawn/side_by_side.py [processes] [seconds in all] [arguments of pytest]

A process that is still at it when the time is over is killed, and its last lines say what it was doing.
"""

import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

FOLDER = Path(__file__).parent
OPTIONS = ("-m", "gpu or not gpu", "-p", "no:cacheprovider", "--tb=short")


def pytest(output, *arguments):
    """A process of its own."""
    command = [sys.executable, "-m", "pytest", *OPTIONS, *arguments]
    return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, text=True, cwd=FOLDER.parents[1])


def main():
    processes, seconds = map(int, (*sys.argv[1:3], *(14, 240)[len(sys.argv[1:3]) :]))
    found, _ = pytest(subprocess.PIPE, "--collect-only", str(FOLDER), *sys.argv[3:]).communicate()
    tests = [line for line in found.splitlines() if "::" in line and " " not in line.split("::")[0]]
    if not tests:
        sys.exit(found)
    end, logs = time.monotonic() + seconds, []
    folder = Path(tempfile.mkdtemp())
    for k in range(processes):
        log = (folder / f"{k}.txt").open("w+")
        logs.append((log, pytest(log, "-s", *tests[k::processes])))
    draws, bad = Counter(), 0
    for log, process in logs:
        try:
            process.wait(max(1.0, end - time.monotonic()))
            late = False
        except subprocess.TimeoutExpired:
            process.kill()
            late = True
        log.seek(0)
        lines = log.read().splitlines()
        draws.update(match[1] for line in lines if (match := re.match(r"\W*(.*), draw \d+ of", line)))
        wrong = [line[:900] for line in lines if line.startswith("E  ")]
        if late or process.returncode:
            bad += 1
            print(f"--- {log.name}: {'killed' if late else process.returncode}", *wrong, sep="\n")
            if late or not wrong:
                print(*lines[-25:], sep="\n")
    print("draws:", ", ".join(f"{name} {count}" for name, count in sorted(draws.items())))
    print(f"{sum(draws.values())} draws in {time.monotonic() - end + seconds:.0f} s, {bad} processes not green")
    sys.exit(bad > 0)


main()
