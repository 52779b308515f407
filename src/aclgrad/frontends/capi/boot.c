/* How Python is started inside a C program, and how a guard calls it.
 *
 * Defined before this text: PROGRAM (the Python executable), ROOT (the folder of the package), MODULE (what answers
 * the calls), FINGERPRINT (of the signatures), PYTHON_SERIES (as "3.11"), PLUGINS (custom operators it was built with,
 * which PLUGINS_NAME of sys is to name), MOST_ARGUMENTS, and the numbers FOREIGN and APP_LOG of the two functions that
 * are no interface's own. The guards follow it. The host program keeps its signal handlers, its locale, its working
 * directory and its exit.
 */
#include <dlfcn.h>
#include <execinfo.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_SIGNALS = 65, EXIT_GRACE_MILLISECONDS = 5000, ANSWER_MILLISECONDS = 10000 };

struct word {
    enum kind { KIND_NUMBER, KIND_COUNT, KIND_REAL, KIND_FLAG, KIND_POINTER, KIND_TEXT, KIND_NOTHING } kind;
    union {
        int64_t number;
        uint64_t count;
        double real;
        void *pointer;
        const char *text;
    } as;
};
#define NUMBER(x) ((struct word){KIND_NUMBER, {.number = (int64_t)(x)}})
#define COUNT(x) ((struct word){KIND_COUNT, {.count = (uint64_t)(x)}})
#define REAL(x) ((struct word){KIND_REAL, {.real = (double)(x)}})
#define FLAG(x) ((struct word){KIND_FLAG, {.count = (x) ? 1 : 0}})
#define POINTER(x) ((struct word){KIND_POINTER, {.pointer = (void *)(uintptr_t)(x)}})
#define TEXT(x) ((struct word){KIND_TEXT, {.text = (x)}})
#define NOTHING(x) ((struct word){KIND_NOTHING, {.number = (x)}})

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_bool usable; /* set when everything below is */
static atomic_bool leaving; /* the process is ending: only the thread that ends it is still served */
static pthread_t leaver;
static atomic_int inside; /* calls being served */
static bool embedded; /* Python was started here, not by the host program */
static char explanation[2048] = "aclgrad is not started";
static PyObject *functions; /* the Python functions by number, then the one that takes note of an exception */
static Py_ssize_t function_count;

static __thread bool booting;
static __thread bool met; /* this thread has called before */

/* Where the call that this thread is in came from: return addresses, the innermost first. */
enum { DEEPEST = 12, LIBRARY_FRAMES = 8 };
static __thread struct {
    size_t count;
    void *addresses[DEEPEST];
} calls;
static int tracing; /* whether more than the innermost is wanted */

static void *present_calls(void)
{
    return &calls;
}

static void enter_call(void *from)
{
    calls.count = 1;
    calls.addresses[0] = from;
    if (tracing) {
        void *found[DEEPEST + LIBRARY_FRAMES];
        int depth = backtrace(found, DEEPEST + LIBRARY_FRAMES), first = 0;
        while (first < depth && found[first] != from) {
            first++;
        }
        for (int k = first + 1; k < depth && calls.count < DEEPEST; k++) {
            calls.addresses[calls.count++] = found[k];
        }
    }
}

__attribute__((format(printf, 1, 2))) static void explain(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(explanation, sizeof explanation, format, arguments);
    va_end(arguments);
}

/* The exception of this thread as an object, no longer raised. */
static PyObject *taken_exception(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return value;
#endif
}

static void explain_exception(const char *what)
{
    PyObject *error = taken_exception();
    PyObject *text = error ? PyObject_Str(error) : NULL;
    const char *utf8 = text ? PyUnicode_AsUTF8(text) : NULL;
    explain("%s (%s: %s)", what, error ? Py_TYPE(error)->tp_name : "no exception", utf8 ? utf8 : "");
    PyErr_Clear();
    Py_XDECREF(text);
    Py_XDECREF(error);
}

/* The program that is to be Python: the user's choice, or the one that built the library. */
static const char *chosen_python(void)
{
    const char *chosen = getenv("ACLGRAD_PYTHON");
    return chosen && *chosen ? chosen : PROGRAM;
}

