"""Options of the loss on a GPU where the work is cut, and where logits, targets and confidence are unusual."""

import pytest
import torch

from aclgrad.core.backends import widen
from aclgrad.ops.linear_cross_entropy import cases_training as cases
from aclgrad.ops.linear_cross_entropy import reference, spec_shards, training
from aclgrad.ops.linear_cross_entropy.triton import choose, choose_rows
from aclgrad.ops.linear_cross_entropy.triton.statistics import compute
from aclgrad.testing import poisoned_memory, verdicts
from aclgrad.testing.cases import Case
from aclgrad.testing.verdicts import run

pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
IN_WEIGHT_GRAD, IN_WORKSPACE = "InWeightGrad", "InWorkspace"

in_one_dtype = pytest.mark.interpreted(dtype=DTYPES[:1])


def built(make, dtype):
    """Arguments, where the kernels run."""
    return placed(Case("options", make, (dtype,)).build(dtype))


def placed(args):
    return [arg.to(DEVICE) if isinstance(arg, torch.Tensor) else arg for arg in args]


def judged(operator, args, dtype):
    """The plan of a call whose results are as good as those of a naive run."""
    operator._plans.clear()
    plan = operator.plan(args, backend="triton")
    with poisoned_memory():
        results = run(operator, args, "triton")
    operator._plans.clear()  # of a budget that only this test has
    for name, verdict in verdicts(operator.spec, args, results, dtype):
        assert verdict.ok, f"{name}: {verdict}"
    return plan


def launched(operator, args):
    """Results of a plan, past the look at targets that only a CPU's tensors get."""
    plan = operator.plan(args, backend="triton")
    with poisoned_memory():
        outs, workspace = plan.allocate(), plan.workspace()
    plan.launch(operator.spec.completed(args), outs, workspace)
    return outs


def agree(results, truth):
    """Numbers are close, and NaN, Inf and flags are where they should be."""
    for index, (result, true) in enumerate(zip(results, truth, strict=True)):
        if result is None or not result.is_floating_point():
            assert result is None or torch.equal(result, true), index
        else:
            torch.testing.assert_close(result.double(), true.double(), equal_nan=True, rtol=1e-4, atol=1e-5)


@pytest.mark.interpreted(tokens=[80, 170], dtype=DTYPES[:1])  # 170 are kept in either way, 132 in one
@pytest.mark.interpreted(tokens=[170], dtype=DTYPES[2:])  # and so are float32 logits
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("tokens", "features", "rows", "budget", "sums", "phases"),
    [
        (80, 16, 200, 40_000, 0, [IN_WORKSPACE]),
        (80, 16, 200, 60_000, 1 << 20, [IN_WORKSPACE]),
        (132, 144, 272, 100_000, 0, [IN_WEIGHT_GRAD]),
        (170, 144, 272, 60_000, 0, [IN_WEIGHT_GRAD, IN_WORKSPACE]),
    ],
)
def test_loss_and_gradients_in_chunks(tokens, features, rows, budget, sums, phases, dtype, monkeypatch):
    monkeypatch.setattr(choose, "BUDGET", budget)
    monkeypatch.setattr(choose, "WEIGHT_GRAD_SUMS", sums)
    args = built(cases._together(tokens, features, rows, options=cases.EVERY), dtype)
    plan = judged(training.together, args, dtype)
    assert [type(phase).__name__ for phase in plan.launch._launch._phases] == phases


@in_one_dtype
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("tokens", "rows"), [(9, 608), (300, 40)], ids=["more classes", "more tokens"])
def test_logits_made_twice(tokens, rows, dtype, monkeypatch):
    """All options and results, and where one gradient or none of the statistics is wanted."""
    monkeypatch.setattr(choose, "makes_logits_twice", lambda call: True)
    for name in ("P_ALONE", "P_BESIDE_LOGITS", "WHOLE_P"):
        monkeypatch.setattr(choose, name, 1 << 12)
    wanted = {"wants": (False, True, True), "mean": False, "options": cases.EVERY}
    for rest in ({"options": cases.EVERY}, wanted, {"wants": (True, False, False)})[: 3 if rows > tokens else 1]:
        plan = judged(training.together, built(cases._together(tokens, 9, rows, **rest), dtype), dtype)
        assert plan.describe().split(": ")[1].startswith("logits for the loss, then p in"), plan.describe()


@in_one_dtype
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sums_of_tiles_borrow_input_grad(dtype, monkeypatch):
    """There are fewer chunks of tokens, but where float32 numbers cannot lie at the address of input_grad."""
    args = built(cases._together(80, 16, 200, options=cases.EVERY), dtype)
    for budget in range(40_000, 120_000, 256):
        monkeypatch.setattr(choose, "BUDGET", budget)
        training.together._plans.clear()
        launch = training.together.plan(args, backend="triton").launch._launch
        if launch._phases is not launch._elsewhere:
            break
    assert len(launch._phases[-1]._chunks) < len(launch._elsewhere[-1]._chunks)
    plan = judged(training.together, args, dtype)
    spec = training.together.spec
    with poisoned_memory():
        outs, workspace = list(plan.allocate()), plan.workspace()
    where = spec.out_names.index("input_grad")
    outs[where] = torch.cat([outs[where].flatten(), outs[where][0, :1]])[1:].view(80, 16)
    monkeypatch.setattr(plan.launch._launch, "_phases", None)
    plan.launch(spec.completed(args), outs, workspace)
    for name, verdict in verdicts(spec, args, outs, dtype):
        assert verdict.ok, f"{name}: {verdict}"


