"""Options that are set, and weights that are replaced, after a module was made: as in torch, or a typed error."""

import copy
import pickle

import pytest
import torch
from torch import nn

import aclgrad.nn
from aclgrad import AclgradError
from aclgrad.testing.cases import Data

SAME = None  # what torch computes
DATA = Data(torch.float64, seed=3)
HAS_HEAD = hasattr(nn, "LinearCrossEntropyLoss")


def parameter(*shape, dtype=torch.float64):
    return nn.Parameter(DATA.normal(*shape).to(dtype))


def put(**attributes):
    """A change of a module: these attributes, `linear__bias` for that of a child."""

    def change(module):
        for path, value in attributes.items():
            *children, name = path.split("__")
            owner = module
            for child in children:
                owner = getattr(owner, child)
            setattr(owner, name, copy.deepcopy(value))

    return change


def plain(**attributes):
    """A change that puts tensors where parameters were."""

    def change(module):
        for name in attributes:
            delattr(module, name)
        put(**attributes)(module)

    return change


def lstm():
    return nn.LSTM(4, 3, 2)


def both_ways():
    return nn.LSTM(4, 3, bidirectional=True)


def square():
    return nn.LSTM(4, 4, 2)


def cell():
    return nn.LSTMCell(4, 3)


def bare_cell():
    return nn.LSTMCell(4, 3, bias=False)


def norm():
    module = nn.SyncBatchNorm(4)
    module.running_mean.copy_(DATA.normal(4))
    module.running_var.copy_(DATA.uniform(0.5, 2, 4))
    return module


def norm_in_use():
    return norm().eval()


def bare_norm():
    return nn.SyncBatchNorm(4, affine=False, track_running_stats=False)


def head():
    return nn.LinearCrossEntropyLoss(4, 9)


