"""Types of the bindings in csrc/, which declare the names; one file per submodule."""

from torch_lazyplug._C import _backward as _backward
from torch_lazyplug._C import _config as _config
from torch_lazyplug._C import _device as _device
from torch_lazyplug._C import _lazy as _lazy
from torch_lazyplug._C import _lazy_ts_backend as _lazy_ts_backend
from torch_lazyplug._C import _metrics as _metrics
from torch_lazyplug._C import _ops as _ops
from torch_lazyplug._C import _optimizers as _optimizers
