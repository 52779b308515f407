"""Named inputs of the family, operator by operator."""

from . import cases_elemt, cases_gather, cases_sums

SUITES = {**cases_sums.SUITES, **cases_gather.SUITES, **cases_elemt.SUITES}