/* What a program answers when it is asked, as Python, for its version and its torch; false if it answers nothing. */
static bool asked(const char *program, char *answer, size_t room)
{
    static char question[] = "import sys, importlib.util as u; "
                             "sys.stdout.write('%d.%d %d' % (*sys.version_info[:2], u.find_spec('torch') is not None))";
    char *arguments[] = {(char *)(uintptr_t)program, "-I", "-c", question, NULL};
    extern char **environ;
    posix_spawn_file_actions_t actions;
    int ends[2], status = -1;
    pid_t child;
    if (pipe(ends) != 0) {
        return false;
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    bool started = posix_spawn(&child, program, &actions, NULL, arguments, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    pid_t ended = 0;
    for (int waited = 0; started && ended == 0 && waited < ANSWER_MILLISECONDS; waited++) {
        ended = waitpid(child, &status, WNOHANG);
        if (ended == 0) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
    }
    if (started && ended == 0) {
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
    }
    ssize_t length = started && ended > 0 ? read(ends[0], answer, room - 1) : 0;
    close(ends[0]);
    answer[length > 0 ? length : 0] = 0;
    return length > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* What keeps a program from being the Python of this library, added to what was explained; nothing if nothing is found. */
static void explain_python(const char *program)
{
    char answer[64], version[16];
    int has_torch = 0;
    if (!asked(program, answer, sizeof answer) || sscanf(answer, "%15s %d", version, &has_torch) != 2) {
        explain("%s is not a Python; set ACLGRAD_PYTHON to one of version " PYTHON_SERIES, program);
    } else if (strcmp(version, PYTHON_SERIES) != 0) {
        explain("%s is Python %s, and the library was built for " PYTHON_SERIES
                "; set ACLGRAD_PYTHON to one of that version, or build the library anew with this one", program, version);
    } else if (!has_torch) {
        explain("%s is a Python without torch; set ACLGRAD_PYTHON to one that has it", program);
    }
}

/* False, with an explanation, for what cannot be run at all. */
static bool is_runnable(const char *program)
{
    struct stat found;
    if (stat(program, &found) != 0 && errno == EACCES) {
        explain("%s is in a folder that cannot be entered; set ACLGRAD_PYTHON, or build the library anew", program);
    } else if (stat(program, &found) != 0) {
        explain("there is no Python at %s (%s); set ACLGRAD_PYTHON, or build the library anew", program, strerror(errno));
    } else if (!S_ISREG(found.st_mode)) {
        explain("%s is no file, so no Python; set ACLGRAD_PYTHON, or build the library anew", program);
    } else if (access(program, X_OK) != 0) {
        explain("%s cannot be run (%s); set ACLGRAD_PYTHON, or build the library anew", program, strerror(errno));
    } else {
        return true;
    }
    return false;
}

/* The custom operators are those that the library was built with, whatever the environment says of them. */
static bool choose_plugins(void)
{
    PyObject *named = PyUnicode_DecodeFSDefault(PLUGINS);
    bool done = named && PySys_SetObject(PLUGINS_NAME, named) == 0;
    Py_XDECREF(named);
    return done;
}

/* Python of our own: inside the environment PROGRAM belongs to, deaf to PYTHON* variables, PATH and working directory. */
static bool start_python(void)
{
    const char *program = chosen_python();
    if (!is_runnable(program)) {
        return false;
    }
    if (strncmp(Py_GetVersion(), PY_VERSION " ", sizeof PY_VERSION) != 0) {
        explain("the library was built for Python " PY_VERSION " and found the runtime of %s; build it anew",
                Py_GetVersion());
        return false;
    }
    PyPreConfig before;
    PyPreConfig_InitIsolatedConfig(&before);
    before.utf8_mode = 1;
    PyStatus status = Py_PreInitialize(&before);
    if (!PyStatus_Exception(status)) {
        PyConfig config;
        PyConfig_InitIsolatedConfig(&config);
        status = PyConfig_SetBytesString(&config, &config.program_name, program);
        if (!PyStatus_Exception(status)) {
            status = Py_InitializeFromConfig(&config);
        }
        PyConfig_Clear(&config);
    }
    if (PyStatus_Exception(status)) {
        explain("Python cannot start with %s: %s", program, status.err_msg ? status.err_msg : "no reason given");
        explain_python(program);
        return false;
    }
    embedded = true;
    PyObject *path = PySys_GetObject("path");
    PyObject *root = PyUnicode_DecodeFSDefault(ROOT);
    bool found = choose_plugins() && path && root && (PySequence_Contains(path, root) == 1 || PyList_Insert(path, 0, root) == 0);
    if (!found) {
        explain_exception("the module search path cannot be set");
    }
    Py_XDECREF(root);
    PyEval_SaveThread();
    return found;
}

static bool load_functions(void)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *module = PyImport_ImportModule(MODULE);
    PyObject *found = NULL;
    if (module) {
        found = PyObject_CallMethod(module, "start", "sKKi", FINGERPRINT,
                                    (unsigned long long)(uintptr_t)&present_calls,
                                    (unsigned long long)(uintptr_t)&tracing, (int)embedded);
    }
    if (found && PyTuple_Check(found)) {
        functions = found;
        function_count = PyTuple_GET_SIZE(found) - 1;
    } else {
        explain_exception("the Python side of aclgrad cannot be loaded");
        Py_XDECREF(found);
    }
    Py_XDECREF(module);
    PyGILState_Release(gil);
    return functions != NULL;
}

static bool is_refused(void)
{
    return leaving && !pthread_equal(pthread_self(), leaver);
}

/* The process is ending while other threads may still run, and the libraries under Python are about to fall apart:
 * calls of other threads are seen out, and no more are let in. */
static void see_others_out(void *unused)
{
    (void)unused;
    if (!usable || leaving) {
        return;
    }
    explain("the process is ending");
    leaver = pthread_self();
    leaving = true;
    for (int waited = 0; inside > 0 && waited < EXIT_GRACE_MILLISECONDS; waited++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* The interpreter is never ended, so what Python does at exit is done here. */
static void finish(void)
{
    if (!usable) {
        return;
    }
    see_others_out(NULL);
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *module = PyImport_ImportModule("atexit");
    PyObject *done = module ? PyObject_CallMethod(module, "_run_exitfuncs", NULL) : NULL;
    PyErr_Clear();
    Py_XDECREF(done);
    Py_XDECREF(module);
    PyGILState_Release(gil);
}

static void forbid_in_child(void)
{
    usable = false;
    explain("this process was forked from one that had called acl functions already; fork before the first call");
}

/* What is left to a thread's own end comes before its keys are cleared, by which Python finds its state; in the main
 * thread that end is exit(), and comes before all exit handlers and destructors. */
extern int __cxa_thread_atexit_impl(void (*)(void *), void *, void *) __attribute__((weak));
extern void *__dso_handle __attribute__((visibility("hidden")));

static void at_end_of_thread(void (*function)(void *))
{
    if (__cxa_thread_atexit_impl) {
        __cxa_thread_atexit_impl(function, NULL, &__dso_handle);
    }
}

static void forget_visitor(void *unused)
{
    (void)unused;
    if (usable && !leaving && Py_IsInitialized()) {
        PyGILState_STATE gil = PyGILState_Ensure();
        PyGILState_Release(PyGILState_LOCKED);
        PyGILState_Release(gil);
    }
}

/* A thread that Python did not know keeps its state between calls: messages and current devices are matters of threads. */
static PyGILState_STATE enter_python(void)
{
    bool unknown = PyGILState_GetThisThreadState() == NULL;
    PyGILState_STATE gil = PyGILState_Ensure();
    if (unknown) {
        PyGILState_Ensure();
        at_end_of_thread(forget_visitor);
    }
    if (!met) {
        met = true;
        if (embedded && syscall(SYS_gettid) == getpid()) {
            at_end_of_thread(see_others_out);
        }
    }
    return gil;
}

static bool boot_python(void)
{
    Dl_info found;
    if (strncmp(Py_GetVersion(), PY_VERSION, strlen(PY_VERSION) - strlen(strrchr(PY_VERSION, '.')) + 1) != 0) {
        explain("the library was built for Python " PY_VERSION " and is loaded into %s; build it anew", Py_GetVersion());
        return false;
    }
    /* Extension modules expect Python's symbols in the global scope, wherever the host program has put this library. */
    if (dladdr((void *)(uintptr_t)&Py_IsInitialized, &found)) {
        dlopen(found.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    }
    if (!Py_IsInitialized() && !start_python()) {
        return false;
    }
    if (!load_functions()) {
        if (embedded) {
            explain_python(chosen_python());
        }
        return false;
    }
    if (embedded && (atexit(finish) != 0 || pthread_atfork(NULL, NULL, forbid_in_child) != 0)) {
        explain("no room for another exit or fork handler");
        return false;
    }
    return true;
}

static void boot(void)
{
    struct sigaction kept[MOST_SIGNALS], now;
    bool known[MOST_SIGNALS];
    for (int number = 1; number < MOST_SIGNALS; number++) {
        known[number] = sigaction(number, NULL, &kept[number]) == 0;
    }
    booting = true;
    usable = boot_python();
    booting = false;
    for (int number = 1; number < MOST_SIGNALS; number++) {
        if (known[number] && sigaction(number, NULL, &now) == 0 && now.sa_handler != kept[number].sa_handler) {
            sigaction(number, &kept[number], NULL);
        }
    }
    if (!usable) {
        fprintf(stderr, "aclgrad: %s\n", explanation);
    }
}

static bool ready(void)
{
    if (usable) {
        return Py_IsInitialized();
    }
    if (booting) {
        return false;
    }
    /* Whoever boots needs the interpreter lock, so nobody may hold it while waiting for that. */
    PyThreadState *held = Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : NULL;
    pthread_once(&once, boot);
    if (held) {
        PyEval_RestoreThread(held);
    }
    return usable;
}

static PyObject *packed(const struct word *word)
{
    switch (word->kind) {
    case KIND_NUMBER: return PyLong_FromLongLong(word->as.number);
    case KIND_COUNT: return PyLong_FromUnsignedLongLong(word->as.count);
    case KIND_REAL: return PyFloat_FromDouble(word->as.real);
    case KIND_FLAG: return PyBool_FromLong((long)word->as.count);
    default: return PyLong_FromVoidPtr(word->as.pointer);
    }
}

/* False, with an exception, if the answer is not of the word's kind. */
static bool unpacked(PyObject *answer, struct word *word)
{
    switch (word->kind) {
    case KIND_NUMBER: word->as.number = PyLong_AsLongLong(answer); break;
    case KIND_COUNT: word->as.count = PyLong_AsUnsignedLongLong(answer); break;
    case KIND_REAL: word->as.real = PyFloat_AsDouble(answer); break;
    case KIND_TEXT: word->as.text = answer == Py_None ? NULL : PyBytes_AsString(answer); break;
    case KIND_NOTHING: break;
    default: word->as.pointer = PyLong_AsVoidPtr(answer); break;
    }
    return !PyErr_Occurred();
}

static void note_exception(int function)
{
    PyObject *error = taken_exception();
    if (error) {
        PyObject *noted = PyObject_CallFunction(PyTuple_GET_ITEM(functions, function_count), "iO", function, error);
        Py_XDECREF(noted);
        Py_DECREF(error);
    }
    PyErr_Clear();
}

static struct word answered(int function, const struct word *arguments, int count, struct word failed)
{
    PyObject *values[MOST_ARGUMENTS], *answer = NULL;
    int made = 0;
    while (made < count && (values[made] = packed(&arguments[made])) != NULL) {
        made++;
    }
    if (made == count) {
        answer = PyObject_Vectorcall(PyTuple_GET_ITEM(functions, function), values, (size_t)count, NULL);
    }
    struct word result = failed;
    if (answer == NULL || !unpacked(answer, &result)) {
        note_exception(function);
        result = failed;
    }
    Py_XDECREF(answer);
    while (made > 0) {
        Py_DECREF(values[--made]);
    }
    return result;
}

static struct word call(int function, const struct word *arguments, int count, void *from, struct word failed)
{
    if (!ready()) {
        return failed;
    }
    struct word result = failed;
    inside++;
    if (!is_refused()) {
        PyGILState_STATE gil = enter_python();
        enter_call(from);
        result = answered(function, arguments, count, failed);
        calls.count = 0;
        PyGILState_Release(gil);
    }
    inside--;
    return result;
}

/* A function that is only declared: Python leaves a message that names it, and answers with the code. */
__attribute__((visibility("hidden"))) long aclgrad_foreign(const char *name, void *from, long failed)
{
    return (long)call(FOREIGN, (const struct word[]){POINTER(name)}, 1, from, NUMBER(failed)).as.number;
}

void aclAppLog(aclLogLevel logLevel, const char *func, const char *file, uint32_t line, const char *fmt, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, fmt);
    vsnprintf(text, sizeof text, fmt ? fmt : "", arguments);
    va_end(arguments);
    call(APP_LOG, (const struct word[]){NUMBER(logLevel), POINTER(func), POINTER(file), COUNT(line), POINTER(text)}, 5,
         __builtin_return_address(0), NOTHING(0));
}