SEQUENCE, BATCH = (Data(torch.float64).normal(5, 2, 4),), (Data(torch.float64).normal(6, 4),)
TOKENS = (*BATCH, Data().integers(0, 9, 6))
SMALLER = {
    "hidden_size": 2,
    "weight_ih": parameter(8, 4),
    "weight_hh": parameter(8, 2),
    "bias_ih": parameter(8),
    "bias_hh": parameter(8),
}
WEIGHTS = [name for name in SMALLER if name != "hidden_size"]
TABLE = {
    (lstm, SEQUENCE): {
        "no change": (put(), SAME),
        "proj_size": (put(proj_size=2), "proj_size"),
        "fewer layers": (put(num_layers=1), "num_layers"),
        "more layers": (put(num_layers=4), "num_layers"),
        "hidden_size": (put(hidden_size=5), "hidden_size"),
        "input_size": (put(input_size=5), "input_size"),
        "bidirectional": (put(bidirectional=True), "bidirectional"),
        "bias": (put(bias=False), "bias"),
        "bias and layers": (put(bias=False, num_layers=4), "bias_ih_l0"),
        "batch_first": (put(batch_first=True), SAME),
        "dropout": (put(dropout=0.5), SAME),
        "dropout, not in training": (put(dropout=0.5, training=False), SAME),
        "all dropped": (put(dropout=1), SAME),
        "no probability": (put(dropout=2.0), "dropout"),
        "a new weight": (put(weight_hh_l1=parameter(12, 3)), SAME),
        "a weight that is no parameter": (plain(weight_hh_l1=DATA.normal(12, 3)), SAME),
        "a tied weight": (lambda m: setattr(m, "weight_hh_l1", m.weight_hh_l0), SAME),
        "columns of a weight": (put(weight_ih_l0=parameter(12, 5)), "weight_ih_l0"),
        "columns of a recurrent weight": (put(weight_hh_l1=parameter(12, 5)), "weight_hh_l1"),
        "rows of a weight": (put(weight_ih_l1=parameter(16, 3)), "weight_ih_l1"),
        "a short bias": (put(bias_ih_l1=parameter(11)), "bias_ih_l1"),
        "a bias of one element": (put(bias_hh_l0=parameter(1)), "bias_hh_l0"),
        "dtype of one weight": (put(weight_hh_l1=parameter(12, 3, dtype=torch.float32)), "weight_hh_l1"),
        "dtype of the first weight": (put(weight_ih_l0=parameter(12, 4, dtype=torch.float32)), "weight_ih_l0"),
        "no weight": (put(weight_ih_l0=None), "weight_ih_l0"),
        "a weight that is gone": (lambda m: delattr(m, "bias_hh_l1"), "bias_hh_l1"),
        "fewer names": (lambda m: put(_flat_weights_names=m._flat_weights_names[:-1])(m), "_flat_weights_names"),
        "another name": (lambda m: put(_flat_weights_names=["w", *m._flat_weights_names[1:]])(m), "w is NoneType"),
    },
    (square, SEQUENCE): {
        "a layer as a direction": (put(num_layers=1, bidirectional=True), SAME),
        "fewer layers": (put(num_layers=1), "num_layers"),
        "hidden_size": (put(hidden_size=2), "hidden_size"),
    },
    (both_ways, SEQUENCE): {
        "one way": (put(bidirectional=False), "bidirectional"),
        "smaller": (
            put(hidden_size=2, **{f"{name}_l0{end}": SMALLER[name] for name in WEIGHTS for end in ("", "_reverse")}),
            SAME,
        ),
    },
    (cell, BATCH): {
        "no change": (put(), SAME),
        "bias": (put(bias=False), SAME),  # torch looks at the biases alone
        "no input bias": (put(bias_ih=None), SAME),
        "no hidden bias": (put(bias_hh=None), SAME),
        "no biases": (put(bias_ih=None, bias_hh=None), SAME),
        "hidden_size": (put(hidden_size=5), "hidden_size"),
        "input_size": (put(input_size=5), "input_size"),
        "a new weight": (put(weight_hh=parameter(12, 3)), SAME),
        "smaller": (put(**SMALLER), SAME),
        "smaller, of the old size": (put(**{**SMALLER, "hidden_size": 3}), "hidden_size"),
        "columns of a weight": (put(weight_hh=parameter(12, 4)), "weight_hh"),
        "rows of a weight": (put(weight_ih=parameter(16, 4)), "weight_ih"),
        "a short bias": (put(bias_hh=parameter(11)), "bias_hh"),
        "a bias of one element": (put(bias_ih=parameter(1)), "bias_ih"),
        "dtype of a weight": (put(weight_hh=parameter(12, 3, dtype=torch.float32)), "weight_hh"),
        "dtype of a bias": (put(bias_hh=parameter(12, dtype=torch.float32)), "bias_hh"),
        "no weight": (put(weight_hh=None), "weight_hh"),
    },
    (bare_cell, BATCH): {
        "bias": (put(bias=True), SAME),
        "biases": (put(bias_ih=parameter(12), bias_hh=parameter(12)), SAME),
        "one bias": (put(bias_hh=parameter(12)), SAME),
    },
    (norm, BATCH): {
        "no change": (put(), SAME),
        "momentum": (put(momentum=0.7), SAME),
        "cumulative": (put(momentum=None), SAME),
        "eps": (put(eps=0.5), SAME),
        "affine": (put(affine=False), SAME),  # torch looks at weight and bias alone
        "track_running_stats": (put(track_running_stats=False), SAME),
        "num_features": (put(num_features=5), "num_features"),
        "no weight": (put(weight=None), SAME),
        "no bias": (put(bias=None), SAME),
        "neither": (put(weight=None, bias=None), SAME),
        "a new weight": (put(weight=parameter(4)), SAME),
        "a long weight": (put(weight=parameter(5)), "weight"),
        "no statistics": (put(running_mean=None, running_var=None), SAME),
        "new statistics": (put(running_mean=DATA.normal(4), running_var=DATA.uniform(1, 2, 4)), SAME),
        "no mean": (put(running_mean=None), "running_mean"),
        "no variance": (put(running_var=None), "running_var"),
        "a long mean": (put(running_mean=DATA.normal(5)), "running_mean"),
        "no count": (put(num_batches_tracked=None), "num_batches_tracked"),
        "no count, cumulative": (put(num_batches_tracked=None, momentum=None), "num_batches_tracked"),
        "no statistics as torch.func has it": (torch.func.replace_all_batch_norm_modules_, SAME),
    },
    (norm_in_use, BATCH): {
        "no change": (put(), SAME),
        "momentum": (put(momentum=None), SAME),
        "eps": (put(eps=0.5), SAME),
        "track_running_stats": (put(track_running_stats=False), SAME),
        "no weight": (put(weight=None), SAME),
        "no statistics": (put(running_mean=None, running_var=None), SAME),
        "no count": (put(num_batches_tracked=None), SAME),
        "no mean": (put(running_mean=None), "running_mean"),
        "no variance": (put(running_var=None), "running_var"),
        "a long mean": (put(running_mean=DATA.normal(5)), "running_mean"),
        "in training again": (put(training=True), SAME),
    },
    (bare_norm, BATCH): {
        "track_running_stats": (put(track_running_stats=True), "track_running_stats"),
        "affine": (put(affine=True), SAME),
        "a weight": (put(weight=parameter(4)), SAME),
        "a bias": (put(bias=parameter(4)), SAME),
    },
    (nn.Hardsigmoid, BATCH): {"inplace": (put(inplace=True), SAME)},
    (lambda: nn.Hardsigmoid(inplace=True), BATCH): {"inplace": (put(inplace=False), SAME)},
}
if HAS_HEAD:
    TABLE[head, TOKENS] = {
        "no change": (put(), SAME),
        "a layer with bias": (put(linear=nn.Linear(4, 9, dtype=torch.float64)), SAME),
        "a bias": (put(linear__bias=parameter(9)), SAME),
        "a new layer": (put(linear=nn.Linear(4, 9, bias=False, dtype=torch.float64)), SAME),
        "a new weight": (put(linear__weight=parameter(9, 4)), SAME),
        "label_smoothing": (put(label_smoothing=0.5), SAME),
        "class weights": (put(weight=DATA.uniform(0, 1, 9)), SAME),
        "a wrong smoothing": (put(label_smoothing=1.5), "label_smoothing"),
        "long class weights": (put(weight=DATA.uniform(0, 1, 10)), "weight"),
        "a long bias": (put(linear__bias=parameter(10)), "linear_bias"),
        "out_features": (put(out_features=(2,)), "out_features"),
        "reduction": (put(reduction="sum"), SAME),
        "no reduction": (put(reduction="none"), SAME),
        "an unknown reduction": (put(reduction="max"), "reduction"),
        "ignore_index": (put(ignore_index=int(TOKENS[1][2])), SAME),
        "more classes": (put(num_classes=10), "num_classes"),
        "fewer classes": (put(num_classes=8), "num_classes"),
        "a wider layer": (put(linear=nn.Linear(5, 9, bias=False, dtype=torch.float64)), "input"),
        "a layer of more classes": (put(linear=nn.Linear(4, 10, bias=False, dtype=torch.float64)), "num_classes"),
        "a weight of more classes": (put(linear__weight=parameter(10, 4)), "num_classes"),
        "in_features": (put(linear__in_features=5), "linear.in_features"),
        "no weight": (put(linear__weight=None), "linear.weight"),
        "dtype of the weight": (put(linear__weight=parameter(9, 4, dtype=torch.float32)), "weight"),
    }

