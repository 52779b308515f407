// Programs with one mistake each, in the line marked "here", and programs without. The comment before a function names
// the kind of finding.
#include "findings.h"

// copy-race
static void wrong_upload_under_a_kernel(aclrtStream stream)
{
    Operands operands;
    const float values[8] = {};
    operands.run(stream);
    aclrtMemcpy(operands.memory[1], 32, values, 32, ACL_MEMCPY_HOST_TO_DEVICE);  // here
    aclrtSynchronizeStream(stream);
}

// copy-race
static void wrong_fill_under_a_kernel(aclrtStream stream)
{
    Operands operands;
    operands.run(stream);
    aclrtMemset(operands.memory[2], 32, 0, 32);  // here
    aclrtSynchronizeStream(stream);
}

// copy-race
static void wrong_temporary_is_copied_beside_another_stream(aclrtStream stream)
{
    aclrtStream other = nullptr;
    aclrtCreateStream(&other);
    void *memory = device(32);
    std::vector<float> host(8);
    aclrtMemsetAsync(memory, 32, 1, 32, other);
    aclrtMemcpyAsync(host.data(), 32, memory, 32, ACL_MEMCPY_DEVICE_TO_HOST, stream);  // here
    aclrtSynchronizeDevice();
    aclrtDestroyStream(other);
    aclrtFree(memory);
}

// stream-race
static void wrong_operators_on_two_streams(aclrtStream stream)
{
    aclrtStream other = nullptr;
    aclrtCreateStream(&other);
    Operands operands;
    operands.run(stream);
    aclOpExecutor *again = operands.plan();
    aclnnHardsigmoidBackward(nullptr, 0, again, other);  // here
    aclrtSynchronizeDevice();
    aclrtDestroyStream(other);
}

// stream-race
static void wrong_event_of_another_stream(aclrtStream stream)
{
    aclrtStream second = nullptr, third = nullptr;
    aclrtEvent event = nullptr;
    aclrtCreateStream(&second);
    aclrtCreateStream(&third);
    aclrtCreateEvent(&event);
    void *memory = device(32);
    aclrtMemsetAsync(memory, 32, 1, 32, stream);
    aclrtRecordEvent(event, second);
    aclrtStreamWaitEvent(third, event);
    aclrtMemsetAsync(memory, 32, 2, 32, third);  // here
    aclrtSynchronizeDevice();
    aclrtDestroyEvent(event);
    aclrtDestroyStream(second);
    aclrtDestroyStream(third);
    aclrtFree(memory);
}

// freed-in-use
static void wrong_operand_freed_under_a_kernel(aclrtStream stream)
{
    Operands operands;
    operands.run(stream);
    aclrtFree(operands.memory[1]);  // here
    aclrtSynchronizeStream(stream);
    operands.memory[1] = device(32);
}

// freed-in-use
static void wrong_page_locked_source_freed(aclrtStream stream)
{
    void *host = nullptr, *memory = device(32);
    aclrtMallocHost(&host, 32);
    aclrtMemcpyAsync(memory, 32, host, 32, ACL_MEMCPY_HOST_TO_DEVICE, stream);
    aclrtFreeHost(host);  // here
    aclrtSynchronizeStream(stream);
    aclrtFree(memory);
}

// failed-call
static void wrong_freed_twice(aclrtStream)
{
    void *memory = device(32);
    aclrtFree(memory);
    aclrtFree(memory);  // here
}

// failed-call
static void wrong_freed_in_the_middle(aclrtStream)
{
    char *memory = static_cast<char *>(device(64));
    aclrtFree(memory + 32);  // here
    aclrtFree(memory);
}

// failed-call
static void wrong_executor_used_twice(aclrtStream stream)
{
    Operands operands;
    aclOpExecutor *executor = operands.plan();
    aclnnHardsigmoidBackward(nullptr, 0, executor, stream);
    aclnnHardsigmoidBackward(nullptr, 0, executor, stream);  // here
    aclrtSynchronizeStream(stream);
}

// failed-call
static void wrong_executor_of_another_operator(aclrtStream stream)
{
    Operands operands;
    aclOpExecutor *executor = operands.plan();
    aclnnHardsigmoid(nullptr, 0, executor, stream);  // here
    aclDestroyAclOpExecutor(executor);
}

// failed-call
static void wrong_kernel_on_freed_memory(aclrtStream stream)
{
    Operands operands;
    aclOpExecutor *executor = operands.plan();
    aclrtFree(operands.memory[0]);
    aclnnHardsigmoidBackward(nullptr, 0, executor, stream);  // here
    operands.memory[0] = device(32);
}

