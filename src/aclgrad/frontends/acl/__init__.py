"""The acl runtime: processes, devices, streams, memory and handles, on any machine, under pyACL's names.

    boundary    exceptions inside, codes and messages outside
    enums       the numbers of the C interface
    arguments   checks of single arguments
    handles     integers for objects
    blocks      device and host memory              raw        bytes at addresses
    transfers   copies and fills                    streams    in-order asynchronous work
    events      marks in streams                    devices    contexts, and each thread's current one
    tensors     what handles of meta objects mean
    engines     where memory and streams are: engine_cpu, engine_cuda
    findings    what a checked run finds            ordering   which work is known to be done

    process, rt, util   acl.*, acl.rt.*, acl.util.*
    meta                aclCreateTensor and its kin, under their C names

Every function takes and returns plain numbers (and sequences of them), returns a code for a wrong call, and leaves a
message that names the function, the argument, what was found and what was expected. With too few or too many arguments
a runtime function raises TypeError, as pyACL does.

Codes of wrong calls

    100000  an argument is null, of the wrong Python type, or not a number the function knows (also: a size of 0 for
            malloc, a timeout of 0, the primary context for destroy_context, an environment variable that means nothing)
    100002  init once more                              100003  a configuration that cannot be read
    100005  a configuration beyond 10 MiB               100006  a configuration that is no JSON
    100037  finalize without init                       107000  count > dest_max; a write past the end of a block;
    107001  no such device                                      a read past the end of a host block (of a device block
    107002  no current device in this thread                    under ACLGRAD_STRICT=1); host memory that is not
    107016  host memory where device memory is                  mapped; an event that was not recorded or not reached
            expected, or the reverse; an address in     107017  a handle that was destroyed, is of another kind or
            no live block where one is expected                 was never one
    107018  a policy that does not exist                200000  Python itself is out of memory
    207001  not enough memory                           207002  free of what is not the start of a live block
    207004  ACLGRAD_DEVICE=cuda without such a device
    500000  a fault of this library                     507007  reset_device without its set_device
    507015  work on a stream failed                     507046  a stream was not done in time

Statuses of meta objects: 161001 null, 161002 any other wrong argument. Creators return 0 instead.

What ACLGRAD_STRICT=1 refuses beyond that has its codes in `findings.Kind`.
"""
