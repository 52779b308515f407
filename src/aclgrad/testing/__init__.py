"""What a kernel author needs to be sure: golden data, verdicts on precision, named cases, layouts, poisoned memory."""

from .cases import Case as Case
from .cases import Data as Data
from .cases import Invalid as Invalid
from .cases import Suite as Suite
from .checking.gradient import check_gradient as check_gradient
from .data.golden import write_golden as write_golden
from .poison import poisoned_memory as poisoned_memory
from .report.model import Report as Report
from .tolerance import Verdict as Verdict
from .tolerance import assert_within_baseline as assert_within_baseline
from .tolerance import judge as judge
from .verdicts import verdicts as verdicts
from .verification.verify import verify as verify
