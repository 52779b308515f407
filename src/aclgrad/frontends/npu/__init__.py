"""The modules torch_npu and acl by their real names, and torch's device "npu", over memory of the machine.

    install     the whole, and back             modules     what is put into sys.modules
    script      python -m aclgrad.npu           plugin      pytest -p aclgrad.npu.pytest

    memory      tensors of the device           fallback    every op on them
    special     ops that torch leaves to a device's maker
    autocast    torch.autocast("npu")           random      its sequence of random numbers
    addresses   tensor.data_ptr() for acl
    distributed torch.distributed, by gloo
    streams     torch.npu.Stream and Event      amp         torch.npu.amp
    torch_module    the rest of torch.npu       formats     torch_npu.npu_format_cast
    patches     what torch's classes have while it is installed

A tensor of the device is torch's own, with the dispatch key PrivateUse1: no subclass, no mode. Torch differentiates,
saves, prints and counts it as any other; where it wants a kernel of the device, `fallback` calls this package's, or the
one of the device behind. Nothing is compiled: torch lets Python register such a device since 2.10.
"""
