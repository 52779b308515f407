// aclnnLstmBackward on FLOAT: two layers. The expected gradients are differences of a loss, so that nothing but the
// forward pass has to be written down, and trusted.
#include <functional>
#include <string>

#include "aclnnop/aclnn_lstm_backward.h"
#include "common.hpp"

namespace {

constexpr int64_t T = 5, N = 3, I = 4, H = 6, LAYERS = 2;

enum Saved { INPUT_GATE, CANDIDATE, FORGET_GATE, OUTPUT_GATE, HIDDEN, CELL, TANH_CELL, SAVED };

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

struct Network {
    Numbers x = random_numbers(T * N * I, -1, 1);
    Numbers h0 = random_numbers(LAYERS * N * H, -1, 1), c0 = random_numbers(LAYERS * N * H, -1, 1);
    std::vector<Numbers> params;        // of each layer: w_ih, w_hh, b_ih, b_hh, with rows of i, f, g, o
    Numbers y, hy, cy;                  // the results
    std::vector<Numbers> saved[SAVED];  // [T, N, H] of each layer

    static int64_t width(int64_t layer) { return layer == 0 ? I : H; }
    static Shape shape(size_t param)
    {
        const Shape shapes[] = {{4 * H, width(param / 4)}, {4 * H, H}, {4 * H}, {4 * H}};
        return shapes[param % 4];
    }

    Network()
    {
        for (size_t k = 0; k < 4 * LAYERS; k++) {
            params.push_back(random_numbers(elements(shape(k)), -0.7, 0.7));
        }
    }

    void forward()
    {
        y = x, hy = h0, cy = c0;
        for (auto &list : saved) {
            list.assign(LAYERS, Numbers(T * N * H));
        }
        for (int64_t layer = 0; layer < LAYERS; layer++) {
            for (int64_t row = 0; row < T * N; row++) {
                int64_t state = (layer * N + row % N) * H;
                step(layer, row, &y[row * width(layer)], &hy[state], &cy[state]);
            }
            y = saved[HIDDEN][layer];
        }
    }

    // One step of one sequence: `row` is t * N + n, `in` its input, `h` and `c` the states to be advanced.
    void step(int64_t layer, int64_t row, const double *in, double *h, double *c)
    {
        const Numbers *p = &params[4 * layer];
        double sums[4 * H];
        for (int64_t k = 0; k < 4 * H; k++) {
            sums[k] = std::inner_product(in, in + width(layer), &p[0][k * width(layer)], p[2][k] + p[3][k]);
            sums[k] = std::inner_product(h, h + H, &p[1][k * H], sums[k]);
        }
        for (int64_t k = 0; k < H; k++) {
            double i = sigmoid(sums[k]), f = sigmoid(sums[H + k]), g = std::tanh(sums[2 * H + k]);
            double o = sigmoid(sums[3 * H + k]);
            c[k] = f * c[k] + i * g;
            h[k] = o * std::tanh(c[k]);
            const double values[SAVED] = {i, g, f, o, h[k], c[k], std::tanh(c[k])};
            for (int s = 0; s < SAVED; s++) {
                saved[s][layer][row * H + k] = values[s];
            }
        }
    }
};

double dot(const Numbers &a, const Numbers &b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

// The derivative of loss() by each of the numbers.
Sums differences(Numbers &numbers, const std::function<double()> &loss)
{
    const double step = 1e-5;
    Sums result;
    double largest = 0;
    for (double &number : numbers) {
        const double kept = number;
        number = kept + step;
        double above = loss();
        number = kept - step;
        result.push_back({(above - loss()) / (2 * step)});
        number = kept;
        largest = std::fmax(largest, std::fabs(result.back().value));
    }
    for (Sum &sum : result) {
        sum.scale = largest;
    }
    return result;
}

TensorList<float> list(const std::vector<Numbers> &numbers, const std::function<Shape(size_t)> &shape)
{
    std::vector<Tensor<float>> tensors;
    for (size_t k = 0; k < numbers.size(); k++) {
        tensors.emplace_back(shape(k), numbers[k]);
    }
    return TensorList<float>(std::move(tensors));
}

}  // namespace

int main()
{
    Session session;
    Network net;
    net.forward();
    const Numbers dy = random_numbers(T * N * H, -1, 1), dh = random_numbers(LAYERS * N * H, -1, 1),
                  dc = random_numbers(LAYERS * N * H, -1, 1);
    const Shape states = {LAYERS, N, H};
    auto saved = [&](Saved kind) { return list(net.saved[kind], [](size_t) { return Shape{T, N, H}; }); };

    Tensor<float> x({T, N, I}, net.x), grad_y({T, N, H}, dy), grad_h(states, dh), grad_c(states, dc);
    TensorList<float> hx = list({net.h0, net.c0}, [&](size_t) { return states; });
    TensorList<float> params = list(net.params, Network::shape), dparams = list(net.params, Network::shape);
    TensorList<float> i = saved(INPUT_GATE), j = saved(CANDIDATE), f = saved(FORGET_GATE), o = saved(OUTPUT_GATE);
    TensorList<float> h = saved(HIDDEN), c = saved(CELL), tanhc = saved(TANH_CELL);
    Tensor<float> dx({T, N, I}), dh_prev(states), dc_prev(states);

    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    CHECK(aclnnLstmBackwardGetWorkspaceSize(x.get(), hx.get(), params.get(), grad_y.get(), grad_h.get(), grad_c.get(),
                                            i.get(), j.get(), f.get(), o.get(), h.get(), c.get(), tanhc.get(), nullptr,
                                            true, LAYERS, 0.0, true, false, false, nullptr, dx.get(), dh_prev.get(),
                                            dc_prev.get(), dparams.get(), &size, &executor));
    Buffer workspace(size);
    CHECK(aclnnLstmBackward(workspace.get(), size, executor, session.stream));
    CHECK(aclrtSynchronizeStream(session.stream));

    auto loss = [&] {
        net.forward();
        return dot(dy, net.y) + dot(dh, net.hy) + dot(dc, net.cy);
    };
    std::printf("aclnnLstmBackward, FLOAT, %d layers, T = %d, N = %d, I = %d\n", int{LAYERS}, int{T}, int{N}, int{I});
    const double inside = 8 * Type<float>::unit;  // what is saved is rounded, and so is every step of the way back
    bool right = agrees("dxOut", dx, differences(net.x, loss), inside);
    right &= agrees("dhPrevOut", dh_prev, differences(net.h0, loss), inside);
    right &= agrees("dcPrevOut", dc_prev, differences(net.c0, loss), inside);
    for (size_t k = 0; k < net.params.size(); k++) {
        std::string name = std::vector{"w_ih", "w_hh", "b_ih", "b_hh"}[k % 4] + (" of layer " + std::to_string(k / 4));
        right &= agrees(name.c_str(), dparams[k], differences(net.params[k], loss), inside);
    }
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
