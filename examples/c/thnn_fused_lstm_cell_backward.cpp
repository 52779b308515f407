// aclnnThnnFusedLstmCellBackward on FLOAT16: from the gradients of a cell's two states back to those of its gates.
#include "aclnnop/aclnn_thnn_fused_lstm_cell_backward.h"
#include "common.hpp"

namespace {

constexpr int64_t N = 19, H = 33;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// What the forward pass leaves behind: the activated gates i, f, g, o side by side, and the state they lead to.
void forward(const Numbers &cx, Numbers &storage, Numbers &cy)
{
    for (int64_t n = 0; n < N; n++) {
        double *row = &storage[n * 4 * H];
        for (int64_t k = 0; k < H; k++) {
            double &i = row[k], &f = row[H + k], &g = row[2 * H + k], &o = row[3 * H + k];
            i = sigmoid(i), f = sigmoid(f), g = std::tanh(g), o = sigmoid(o);
            cy[n * H + k] = f * cx[n * H + k] + i * g;
        }
    }
}

}  // namespace

int main()
{
    Session session;
    Numbers state = random_numbers(N * H, -1, 1), gates = random_numbers(N * 4 * H, -2, 2), next(N * H);
    forward(state, gates, next);
    Tensor<Half> grad_hy({N, H}, random_numbers(N * H, -1, 1)), grad_c({N, H}, random_numbers(N * H, -1, 1));
    Tensor<Half> cx({N, H}, state), cy({N, H}, next), storage({N, 4 * H}, gates);
    Tensor<Half> grad_gates({N, 4 * H}), grad_cx({N, H}), grad_bias({4 * H});

    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    CHECK(aclnnThnnFusedLstmCellBackwardGetWorkspaceSize(grad_hy.get(), grad_c.get(), cx.get(), cy.get(), storage.get(),
                                                         true, grad_gates.get(), grad_cx.get(), grad_bias.get(), &size,
                                                         &executor));
    Buffer workspace(size);
    CHECK(aclnnThnnFusedLstmCellBackward(workspace.get(), size, executor, session.stream));
    CHECK(aclrtSynchronizeStream(session.stream));

    // The chain rule, on the numbers that the 16-bit tensors really hold.
    const Numbers dh = grad_hy.numbers(), dc = grad_c.numbers(), before = cx.numbers(), after = cy.numbers(),
                  saved = storage.numbers();
    Sums expected_gates(N * 4 * H), expected_cx(N * H), expected_bias(4 * H);
    for (int64_t n = 0; n < N; n++) {
        for (int64_t k = 0; k < H; k++) {
            const double *row = &saved[n * 4 * H + k];
            double i = row[0], f = row[H], g = row[2 * H], o = row[3 * H];
            double tanh_c = std::tanh(after[n * H + k]), at_h = dh[n * H + k];
            Sum at_c;
            at_c.add(dc[n * H + k]);
            at_c.add(at_h * o * (1 - tanh_c * tanh_c));
            Sum at_o;
            at_o.add(at_h * tanh_c * o * (1 - o));
            const Sum gate[] = {at_c.times(g * i * (1 - i)), at_c.times(before[n * H + k] * f * (1 - f)),
                                at_c.times(i * (1 - g * g)), at_o};
            for (int64_t block = 0; block < 4; block++) {
                expected_gates[(n * 4 + block) * H + k] = gate[block];
                expected_bias[block * H + k].add(gate[block].value);
            }
            expected_cx[n * H + k] = at_c.times(f);
        }
    }
    std::printf("aclnnThnnFusedLstmCellBackward, FLOAT16, N = %d, H = %d\n", int{N}, int{H});
    const double inside = 32 * Type<float>::unit;  // a dozen operations in single precision, tanh among them
    bool right = agrees("gradGatesOut", grad_gates, expected_gates, inside);
    right &= agrees("gradCxOut", grad_cx, expected_cx, inside);
    right &= agrees("gradBiasOut", grad_bias, expected_bias, inside);
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