// failed-call
static void wrong_write_past_the_end(aclrtStream)
{
    void *memory = device(32);
    const float values[9] = {};
    aclrtMemcpy(memory, sizeof values, values, sizeof values, ACL_MEMCPY_HOST_TO_DEVICE);  // here
    aclrtFree(memory);
}

// failed-call
static void wrong_fill_of_freed_memory(aclrtStream)
{
    void *memory = device(1 << 20);
    aclrtFree(memory);
    aclrtMemset(memory, 32, 0, 32);  // here
}

// failed-call
static void wrong_destroyed_stream(aclrtStream)
{
    aclrtStream other = nullptr;
    aclrtCreateStream(&other);
    aclrtDestroyStream(other);
    aclrtSynchronizeStream(other);  // here
}

// failed-call
static void wrong_output_over_an_input(aclrtStream)
{
    void *memory = device(64);
    aclTensor *grad = floats(memory), *x = floats(memory), *out = floats(static_cast<char *>(memory) + 32);
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    const int64_t dims[] = {8}, storage[] = {16};
    aclTensor *inside = aclCreateTensor(dims, 1, ACL_FLOAT, nullptr, 4, ACL_FORMAT_ND, storage, 1, memory);
    aclnnHardsigmoidBackwardGetWorkspaceSize(grad, x, inside, &size, &executor);  // here
    for (aclTensor *tensor : {grad, x, out, inside}) {
        aclDestroyTensor(tensor);
    }
    aclrtFree(memory);
}

// failed-call
static void wrong_host_memory_as_a_tensor(aclrtStream stream)
{
    Operands operands;
    alignas(32) static float values[8];
    aclTensor *host = floats(values);
    aclOpExecutor *executor = plan(host, operands.tensors[1], operands.tensors[2]);
    aclnnHardsigmoidBackward(nullptr, 0, executor, stream);  // here
    aclDestroyTensor(host);
}

// failed-call
static void wrong_host_to_host_on_a_stream(aclrtStream stream)
{
    float from[8] = {}, to[8];
    aclrtMemcpyAsync(to, 32, from, 32, ACL_MEMCPY_HOST_TO_HOST, stream);  // here
}

// uninitialised-read
static void wrong_operand_never_written(aclrtStream stream)
{
    Operands operands;
    void *memory = nullptr;
    aclrtMalloc(&memory, 32, ACL_MEM_MALLOC_HUGE_FIRST);
    aclTensor *grad = floats(memory);
    aclOpExecutor *executor = plan(grad, operands.tensors[1], operands.tensors[2]);
    aclnnHardsigmoidBackward(nullptr, 0, executor, stream);  // here
    aclrtSynchronizeStream(stream);
    aclDestroyTensor(grad);
    aclrtFree(memory);
}

// uninitialised-read
static void wrong_second_half_never_written(aclrtStream stream)
{
    float host[8] = {};
    void *memory = nullptr, *target = device(32);
    aclrtMalloc(&memory, 32, ACL_MEM_MALLOC_HUGE_FIRST);
    aclrtMemcpy(memory, 32, host, 16, ACL_MEMCPY_HOST_TO_DEVICE);
    aclrtMemcpyAsync(target, 32, memory, 32, ACL_MEMCPY_DEVICE_TO_DEVICE, stream);  // here
    aclrtSynchronizeStream(stream);
    aclrtFree(memory);
    aclrtFree(target);
}

// uninitialised-read
static void wrong_strided_operand_never_written(aclrtStream stream)
{
    Operands operands;
    void *memory = nullptr;
    aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST);
    aclrtMemset(memory, 64, 0, 32);
    const int64_t dims[] = {8}, strides[] = {2}, storage[] = {16};
    aclTensor *grad = aclCreateTensor(dims, 1, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, storage, 1, memory);
    aclOpExecutor *executor = plan(grad, operands.tensors[1], operands.tensors[2]);
    aclnnHardsigmoidBackward(nullptr, 0, executor, stream);  // here
    aclrtSynchronizeStream(stream);
    aclDestroyTensor(grad);
    aclrtFree(memory);
}

// host-access
static void wrong_result_read_through_the_pointer(aclrtStream stream)
{
    Operands operands;
    operands.run(stream);
    aclrtSynchronizeStream(stream);
    const float first = *static_cast<volatile float *>(operands.memory[2]);  // here
    (void)first;
}

// host-access
static void wrong_memcpy_of_the_host(aclrtStream)
{
    float host[8];
    void *memory = device(32);
    std::memcpy(host, memory, sizeof host);  // here
    aclrtFree(memory);
}