@in_one_dtype
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("tokens", "rows"), [(34, 608), (530, 40)], ids=["along the vocabulary", "along the tokens"])
def test_gradients_in_chunks(tokens, rows, dtype, monkeypatch):
    monkeypatch.setattr(choose, "WHOLE_P", 0)
    for name, size in (("P_ALONE", 1 << 13), ("P_BESIDE_LOGITS", 1 << 13), ("LOGITS", 1 << 17)):
        monkeypatch.setattr(choose, name, size)
    plan = judged(training.gradients, built(cases._backward(tokens, 40, rows, options=cases.EVERY), dtype), dtype)
    assert len(plan.launch._launch._way.cut.chunks) == 3


@in_one_dtype
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
@pytest.mark.parametrize(("tokens", "rows"), [(300, 350), (350, 300)], ids=["of tokens", "of columns"])
def test_gradients_in_groups(tokens, rows, dtype, monkeypatch):
    """Float32 sums of one gradient would not fit; the other one is added up in its own dtype."""
    monkeypatch.setattr(choose, "WHOLE_P", 0)
    monkeypatch.setattr(choose, "BUDGET", 110_000)
    monkeypatch.setattr(choose_rows, "multiprocessors", lambda device: 1)  # no product is small
    plan = judged(training.gradients, built(cases._backward(tokens, 64, rows, options=cases.EVERY), dtype), dtype)
    p = plan.launch._launch._way.cut
    assert p.groups == 2 and len(p.chunks) > 2


@in_one_dtype
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_features_and_a_bias(dtype):
    """Sums of no elements need no groups, and are not divided among any."""
    args = built(cases._backward(34, 0, 40, options=cases.EVERY), dtype)
    names = [argument.name for argument in training.gradients.spec.args]
    args[names.index("wants_weight_grad")] = False
    judged(training.gradients, args, dtype)


@in_one_dtype
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_losses_in_strips(dtype, monkeypatch):
    monkeypatch.setattr(compute, "STATISTICS_STRIP", 1 << 17)
    judged(training.losses, built(cases._losses(9, 8, 20001, options=cases.EVERY), dtype), dtype)


@pytest.mark.interpreted(rows=[300])
@pytest.mark.parametrize("dtype", DTYPES[::2], ids=str)
@pytest.mark.parametrize("rows", [300, 9000])
def test_the_first_of_equal_logits_is_correct(rows, dtype):
    x, w, bias = torch.zeros(6, 8), torch.zeros(rows, 8), torch.zeros(rows)
    bias[[5, 260, rows - 1]] = 3.0  # in two tiles and more
    x[3, 1] = x[4, 1] = 1.0
    w[7, 1] = 10.0
    head = [x.to(dtype), w.to(dtype), torch.tensor([5, 260, rows - 1, 7, 5, 5]), -100]
    options = (bias, None, 0.0, 0.0, 1.0, 0.0)
    for wants in (True, False):
        args = placed([*head, True, wants, wants, *options, None, None, wants, True])
        *_, together = run(training.together, args, "triton")
        assert together.tolist() == [True, False, False, True, False, True]
    *_, alone = run(training.losses, placed([*head, *options, True]), "triton")
    assert alone.tolist() == [True, False, False, True, False, True]


