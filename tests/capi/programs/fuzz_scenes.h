// Whole calls of the operators, mostly right: a right one must succeed, one with something wrong in it must not crash.

using Extents = std::vector<int64_t>;

class Scene {
public:
    explicit Scene(Fuzzer &fuzzer) : z(fuzzer) { take(aclrtCreateStream(&stream_)); }

    ~Scene()
    {
        if (z.once_in(5)) {
            leave_to_others();
            return;
        }
        for (void *list : lists_) {
            aclDestroyTensorList(static_cast<aclTensorList *>(list));
        }
        for (void *tensor : tensors_) {
            aclDestroyTensor(static_cast<aclTensor *>(tensor));
        }
        for (void *block : blocks_) {
            aclrtFree(block);
        }
        aclrtDestroyStream(stream_);
        aclGetRecentErrMsg();
    }

    bool is_right() const { return right_; }

    aclTensor *tensor(const Extents &shape, aclDataType type)
    {
        if (z.once_in(60)) {
            right_ = false;
            return static_cast<aclTensor *>(z.handle("aclTensor"));
        }
        aclTensor *made = fresh(shape, type);
        tensors_.push_back(made);
        return made;
    }

    aclTensorList *list(const std::vector<Extents> &shapes, aclDataType type)
    {
        std::vector<const aclTensor *> members;
        for (const auto &shape : shapes) {
            members.push_back(fresh(shape, type));
        }
        if (z.once_in(40)) {
            right_ = false;
            members.resize(z.below(members.size() + 1));
        }
        aclTensorList *made = aclCreateTensorList(members.data(), members.size());
        lists_.push_back(made);
        right_ &= made != nullptr;
        return made;
    }

    // Phase two and what can happen before it.
    template <class Launch>
    void launch(const char *function, Launch run, int planned, uint64_t size, aclOpExecutor *executor)
    {
        if (planned != 0) {
            z.outcome(function, planned, right_);
            return;
        }
        if (z.once_in(12)) {
            z.add("aclOpExecutor", executor);
            return;
        }
        disturb(executor);
        void *workspace = nullptr;
        if (size > 0) {
            take(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST));
            blocks_.push_back(workspace);
        }
        if (z.once_in(20)) {
            right_ &= size == 0;
            workspace = z.address();
            size = z.size();
        }
        for (int time = 0; time < 2; time++) {
            z.begin(function);
            int status = z.aclnn_status(function, run(workspace, size, executor, stream_));
            if (time == 0 || repeatable_) {
                z.outcome(function, status, right_);
            } else if (status == 0) {
                z.fault(function, "an executor ran twice");
            }
        }
        if (repeatable_) {
            aclDestroyAclOpExecutor(executor);
        }
        z.begin("aclrtSynchronizeStream");
        int done = z.acl_code("aclrtSynchronizeStream", aclrtSynchronizeStream(stream_));
        z.outcome("aclrtSynchronizeStream", done, right_);
        completed += right_ && done == 0;
    }

private:
    void take(int code) { right_ &= code == 0; }

    aclTensor *fresh(const Extents &shape, aclDataType type)
    {
        size_t bytes = aclDataTypeSize(type);
        for (int64_t extent : shape) {
            bytes *= static_cast<size_t>(extent);
        }
        void *block = nullptr;
        if (bytes > 0) {
            const bool too_little = bytes > CELL && z.once_in(60);
            const size_t given = too_little ? 1 + z.below(bytes - CELL) : bytes;
            right_ &= !too_little;
            take(aclrtMalloc(&block, given, ACL_MEM_MALLOC_HUGE_FIRST));
            take(aclrtMemset(block, given, static_cast<int32_t>(z.below(256)), given));
            blocks_.push_back(block);
        }
        aclTensor *made = aclCreateTensor(shape.data(), shape.size(), type, nullptr, 0, ACL_FORMAT_ND, shape.data(),
                                          shape.size(), block);
        right_ &= made != nullptr;
        return made;
    }

    void disturb(aclOpExecutor *executor)
    {
        if (z.once_in(15) && !blocks_.empty()) {
            right_ = false;
            aclrtFree(blocks_[z.below(blocks_.size())]);
        }
        if (z.once_in(10)) {  // an executor does without its tensors' handles, unless the program is checked
            right_ &= !std::getenv("ACLGRAD_STRICT");
            for (void *tensor : tensors_) {
                aclDestroyTensor(static_cast<aclTensor *>(tensor));
            }
            tensors_.clear();
        }
        if (z.once_in(15) && !tensors_.empty()) {
            right_ = false;
            const int64_t shape[] = {1};
            aclInitTensor(static_cast<aclTensor *>(tensors_[z.below(tensors_.size())]), shape, 1, ACL_FLOAT, nullptr, 0,
                          ACL_FORMAT_ND, shape, 1, z.address());
        }
        repeatable_ = z.once_in(4) && aclSetAclOpExecutorRepeatable(executor) == 0;
        if (repeatable_ && z.once_in(4)) {
            right_ = false;
            aclSetTensorAddr(executor, z.below(6), static_cast<aclTensor *>(z.handle("aclTensor")), z.address());
            aclSetDynamicInputTensorAddr(executor, z.below(6), z.below(3),
                                         static_cast<aclTensorList *>(z.handle("aclTensorList")), z.address());
        }
        aclGetRecentErrMsg();
    }

    void leave_to_others()
    {
        for (void *list : lists_) {
            z.add("aclTensorList", list);
        }
        for (void *tensor : tensors_) {
            z.add("aclTensor", tensor);
        }
        for (void *block : blocks_) {
            z.add("device", block);
        }
        z.add("aclrtStream", stream_);
    }

    Fuzzer &z;
    bool right_ = true, repeatable_ = false;
    aclrtStream stream_ = nullptr;
    std::vector<void *> tensors_, lists_, blocks_;
};