ORIGINS = {
    "converted": lambda theirs: aclgrad.nn.convert(copy.deepcopy(theirs)),
    "a copy": lambda theirs: copy.deepcopy(aclgrad.nn.convert(copy.deepcopy(theirs))),
    "unpickled": lambda theirs: pickle.loads(pickle.dumps(aclgrad.nn.convert(copy.deepcopy(theirs)))),
}
ROWS = [
    pytest.param(make, arguments, change, named, id=f"{make.__name__}: {case}".replace("<lambda>", "in place"))
    for (make, arguments), cases in TABLE.items()
    for case, (change, named) in cases.items()
]


def results(module, arguments):
    """Everything that can be seen of a call: outputs, gradients, buffers, and what became of the arguments."""
    torch.manual_seed(1)
    leaves = [argument.clone() for argument in arguments]
    outputs, _ = torch.utils._pytree.tree_flatten(module(*leaves))
    trained = [parameter for parameter in module.parameters() if outputs[0].requires_grad]
    loss = sum((out * Data(torch.float64, seed=97).normal(*out.shape)).sum() for out in outputs)
    gradients = torch.autograd.grad(loss, trained, allow_unused=True) if trained else ()
    return [*(out.detach() for out in outputs), *gradients, *module.buffers(), *leaves]