// host-access
static void wrong_read_after_free(aclrtStream)
{
    volatile char *memory = static_cast<char *>(device(32));
    aclrtFree(const_cast<char *>(memory));
    const char first = memory[0];  // here
    (void)first;
}

// host-access
static void wrong_vector_of_device_memory(aclrtStream)
{
    const float *memory = static_cast<float *>(device(32));
    std::vector<float> host;
    host.assign(memory, memory + 8);  // here
    aclrtFree(const_cast<float *>(memory));
}

// destroyed-too-early
static void wrong_output_destroyed_between_the_phases(aclrtStream stream)
{
    Operands operands;
    void *memory = device(32);
    aclTensor *out = floats(memory);
    aclOpExecutor *executor = plan(operands.tensors[0], operands.tensors[1], out);
    aclDestroyTensor(out);
    aclnnHardsigmoidBackward(nullptr, 0, executor, stream);  // here
    aclrtSynchronizeStream(stream);
    aclrtFree(memory);
}

// event-never-recorded
static void wrong_event_that_was_reset(aclrtStream stream)
{
    aclrtEvent event = nullptr;
    aclrtCreateEvent(&event);
    aclrtRecordEvent(event, stream);
    aclrtSynchronizeEvent(event);
    aclrtResetEvent(event, stream);
    aclrtStreamWaitEvent(stream, event);  // here
    aclrtDestroyEvent(event);
}

// no-current-device
static void wrong_kernel_in_a_thread_without_a_device(aclrtStream stream)
{
    Operands operands;
    aclOpExecutor *executor = operands.plan();
    std::thread([=] {
        aclnnHardsigmoidBackward(nullptr, 0, executor, stream);  // here
    }).join();
}

// wrong-context
static void wrong_event_recorded_in_another_context(aclrtStream stream)
{
    aclrtContext before = nullptr, other = nullptr;
    aclrtEvent event = nullptr;
    aclrtGetCurrentContext(&before);
    aclrtCreateEvent(&event);
    aclrtCreateContext(&other, 0);
    aclrtRecordEvent(event, stream);  // here
    aclrtDestroyEvent(event);
    aclrtDestroyContext(other);
    aclrtSetCurrentContext(before);
}

// device-memory-leaked
static void wrong_leak_in_a_loop(aclrtStream)
{
    const auto lost = [](size_t size) { return device(size); };
    for (int k = 0; k < 3; k++) {
        lost(32);  // here
    }
}

// unsupported-call
static void wrong_foreign_operator(aclrtStream)
{
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    extern int foreign_add(uint64_t *, aclOpExecutor **);
    foreign_add(&size, &executor);  // here
}

static void right_double_buffering(aclrtStream stream)
{
    aclrtStream copies = nullptr;
    aclrtEvent uploaded[2], computed[2];
    Operands operands[2];
    void *host = nullptr;
    aclrtCreateStream(&copies);
    aclrtMallocHost(&host, 64);
    std::memset(host, 0, 64);
    for (int k = 0; k < 2; k++) {
        aclrtCreateEvent(&uploaded[k]);
        aclrtCreateEvent(&computed[k]);
        aclrtRecordEvent(computed[k], stream);
    }
    for (int round = 0; round < 6; round++) {
        const int k = round % 2;
        aclrtStreamWaitEvent(copies, computed[k]);
        aclrtMemcpyAsync(operands[k].memory[1], 32, host, 32, ACL_MEMCPY_HOST_TO_DEVICE, copies);
        aclrtRecordEvent(uploaded[k], copies);
        aclrtStreamWaitEvent(stream, uploaded[k]);
        operands[k].run(stream);
        aclrtRecordEvent(computed[k], stream);
    }
    aclrtSynchronizeDevice();
    for (int k = 0; k < 2; k++) {
        aclrtDestroyEvent(uploaded[k]);
        aclrtDestroyEvent(computed[k]);
    }
    aclrtFreeHost(host);
    aclrtDestroyStream(copies);
}

static void right_temporary_buffer_is_gone_after_the_call(aclrtStream stream)
{
    Operands operands;
    {
        std::vector<float> values(8, 2.0f);
        aclrtMemcpyAsync(operands.memory[0], 32, values.data(), 32, ACL_MEMCPY_HOST_TO_DEVICE, stream);
    }
    operands.run(stream);
    std::vector<float> result(8);
    aclrtMemcpyAsync(result.data(), 32, operands.memory[2], 32, ACL_MEMCPY_DEVICE_TO_HOST, stream);
    if (result[0] != 2.0f / 6) {
        aclrtFree(nullptr);  // would be a finding
    }
}

