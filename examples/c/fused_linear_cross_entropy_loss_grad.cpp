// aclnnFusedLinearCrossEntropyLossGrad on BF16: one of two processes that hold half of a vocabulary each.
#include "aclnnop/aclnn_fused_linear_cross_entropy_loss_grad.h"
#include "common.hpp"

namespace {

constexpr int64_t BT = 21, H = 24, V = 136;  // tokens, features, words of this half
constexpr int64_t FIRST = V;                 // our half is the second one

double dot(const double *a, const double *b)
{
    return std::inner_product(a, a + H, b, 0.0);
}

}  // namespace

int main()
{
    Session session;
    Tensor<Bfloat> input({BT, H}, random_numbers(BT * H, -1, 1)), weight({V, H}, random_numbers(V * H, -1, 1));
    const Numbers x = input.numbers(), ours = weight.numbers(), theirs = random_numbers(V * H, -1, 1);
    const Numbers scales = Tensor<float>({BT}, random_numbers(BT, 0.5, 1.5)).numbers();

    // What the forward pass has found out about each token in the whole vocabulary: the largest logit, and the sum of
    // exponentials. A bit of the mask is set where the target is a word of the other half.
    Numbers largest(BT, -INFINITY), total(BT);
    std::vector<int32_t> target(BT);
    std::vector<uint8_t> elsewhere((BT + 7) / 8);
    for (int64_t t = 0; t < BT; t++) {
        for (const Numbers *half : {&theirs, &ours}) {
            for (int64_t v = 0; v < V; v++) {
                largest[t] = std::fmax(largest[t], dot(&x[t * H], &(*half)[v * H]));
            }
        }
        for (const Numbers *half : {&theirs, &ours}) {
            for (int64_t v = 0; v < V; v++) {
                total[t] += std::exp(dot(&x[t * H], &(*half)[v * H]) - largest[t]);
            }
        }
        auto word = static_cast<int64_t>(uniform(0, 2 * V));
        bool here = word >= FIRST;
        target[t] = here ? static_cast<int32_t>(word - FIRST) : 0;
        elsewhere[t / 8] |= static_cast<uint8_t>(!here << t % 8);
    }
    Tensor<float> grad({BT}, scales), logits_max({BT}, largest), sum_exp_logits({BT}, total);
    Tensor<uint8_t> target_mask({static_cast<int64_t>(elsewhere.size())}, elsewhere);
    Tensor<int32_t> masked_target({BT}, target);
    Tensor<Bfloat> input_grad({BT, H}), weight_grad({V, H});

    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    CHECK(aclnnFusedLinearCrossEntropyLossGradGetWorkspaceSize(
        grad.get(), input.get(), weight.get(), target_mask.get(), masked_target.get(), 0.0f, logits_max.get(),
        sum_exp_logits.get(), nullptr, input_grad.get(), weight_grad.get(), &size, &executor));
    Buffer workspace(size);
    CHECK(aclnnFusedLinearCrossEntropyLossGrad(workspace.get(), size, executor, session.stream));
    CHECK(aclrtSynchronizeStream(session.stream));

    // The gradient of a logit is its probability, less one at the target; two products carry it to input and weight.
    Sums expected_input(BT * H), expected_weight(V * H);
    for (int64_t t = 0; t < BT; t++) {
        bool here = !(elsewhere[t / 8] >> t % 8 & 1);
        for (int64_t v = 0; v < V; v++) {
            double probability = std::exp(dot(&x[t * H], &ours[v * H]) - largest[t]) / total[t];
            double at_logit = (probability - (here && v == target[t])) * scales[t];
            for (int64_t h = 0; h < H; h++) {
                expected_input[t * H + h].add(at_logit * ours[v * H + h]);
                expected_weight[v * H + h].add(at_logit * x[t * H + h]);
            }
        }
    }
    std::printf("aclnnFusedLinearCrossEntropyLossGrad, BF16, BT = %d, H = %d, V = %d of %d\n", int{BT}, int{H}, int{V},
                int{2 * V});
    const double inside = 1.01 * Type<Bfloat>::unit;  // the operator rounds the logits' gradients to BF16
    bool right = agrees("inputGradOut", input_grad, expected_input, inside);
    right &= agrees("weightGradOut", weight_grad, expected_weight, inside);
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
