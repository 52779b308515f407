"""aclnnXxxGetWorkspaceSize and aclnnXxx, made from a contract."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ...core.errors import InvalidArgument
from ...core.plan import Operator
from ..acl.boundary import aclnn_call, code_only
from ..acl.enums import SUCCESS
from .executor import EXECUTORS, plan_executor

Pair = tuple[Callable[..., tuple[int, int | None, int]], Callable[..., int]]


def make_pair(operator: Operator) -> Pair:
    """The two functions of an operator, with the document's names and argument order."""
    spec = operator.spec
    names = [param.aclnn for param in (*spec.args, *spec.outs)]
    signature = inspect.Signature([inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names])

    def get_workspace_size(*args: Any, **kwargs: Any) -> tuple[int, int | None, int]:
        if kwargs or len(args) != len(names):
            try:
                args = signature.bind(*args, **kwargs).args
            except TypeError as misfit:
                raise InvalidArgument(f"{misfit}, expected {', '.join(names)}") from None
        executor = plan_executor(operator, args)
        return executor.workspace_size, EXECUTORS.add(executor), SUCCESS

    def run(workspace: Any, workspaceSize: Any, executor: Any, stream: Any) -> int:
        planned = EXECUTORS.get(executor, "executor")
        if planned.plan.call.spec is not spec:
            raise InvalidArgument(
                f"executor was made for {planned.plan.call.spec.aclnn}, expected {spec.aclnn}", "executor"
            )
        if not planned.repeatable:
            EXECUTORS.discard(int(executor))
        planned.run(workspace, workspaceSize, stream)
        return SUCCESS

    first, second = f"{spec.aclnn}GetWorkspaceSize", spec.aclnn
    get_workspace_size.__signature__ = signature  # type: ignore[attr-defined]  # for help() and boundary messages
    _name(get_workspace_size, first, f"Phase one of {spec.summary}: (workspaceSize, executor, status).")
    _name(run, second, f"Phase two of {spec.summary}: enqueue the executor's work on the stream; returns the status.")
    return (
        aclnn_call(first, lambda status: (0, None, status))(get_workspace_size),
        aclnn_call(second, code_only)(run),
    )


def _name(function: Callable[..., Any], name: str, doc: str) -> None:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