static void right_threads_share_the_devices_context(aclrtStream stream)
{
    Operands operands;
    std::vector<std::thread> threads;
    for (int k = 0; k < 4; k++) {
        threads.emplace_back([] {
            aclrtSetDevice(0);
            aclrtStream mine = nullptr;
            aclrtCreateStream(&mine);
            {
                Operands own;
                own.run(mine);
                aclrtSynchronizeStream(mine);
            }
            aclrtDestroyStream(mine);
            aclrtResetDevice(0);
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    operands.run(stream);
    aclrtSynchronizeStream(stream);
}

static void right_gaps_of_a_strided_operand(aclrtStream stream)
{
    Operands operands;
    void *memory = nullptr;
    const float value = 1.0f;
    aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST);
    for (int k = 0; k < 8; k++) {
        aclrtMemcpy(static_cast<float *>(memory) + 2 * k, 4, &value, 4, ACL_MEMCPY_HOST_TO_DEVICE);
    }
    const int64_t dims[] = {8}, strides[] = {2}, storage[] = {16};
    aclTensor *grad = aclCreateTensor(dims, 1, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, storage, 1, memory);
    run(grad, operands.tensors[1], operands.tensors[2], stream);
    aclrtSynchronizeStream(stream);
    aclDestroyTensor(grad);
    aclrtFree(memory);
}

static void right_result_feeds_the_next_operator(aclrtStream stream)
{
    Operands operands;
    void *memory = nullptr, *last = nullptr;
    aclrtMalloc(&memory, 32, ACL_MEM_MALLOC_HUGE_FIRST);
    aclrtMalloc(&last, 32, ACL_MEM_MALLOC_HUGE_FIRST);
    aclTensor *between = floats(memory), *out = floats(last);
    run(operands.tensors[0], operands.tensors[1], between, stream);
    run(between, operands.tensors[1], out, stream);
    aclrtSynchronizeStream(stream);
    aclDestroyTensor(between);
    aclDestroyTensor(out);
    aclrtFree(memory);
    aclrtFree(last);
}

static void right_repeatable_executor_on_other_memory(aclrtStream stream)
{
    Operands operands;
    void *memory = device(32);
    aclOpExecutor *executor = operands.plan();
    aclSetAclOpExecutorRepeatable(executor);
    aclnnHardsigmoidBackward(nullptr, 0, executor, stream);
    aclSetInputTensorAddr(executor, 0, operands.tensors[0], memory);
    aclnnHardsigmoidBackward(nullptr, 0, executor, stream);
    aclrtSynchronizeStream(stream);
    aclDestroyAclOpExecutor(executor);
    aclrtFree(memory);
}

static void right_initialised_by_two_copies(aclrtStream stream)
{
    float host[8] = {};
    void *memory = nullptr;
    aclrtMalloc(&memory, 32, ACL_MEM_MALLOC_HUGE_FIRST);
    aclrtMemcpy(memory, 16, host, 16, ACL_MEMCPY_HOST_TO_DEVICE);
    aclrtMemcpyAsync(static_cast<char *>(memory) + 16, 16, host, 16, ACL_MEMCPY_HOST_TO_DEVICE, stream);
    aclrtMemcpy(host, 32, memory, 32, ACL_MEMCPY_DEVICE_TO_HOST);
    aclrtFree(memory);
}

static void right_initialised_twice_by_reference(aclrtStream)
{
    aclInit(nullptr);  // a library does so as well: its code may be ignored
    aclrtSetDevice(0);
    aclrtResetDevice(0);
    uint64_t left = 0;
    aclFinalizeReference(&left);
}

static void right_timeout_of_a_synchronisation(aclrtStream stream)
{
    aclrtEvent event = nullptr;
    aclrtCreateEvent(&event);
    aclrtRecordEvent(event, stream);
    aclrtSynchronizeStreamWithTimeout(stream, 1000);
    aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
    aclrtQueryEventStatus(event, &status);
    aclrtDestroyEvent(event);
}

// failed-call
static void wrong_tensor_destroyed_twice(aclrtStream)
{
    aclTensor *tensor = floats(nullptr);
    aclDestroyTensor(tensor);
    aclDestroyTensor(tensor);  // here
}

// failed-call
static void wrong_member_destroyed_after_its_list(aclrtStream)
{
    aclTensor *members[] = {floats(nullptr)};
    aclTensorList *list = aclCreateTensorList(members, 1);
    aclDestroyTensorList(list);
    aclDestroyTensor(members[0]);  // here
}

// failed-call
static void wrong_host_memory_freed_as_device_memory(aclrtStream)
{
    void *memory = nullptr;
    aclrtMallocHost(&memory, 32);
    aclrtFree(memory);  // here
    aclrtFreeHost(memory);
}

// stream-race
static void wrong_one_output_of_two_streams(aclrtStream stream)
{
    aclrtStream other = nullptr;
    aclrtCreateStream(&other);
    Operands first, second;
    first.run(stream);
    aclOpExecutor *executor = plan(second.tensors[0], second.tensors[1], first.tensors[2]);
    aclnnHardsigmoidBackward(nullptr, 0, executor, other);  // here
    aclrtSynchronizeDevice();
    aclrtDestroyStream(other);
}

// event-never-recorded
static void wrong_time_between_events_without_a_record(aclrtStream)
{
    aclrtEvent first = nullptr, second = nullptr;
    float milliseconds = 0;
    aclrtCreateEvent(&first);
    aclrtCreateEvent(&second);
    aclrtEventElapsedTime(&milliseconds, first, second);  // here
    aclrtDestroyEvent(first);
    aclrtDestroyEvent(second);
}

static void right_rows_uploaded_with_a_pitch(aclrtStream stream)
{
    Operands operands;
    const float host[8] = {};
    void *memory = nullptr;
    aclrtMalloc(&memory, 32, ACL_MEM_MALLOC_HUGE_FIRST);
    aclrtMemcpy2d(memory, 16, host, 16, 16, 2, ACL_MEMCPY_HOST_TO_DEVICE);
    aclTensor *grad = floats(memory);
    run(grad, operands.tensors[1], operands.tensors[2], stream);
    aclrtSynchronizeStream(stream);
    aclDestroyTensor(grad);
    aclrtFree(memory);
}

static void right_tensors_of_two_streams_in_one_block(aclrtStream stream)
{
    aclrtStream other = nullptr;
    aclrtCreateStream(&other);
    char *memory = static_cast<char *>(device(6 * 512));
    aclTensor *tensors[6];
    for (int k = 0; k < 6; k++) {
        tensors[k] = floats(memory + 512 * k);
    }
    run(tensors[0], tensors[1], tensors[2], stream);
    run(tensors[3], tensors[4], tensors[5], other);
    aclrtSynchronizeStream(stream);
    aclrtSynchronizeStream(other);
    for (aclTensor *tensor : tensors) {
        aclDestroyTensor(tensor);
    }
    aclrtFree(memory);
    aclrtDestroyStream(other);
}

static void right_asked_until_it_is_done(aclrtStream stream)
{
    Operands operands;
    operands.run(stream);
    aclrtStreamStatus status = ACL_STREAM_STATUS_NOT_READY;
    while (status != ACL_STREAM_STATUS_COMPLETE) {
        aclrtStreamQuery(stream, &status);
    }
    float host[8];
    aclrtMemcpy(host, 32, operands.memory[2], 32, ACL_MEMCPY_DEVICE_TO_HOST);
}

static void add_one(void *number)
{
    *static_cast<float *>(number) += 1;
}

static void right_host_function_behind_a_copy(aclrtStream stream)
{
    void *memory = device(32), *host = nullptr;
    aclrtMallocHost(&host, 32);
    aclrtMemcpyAsync(host, 32, memory, 32, ACL_MEMCPY_DEVICE_TO_HOST, stream);
    aclrtLaunchHostFunc(stream, add_one, host);
    aclrtSynchronizeStream(stream);
    aclrtFreeHost(host);
    aclrtFree(memory);
}

static void right_another_thread_waits_for_the_event(aclrtStream stream)
{
    Operands operands;
    operands.run(stream);
    aclrtEvent event = nullptr;
    aclrtContext context = nullptr;
    aclrtCreateEvent(&event);
    aclrtRecordEvent(event, stream);
    aclrtGetCurrentContext(&context);
    std::thread([&] {
        aclrtStream mine = nullptr;
        float host[8];
        aclrtSetCurrentContext(context);
        aclrtCreateStream(&mine);
        aclrtStreamWaitEvent(mine, event);
        aclrtMemcpyAsync(host, 32, operands.memory[2], 32, ACL_MEMCPY_DEVICE_TO_HOST, mine);
        aclrtSynchronizeStream(mine);
        aclrtDestroyStream(mine);
    }).join();
    aclrtSynchronizeStream(stream);
    aclrtDestroyEvent(event);
}