@pytest.mark.filterwarnings("ignore:All-NaN slice")  # NumPy's to Triton's interpreter
@pytest.mark.interpreted(rows=[1, 300])
@pytest.mark.parametrize("dtype", DTYPES[1:], ids=str)
@pytest.mark.parametrize("rows", [1, 2, 300, 9000])
def test_the_first_of_the_largest_is_correct_where_logits_are_infinite(rows, dtype):
    """As the formula says it: equal infinities are equal, and beside a NaN nothing is the largest."""
    generator = torch.Generator().manual_seed(rows)
    kinds = torch.tensor([-torch.inf, -1.0, 2.0, torch.inf, torch.nan])
    odds = torch.tensor([[5.0, 0, 0, 0, 0], [4, 4, 4, 1, 0], [1, 1, 1, 1, 0], [1, 1, 1, 0, 0], [50, 1, 0, 0, 1]])
    drawn = torch.stack([kinds[torch.multinomial(row, rows, replacement=True, generator=generator)] for row in odds])
    logits = drawn.repeat_interleave(8, 0)
    first = logits.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf).argmax(1)
    target = torch.where(torch.arange(40) % 8 < 4, first, torch.randint(0, rows, (40,), generator=generator))
    for k in range(5):
        target[8 * k] = -100
    expected = (target == logits.argmax(1)) & ~logits.isnan().any(1)
    options = (0.0, 0.0, 1.0, 0.0)
    for k in range(5):  # infinite products would make zeros NaN, so every kind of token has its bias
        mine, bias = slice(8 * k, 8 * k + 8), drawn[k]
        head = [torch.zeros(8, 16, dtype=dtype), torch.zeros(rows, 16, dtype=dtype), target[mine], -100]
        for wants in (True, False):
            flags = [True, wants, wants, bias, None, *options, None, None, wants, True]
            *_, together = launched(training.together, placed([*head, *flags]))
            assert torch.equal(together.cpu(), expected[mine]), (k, wants)
        *_, alone = launched(training.losses, placed([*head, bias, None, *options, True]))
        assert torch.equal(alone.cpu(), expected[mine]), k
        of_shard = [*head[:2], target[mine].clamp(min=-1), bias, None, 0.0, 1.0, False, True]
        found = launched(spec_shards.shard_statistics, placed(of_shard))[0]
        assert torch.equal(found[-1].cpu() > 0, expected[mine]), k


@in_one_dtype
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_targets_that_do_not_exist(dtype):
    """They make the results of their tokens NaN, and with them what is summed over tokens."""
    for operator, make in ((training.losses, cases._losses), (training.together, cases._together)):
        args = built(make(7, 8, 70, options=cases.EVERY), dtype)
        args[2][2], args[2][3] = 70, -5
        results = launched(operator, args)
        truth = getattr(reference, operator.spec.name)(*widen(args))
        for result, true in zip(results, truth, strict=True):
            assert torch.equal(result.isnan(), true.isnan())
        *_, correct = results
        assert torch.equal(correct, truth[-1])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_logits_of_minus_infinity(smoothing):
    """Some of a tile, whole tiles, and the own target of token 0: losses and statistics as the formula has them."""
    options = cases.Options(bias=True, label_smoothing=smoothing)
    args = built(cases._losses(7, 8, 600, options=options), torch.float32)
    for column in (slice(3, 4), slice(300, 600)):
        args[4][column] = -torch.inf
    args[2][0] = 3
    truth = reference.token_losses(*widen(args))
    agree(launched(training.losses, args), truth)
    x, w, target, ignored, *drawn, _ = args
    found = launched(training.together, [x, w, target, ignored, True, True, True, *drawn, None, None, True, True])
    agree(found[5:], truth[1:])


def test_gradients_of_logits_of_minus_infinity():
    args = built(cases._backward(7, 8, 600, options=cases.Options(bias=True)), torch.float32)
    grad, x, w, target, ignored, *_ = args
    bias = args[10]
    bias[3], bias[300:] = -torch.inf, -torch.inf
    target[0] = 3
    _, *found = reference.token_losses(*widen([x, w, target, ignored, *args[10:16], True]))
    top, total, others, predicted, _, entropy, *_ = (each.to(grad.dtype) for each in found)
    args[5:8], args[16:18] = [top, total, others], [predicted, entropy]
    agree(launched(training.gradients, args), reference.token_gradients(*widen(args)))


@in_one_dtype
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_confident_tokens_with_a_large_common_offset(dtype):
    generator = torch.Generator().manual_seed(0)
    w = torch.randn(200, 64, generator=generator).to(dtype)
    target = torch.randint(0, 200, (50,), generator=generator)
    options = (torch.full((200,), 50.0), None, 0.0, 0.0, 1.0, 0.0)
    head = [(w[target].float() * 0.4).to(dtype), w, target, -100]
    judged(training.together, placed([*head, True, True, True, *options, None, None, True, True]), dtype)


SIZES = [(8192, 4096, 128256), (8192, 4096, 16032), (100, 333, 900001), (32768, 4096, 128256), (32768, 4096, 16032)]


@pytest.mark.parametrize("options", [cases.PLAIN, cases.EVERY], ids=["plain", "every option"])
@pytest.mark.parametrize("dtype", DTYPES[::2], ids=str)
@pytest.mark.parametrize("dims", SIZES, ids=str)
def test_gradients_fit_the_budget(dims, dtype, options):
    """Planned, not run: untouched memory of a CPU costs nothing."""
    tokens, features, rows = dims
    with DEVICE:
        x, w = (torch.empty(count, features, dtype=dtype) for count in (tokens, rows))
        target = torch.empty(tokens, dtype=torch.int64)
        of_tokens, of_rows = torch.empty(tokens), torch.empty(rows)
    every = options == cases.EVERY
    tensors = (of_rows, of_rows) if every else (None, None)
    beside = (of_tokens,) * 5 if every else (None,) * 5
    args = (of_tokens, x, w, target, -100, *(of_tokens,) * 3, True, True, *tensors, *options[2:], *beside, every)
    assert training.gradients.plan(args, backend="triton").workspace_size <= choose.BUDGET
