"""acl.rt: devices, contexts, streams, events and memory."""

from ..frontends.acl.process import get_soc_name as get_soc_name
from ..frontends.acl.rt import *  # noqa: F403  exactly the names of its __all__
