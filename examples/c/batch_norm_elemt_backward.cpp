// aclnnBatchNormElemtBackward: one of two processes that share a batch, with FLOAT16 gradients and BF16 inputs.
#include "aclnnop/aclnn_batch_norm_elemt_backward.h"
#include "common.hpp"

namespace {

constexpr int64_t C = 6, PIXELS = 5 * 7;
constexpr int64_t OURS = 4, THEIRS = 3;  // images of this process and of the other one

int64_t at(int64_t image, int64_t channel, int64_t pixel) { return (image * C + channel) * PIXELS + pixel; }

// What the processes have found out together before this operator runs, for each channel.
struct Statistics {
    Numbers mean = Numbers(C), invstd = Numbers(C), sum_dy = Numbers(C), sum_dy_xmu = Numbers(C);
};

Statistics statistics(const Numbers &dy, const Numbers &x)
{
    const double epsilon = 1e-5, count = (OURS + THEIRS) * PIXELS;
    Statistics s;
    for (int64_t c = 0; c < C; c++) {
        auto sum = [&](auto term) {
            double total = 0;
            for (int64_t image = 0; image < OURS + THEIRS; image++) {
                for (int64_t pixel = 0; pixel < PIXELS; pixel++) {
                    total += term(dy[at(image, c, pixel)], x[at(image, c, pixel)]);
                }
            }
            return total;
        };
        double mean = s.mean[c] = sum([](double, double value) { return value; }) / count;
        double variance = sum([mean](double, double value) { return (value - mean) * (value - mean); }) / count;
        s.invstd[c] = 1 / std::sqrt(variance + epsilon);
        s.sum_dy[c] = sum([](double grad, double) { return grad; });
        s.sum_dy_xmu[c] = sum([mean](double grad, double value) { return grad * (value - mean); });
    }
    return s;
}

}  // namespace

int main()
{
    Session session;
    const int64_t all = (OURS + THEIRS) * C * PIXELS, ours = OURS * C * PIXELS;
    Numbers dy = random_numbers(all, -1, 1), x = random_numbers(all, -2, 3);
    Statistics known = statistics(dy, x);
    dy.resize(ours), x.resize(ours);

    const Shape images = {OURS, C, 5, 7}, channels = {C};
    Tensor<Half> grad_out(images, dy);
    Tensor<Bfloat> input(images, x);
    Tensor<float> mean(channels, known.mean), invstd(channels, known.invstd);
    Tensor<float> sum_dy(channels, known.sum_dy), sum_dy_xmu(channels, known.sum_dy_xmu);
    Tensor<float> weight(channels, random_numbers(C, 0.5, 2));
    Tensor<int32_t> counter({2}, std::vector<int64_t>{OURS * PIXELS, THEIRS * PIXELS});  // the operator adds them up
    Tensor<float> grad_input(images);

    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    CHECK(aclnnBatchNormElemtBackwardGetWorkspaceSize(grad_out.get(), input.get(), mean.get(), invstd.get(),
                                                      weight.get(), sum_dy.get(), sum_dy_xmu.get(), counter.get(),
                                                      grad_input.get(), &size, &executor));
    Buffer workspace(size);
    CHECK(aclnnBatchNormElemtBackward(workspace.get(), size, executor, session.stream));
    CHECK(aclrtSynchronizeStream(session.stream));

    // A number's own gradient, less what it does through the mean and through the variance.
    const Numbers held_dy = grad_out.numbers(), held_x = input.numbers(), m = mean.numbers(), s = invstd.numbers(),
                  w = weight.numbers(), dy_total = sum_dy.numbers(), dy_xmu_total = sum_dy_xmu.numbers();
    const double count = (OURS + THEIRS) * PIXELS;
    Sums expected(ours);
    for (int64_t image = 0; image < OURS; image++) {
        for (int64_t c = 0; c < C; c++) {
            for (int64_t pixel = 0; pixel < PIXELS; pixel++) {
                int64_t k = at(image, c, pixel);
                Sum inner;
                inner.add(held_dy[k]);
                inner.add(-dy_total[c] / count);
                inner.add(-(held_x[k] - m[c]) * s[c] * s[c] * dy_xmu_total[c] / count);
                expected[k] = inner.times(s[c] * w[c]);
            }
        }
    }
    std::printf("aclnnBatchNormElemtBackward, FLOAT16 and BF16 to FLOAT, %d of %d images of %d channels\n", int{OURS},
                int{OURS + THEIRS}, int{C});
    const double inside = 16 * Type<float>::unit;  // a dozen operations in single precision
    return agrees("gradInput", grad_input, expected, inside) ? EXIT_SUCCESS : EXIT_FAILURE;
}