#define PLAN(operator, ...)                                                                         \
    do {                                                                                            \
        const char *name = #operator "GetWorkspaceSize";                                            \
        uint64_t size = 0;                                                                          \
        aclOpExecutor *executor = nullptr;                                                          \
        begin(name);                                                                                \
        int status = aclnn_status(name, operator##GetWorkspaceSize(__VA_ARGS__, &size, &executor)); \
        scene.launch(#operator, operator, status, size, executor);                                  \
    } while (0)

void Fuzzer::scene()
{
    Scene scene(*this);
    auto some = [&](uint64_t most) { return static_cast<int64_t>(1 + below(most)); };
    switch (below(5)) {
    case 0: {
        Extents shape;
        for (uint64_t rank = below(5); rank > 0; rank--) {
            shape.push_back(static_cast<int64_t>(below(6)));
        }
        auto type = one_of({ACL_FLOAT, ACL_FLOAT16, ACL_BF16});
        aclTensor *grad = scene.tensor(shape, type), *x = scene.tensor(shape, type), *out = scene.tensor(shape, type);
        PLAN(aclnnHardsigmoidBackward, grad, x, out);
        break;
    }
    case 1: {
        Extents images = {some(4), some(5), some(6)}, channels = {images[1]}, ranks = {some(3)};
        aclTensor *t[9];
        for (int k = 0; k < 9; k++) {
            t[k] = scene.tensor(k < 2 || k == 8 ? images : k == 7 ? ranks : channels, k == 7 ? ACL_INT32 : ACL_FLOAT);
        }
        PLAN(aclnnBatchNormElemtBackward, t[0], t[1], t[2], t[3], once_in(3) ? nullptr : t[4], t[5], t[6], t[7], t[8]);
        break;
    }
    case 2: {
        int64_t n = some(4), h = some(9);
        Extents narrow = {n, h}, wide = {n, 4 * h};
        aclTensor *t[8];
        for (int k = 0; k < 8; k++) {
            t[k] = scene.tensor(k == 7 ? Extents{4 * h} : k == 4 || k == 5 ? wide : narrow, ACL_FLOAT);
        }
        PLAN(aclnnThnnFusedLstmCellBackward, t[0], t[1], t[2], t[3], t[4], flag(), t[5], t[6], t[7]);
        break;
    }
    case 3: {
        int64_t tokens = some(17), features = some(8), words = 127 + some(4);
        Extents vector = {tokens};
        aclTensor *grad = scene.tensor(vector, ACL_FLOAT), *input = scene.tensor({tokens, features}, ACL_BF16);
        aclTensor *weight = scene.tensor({words, features}, ACL_BF16);
        aclTensor *mask = scene.tensor({(tokens + 7) / 8}, ACL_UINT8);
        aclTensor *target = scene.tensor(vector, once_in(2) ? ACL_INT32 : ACL_INT64);
        aclTensor *largest = scene.tensor(vector, ACL_FLOAT), *total = scene.tensor(vector, ACL_FLOAT);
        aclTensor *softmax = once_in(2) ? nullptr : scene.tensor({tokens, words}, ACL_FLOAT);
        aclTensor *dinput = scene.tensor({tokens, features}, ACL_BF16);
        aclTensor *dweight = scene.tensor({words, features}, ACL_BF16);
        PLAN(aclnnFusedLinearCrossEntropyLossGrad, grad, input, weight, mask, target, 0.0f, largest, total, softmax,
             dinput, dweight);
        break;
    }
    default: {
        int64_t t = some(3), n = some(3), i = some(4), h = some(5), layers = some(2), directions = some(2);
        bool bias = flag(), ragged = flag();
        auto sequence = [&](int64_t width) { return ragged ? Extents{t * n, width} : Extents{t, n, width}; };
        Extents states = {layers * directions, n, h};
        std::vector<Extents> params, steps(static_cast<size_t>(layers * directions), Extents{t, n, h});
        for (int64_t k = 0; k < layers * directions; k++) {
            params.push_back({4 * h, k < directions ? i : directions * h});
            params.push_back({4 * h, h});
            if (bias) {
                params.insert(params.end(), 2, Extents{4 * h});
            }
        }
        aclTensor *x = scene.tensor(sequence(i), ACL_FLOAT), *dy = scene.tensor(sequence(directions * h), ACL_FLOAT);
        aclTensor *dh = scene.tensor(states, ACL_FLOAT), *dc = scene.tensor(states, ACL_FLOAT);
        aclTensor *lengths = ragged ? scene.tensor({t}, ACL_INT64) : nullptr;
        aclTensor *dx = scene.tensor(sequence(i), ACL_FLOAT), *dhp = scene.tensor(states, ACL_FLOAT);
        aclTensor *dcp = scene.tensor(states, ACL_FLOAT);
        aclTensorList *hx = scene.list({states, states}, ACL_FLOAT), *w = scene.list(params, ACL_FLOAT);
        aclTensorList *dw = scene.list(params, ACL_FLOAT), *saved[7];
        for (aclTensorList *&list : saved) {
            list = scene.list(steps, ACL_FLOAT);
        }
        PLAN(aclnnLstmBackward, x, hx, w, dy, dh, dc, saved[0], saved[1], saved[2], saved[3], saved[4], saved[5],
             saved[6], lengths, bias, layers, real(), flag(), directions == 2, false, nullptr, dx, dhp, dcp, dw);
        break;
    }
    }
}