@pytest.mark.parametrize(("make", "arguments", "change", "named"), ROWS)
def test_what_is_set_later(make, arguments, change, named, each_case):
    row = make, arguments, change, named
    each_case(check_what_is_set, {name: (*row, origin) for name, origin in ORIGINS.items()})


def check_what_is_set(make, arguments, change, named, origin):
    torch.manual_seed(0)
    theirs = make().double()
    ours = origin(theirs)
    assert type(ours).__module__.startswith("aclgrad.")
    change(ours)
    if named is SAME:
        change(theirs)
        torch.testing.assert_close(results(ours, arguments), results(theirs, arguments))
        return
    with pytest.raises((AclgradError, ValueError, RuntimeError), match=named) as caught:
        results(ours, arguments)
    torchs_own = named == "dropout"  # it checks that itself
    assert isinstance(caught.value, AclgradError) or torchs_own


@pytest.mark.skipif(not HAS_HEAD, reason="this torch has no LinearCrossEntropyLoss")
def test_a_head_tied_to_an_embedding_later():
    torch.manual_seed(0)
    gradients = []
    for make in (lambda head: head, *ORIGINS.values()):
        embedding = nn.Embedding(9, 4, dtype=torch.float64)
        embedding.weight.data.copy_(Data(torch.float64, seed=5).normal(9, 4))
        tied = make(head().double())
        tied.linear.weight = embedding.weight
        target = TOKENS[1]
        (gradient,) = torch.autograd.grad(tied(embedding(target), target.roll(1)), [embedding.weight])
        gradients.append(gradient)
    torch.testing.assert_close(gradients[1:], gradients[:1] * len(ORIGINS))


def test_an_lstm_saved_before_there_were_projections():
    ours = aclgrad.nn.LSTM(4, 3)
    state = ours.__getstate__()
    del state["proj_size"]
    again = aclgrad.nn.LSTM.__new__(aclgrad.nn.LSTM)
    again.__setstate__(state)
    x = SEQUENCE[0].float()
    torch.testing.assert_close(again(x), ours(x), rtol=0, atol=0)
    again.proj_size = 2
    with pytest.raises(AclgradError, match="proj_size is 2, expected 0"):
        again(x)


def test_weights_of_several_dtypes_under_autocast():
    """Autocast makes them one, as it does torch's."""
    for make, arguments in ((lstm, SEQUENCE), (cell, BATCH)):
        ours = ORIGINS["converted"](make())
        name = "bias_hh_l0" if make is lstm else "bias_hh"
        setattr(ours, name, nn.Parameter(getattr(ours, name).bfloat16()))
        with torch.autocast("cpu", torch.bfloat16):
            ours(arguments[0].float())
        with pytest.raises(AclgradError, match=f"{name} is bfloat16, expected float32"):
            ours(arguments[0].float())
