"""Print a constraints file with the lowest version of every dependency, as the installed package declares them.

`make test-lowest` installs by it: what pyproject.toml promises with >= is tested with ==.
"""

import re
from importlib.metadata import requires


def lowest(requirements: list[str]) -> list[str]:
    """The requirements that have a lower bound, at that bound.

    >>> lowest(["torch>=2.10", "triton>=3.6; sys_platform == 'linux' and extra == 'dev'", "aclgrad[plot]"])
    ['torch==2.10', 'triton==3.6']
    """
    bounds = (re.match(r"([\w.-]+)>=([\w.]+)", requirement) for requirement in requirements)
    return [f"{bound[1]}=={bound[2]}" for bound in bounds if bound]


if __name__ == "__main__":
    print("\n".join(lowest(requires("aclgrad") or [])))
