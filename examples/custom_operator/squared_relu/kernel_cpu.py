"""What runs on a CPU: the gradient in C. Whatever has no kernel is computed by its textbook."""

from pathlib import Path

from aclgrad.custom import F32, F64, SharedLibrary

_library = SharedLibrary(Path(__file__).with_name("libsquared_relu.so"))

squared_relu_backward = _library.kernel("squared_relu_backward", dtypes=(F32, F64))
