"""Environment variables that are read in every call."""

import os

import pytest

from aclgrad.core.settings import setting

NAME = "ACLGRAD_SETTING_OF_A_TEST"


class Elsewhere(dict):
    """An environment that keeps its values as another Python may."""


@pytest.mark.parametrize("replaced", [False, True], ids=["", "replaced since"])
@pytest.mark.parametrize("known", [True, False], ids=["as CPython keeps them", "otherwise"])
def test_a_variable_may_be_set_at_any_time(known, replaced, monkeypatch):
    if not known:
        monkeypatch.setattr(os, "environ", Elsewhere(os.environ))
    read = setting(NAME)
    assert read() is None
    if replaced:
        monkeypatch.setattr(os, "environ", dict(os.environ))
    for value in ("one", "zwölf", ""):
        os.environ[NAME] = value
        assert read() == value
    del os.environ[NAME]
    assert read() is None
