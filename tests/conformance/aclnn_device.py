"""An operator's first case as an aclnn program has it: handles on device memory, and the two phases."""

import torch
from matrix import flat
from test_contract import legal

from aclgrad import acl, aclnn
from aclgrad.core.spec import OutList
from aclgrad.testing import program
from aclgrad.testing.verdicts import run

NULL, INVALID, RUNTIME = 161001, 161002, 361001


def pair(operator):
    return getattr(aclnn, f"{operator.spec.aclnn}GetWorkspaceSize"), getattr(aclnn, operator.spec.aclnn)


class Device:
    """Handles for an operator's first case."""

    def __init__(self, running, operator):
        self.running, self.operator = running, operator
        self.args, self.outs = legal(operator)
        spec = operator.spec
        self.handles = [running.argument(p, v) for p, v in zip(spec.args, self.args.values(), strict=True)]
        self.out_handles = [running.argument(p, v) for p, v in zip(spec.outs, self.outs.values(), strict=True)]
        self.first, self.second = pair(operator)

    def plan(self):
        size, executor, status = self.first(*self.handles, *self.out_handles)
        assert status == 0, acl.get_recent_err_msg()
        return size, executor

    def run(self, size, executor, workspace="fresh", stream=None):
        if workspace == "fresh":
            workspace = self.running.malloc(size) if size else 0
        status = self.second(workspace, size, executor, stream or self.running.stream)
        assert acl.rt.synchronize_stream(self.running.stream) == 0
        return status

    def results(self):
        return [program._fetch(self.running, h, o) for h, o in zip(self.out_handles, self.outs.values(), strict=True)]

    def expected(self):
        return run(self.operator, list(self.args.values()))[: len(self.outs)]

    def is_wiped(self):
        """True if no output was written since `wipe`."""
        results = [result for result in flat(self.results()) if result is not None and result.numel()]
        return all(bool((result.view(-1).view(torch.uint8) == 255).all()) for result in results)

    def wipe(self):
        for param, handle, out in zip(self.operator.spec.outs, self.out_handles, self.outs.values(), strict=True):
            if out is None:
                continue
            members = program.TENSOR_LISTS.get(handle, "x").handles if isinstance(param, OutList) else [handle]
            for member, tensor in zip(members, flat([out]), strict=True):
                address = aclnn.aclGetRawTensorAddr(member)[0]
                size = tensor.numel() * tensor.element_size()
                assert acl.rt.memset(address, size, 255, size) == 0
