/* The driver API (libcuda.so.1) over machine.c: contexts, streams, events, memory, launches.
 *
 * Work is lazy by default: it waits in its stream until something waits for it that is allowed to
 * expect it. So code that reads too early reads garbage every time. Semantics are those of
 * NVIDIA's documentation of the driver API; what is not here is not found by cuGetProcAddress.
 */
#define _GNU_SOURCE
#include "emulator.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uint64_t Address;
typedef struct Stream Stream;

typedef struct {
    int device, arch, error, is_retained;
    Stream *legacy, *per_thread;
    void *pool; /* the default pool: its address is its handle */
} Context;

typedef struct Op {
    enum { COPY, FILL, KERNEL, ALLOW, RELEASE, AWAIT, CALL } kind;
    struct Op *next;
    Address to, from;
    uint64_t nbytes;
    void *staged; /* bytes of pageable memory, copied when the call was made */
    unsigned value, width;
    Allocation *allocation;
    const Program *program;
    uint32_t grid[3], block[3], shared;
    uint8_t *params;
    Stream *other;
    uint64_t point;
    void (*call)(void *);
    void *argument;
} Op;

struct Stream {
    Context *context;
    int is_blocking, is_destroyed, priority, queries;
    uint64_t submitted, done;
    Op *first, *last;
    Stream *next;
};

typedef struct {
    Context *context;
    Stream *stream;
    uint64_t point;
    int queries, is_destroyed;
} Event;

typedef struct { uint8_t *image; size_t nbytes; int arch; } Library;
typedef struct { Library *library; Program *program; int dynamic_shared; } Kernel;
typedef struct { Kernel *kernel; Context *context; } Function;

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static Context contexts[MAX_DEVICES];
static int n_devices, started_by, is_eager;
static Stream *streams;
static __thread Context *current;
static int compute_capability[MAX_DEVICES];
static uint64_t n_calls[3]; /* launches, copies, waits of the host */
/* Compiles a kernel of a cubin. Its caller must not hold the lock: it takes Python's. */
static Program *(*compile)(const uint8_t *image, size_t nbytes, const char *name);

/* -- for the tests ------------------------------------------------------------------------------ */

PUBLIC void emu_setup(int count, const int *capabilities, Program *(*compiler)(const uint8_t *, size_t, const char *)) {
    n_devices = count;
    memcpy(compute_capability, capabilities, count * sizeof(int));
    compile = compiler;
    machine_start(count);
    for (int k = 0; k < count; k++) contexts[k] = (Context){.device = k, .arch = capabilities[k], .pool = &contexts[k].pool};
}
PUBLIC void emu_set_capability(int device, int capability) { contexts[device].arch = compute_capability[device] = capability; }
PUBLIC void emu_set_eager(int value) { is_eager = value; }
PUBLIC uint64_t emu_calls(int which) { return n_calls[which]; }
void emu_clear_fault(void);
PUBLIC void emu_clear_errors(void) {
    for (int k = 0; k < n_devices; k++) contexts[k].error = OK;
    emu_clear_fault();
}
/* Work that was submitted and has not run. */
PUBLIC uint64_t emu_pending(void) {
    uint64_t count = 0;
    for (Stream *s = streams; s; s = s->next) count += s->submitted - s->done;
    return count;
}

/* -- the queues --------------------------------------------------------------------------------- */

static int run_until(Stream *, uint64_t);

static int run_op(Op *op, Context *context) {
    int status = OK;
    switch (op->kind) {
    case COPY: {
        uint8_t *to = memory_range(op->to, op->nbytes, "copy to memory", &status);
        uint8_t *from = op->staged ? op->staged : memory_range(op->from, op->nbytes, "copy from memory", &status);
        if (!status) memmove(to, from, op->nbytes);
        break;
    }
    case FILL: {
        uint8_t *to = memory_range(op->to, op->nbytes, "fill", &status);
        for (uint64_t k = 0; !status && k < op->nbytes; k += op->width) memcpy(to + k, &op->value, op->width);
        break;
    }
    case KERNEL: status = machine_run(op->program, context->device, op->grid, op->block, op->shared, op->params); break;
    case ALLOW: memory_allow(op->allocation); break;
    case RELEASE: memory_release(op->allocation); break;
    case AWAIT: status = run_until(op->other, op->point); break;
    case CALL: op->call(op->argument); break;
    }
    return status;
}

static int run_until(Stream *stream, uint64_t point) {
    while (stream->done < point && stream->first) {
        Op *op = stream->first;
        int status = stream->context->error ? OK : run_op(op, stream->context);
        if (status && !stream->context->error) stream->context->error = status;
        stream->first = op->next;
        if (!stream->first) stream->last = NULL;
        stream->done++;
        free(op->staged);
        free(op->params);
        free(op);
    }
    return stream->context->error;
}

static void append(Stream *stream, Op *op) {
    if (stream->last) stream->last->next = op; else stream->first = op;
    stream->last = op;
    stream->submitted++;
}

static Op *new_op(int kind) {
    Op *op = calloc(1, sizeof *op);
    op->kind = kind;
    return op;
}

static void await(Stream *stream, Stream *other, uint64_t point) {
    if (other == stream || other->done >= point) return;
    Op *op = new_op(AWAIT);
    op->other = other;
    op->point = point;
    append(stream, op);
}

static int submit(Stream *stream, Op *op) {
    Context *context = stream->context;
    /* The legacy stream and all blocking streams of its context wait for each other. */
    if (stream == context->legacy) {
        for (Stream *s = streams; s; s = s->next)
            if (s->context == context && s->is_blocking) await(stream, s, s->submitted);
    } else if (stream->is_blocking)
        await(stream, context->legacy, context->legacy->submitted);
    append(stream, op);
    return is_eager ? run_until(stream, stream->submitted) : OK;
}

static int run_all(Context *context) {
    n_calls[2]++;
    for (Stream *s = streams; s; s = s->next)
        if (s->context == context) run_until(s, s->submitted);
    return context->error;
}

static Stream *new_stream(Context *context, int is_blocking, int priority) {
    Stream *stream = calloc(1, sizeof *stream);
    *stream = (Stream){.context = context, .is_blocking = is_blocking, .priority = priority, .next = streams};
    return streams = stream;
}

/* A handle of the user → its stream; NULL, 1 and 2 are the default streams of the current context. */
static int stream_of(void *handle, Stream **found) {
    if ((uintptr_t)handle <= 2) {
        if (!current) return INVALID_CONTEXT;
        *found = (uintptr_t)handle == 2 ? current->per_thread : current->legacy;
        return OK;
    }
    for (Stream *s = streams; s; s = s->next)
        if (s == handle && !s->is_destroyed) { *found = s; return OK; }
    return raise_fault(INVALID_HANDLE, "%p is not a stream", handle);
}

/* -- the shape of an entry point ------------------------------------------------------------------ */

#define API PUBLIC int
/* CUDA does not work in the child of a fork. */
#define STARTED if (!started_by || started_by != getpid()) return NOT_INITIALIZED
#define LOCKED __attribute__((cleanup(unlock))) int held = pthread_mutex_lock(&lock); (void)held
#define CONTEXT STARTED; LOCKED; if (!current) return INVALID_CONTEXT; if (current->error) return current->error
#define STREAM(handle) STARTED; LOCKED; Stream *stream; { int s = stream_of(handle, &stream); if (s) return s; } \
    if (stream->context->error) return stream->context->error
#define DEVICE(d) STARTED; if ((d) < 0 || (d) >= n_devices) return INVALID_DEVICE
static void unlock(int *held) { (void)held; pthread_mutex_unlock(&lock); }

/* -- start, devices, contexts ---------------------------------------------------------------------- */

API cuInit(unsigned flags) {
    if (flags) return INVALID_VALUE;
    if (!n_devices) return 100; /* no device */
    if (started_by) return started_by == getpid() ? OK : NOT_INITIALIZED;
    started_by = getpid();
    for (int k = 0; k < n_devices; k++) {
        contexts[k].legacy = new_stream(&contexts[k], 0, 0);
        contexts[k].per_thread = new_stream(&contexts[k], 1, 0);
    }
    return OK;
}
API cuDriverGetVersion(int *version) { *version = 13020; return OK; }
API cuDeviceGet(int *device, int ordinal) { DEVICE(ordinal); *device = ordinal; return OK; }
API cuDeviceGetCount(int *count) { STARTED; *count = n_devices; return OK; }
API cuDeviceGetName(char *name, int size, int d) { DEVICE(d); snprintf(name, size, "Emulated GPU (sm_%d)", compute_capability[d]); return OK; }
API cuDeviceTotalMem_v2(size_t *nbytes, int d) { DEVICE(d); *nbytes = 8ull << 30; return OK; }
API cuDeviceGetUuid_v2(char *uuid, int d) { DEVICE(d); memset(uuid, 0, 16); uuid[0] = 'E'; uuid[15] = d; return OK; }
API cuDeviceGetPCIBusId(char *text, int size, int d) { DEVICE(d); snprintf(text, size, "0000:%02x:00.0", d + 1); return OK; }
API cuDeviceGetAttribute(int *value, int which, int d) {
    DEVICE(d);
    switch (which) {
    case 1: case 2: case 3: *value = which == 3 ? 64 : 1024; break;  /* threads per block, block x, y, z */
    case 4: *value = 64; break;
    case 5: *value = 0x7fffffff; break; /* grid x, y, z */
    case 6: case 7: *value = 65535; break;
    case 8: *value = 48 << 10; break;   /* shared memory per block */
    case 10: *value = WARP; break;
    case 12: *value = 65536; break;     /* registers per block */
    case 16: *value = compute_capability[d] == 120 ? 170 : 108; break; /* multiprocessors */
    case 19: case 41: *value = 1; break; /* maps host memory, unified addressing */
    case 31: case 47: *value = 1; break; /* concurrent kernels, managed memory is not here */
    case 39: *value = 2048; break;
    case 75: *value = compute_capability[d] / 10; break;
    case 76: *value = compute_capability[d] % 10; break;
    case 78: *value = 1; break;          /* stream priorities */
    case 97: *value = 99 << 10; break;   /* shared memory per block, if asked for */
    case 115: *value = 1; break;         /* memory pools */
    default: *value = 0;
    }
    return OK;
}
API cuDevicePrimaryCtxRetain(Context **made, int d) { DEVICE(d); contexts[d].is_retained++; *made = &contexts[d]; return OK; }
API cuDevicePrimaryCtxRelease_v2(int d) { DEVICE(d); contexts[d].is_retained--; return OK; }
API cuDevicePrimaryCtxGetState(int d, unsigned *flags, int *active) { DEVICE(d); *flags = 0; *active = contexts[d].is_retained > 0; return OK; }
API cuDeviceCanAccessPeer(int *can, int a, int b) { DEVICE(a); DEVICE(b); *can = a != b; return OK; }
API cuDeviceGetDefaultMemPool(void **pool, int d) { DEVICE(d); *pool = contexts[d].pool; return OK; }
API cuDeviceGetMemPool(void **pool, int d) { DEVICE(d); *pool = contexts[d].pool; return OK; }
API cuDeviceSetMemPool(int d, void *pool) { DEVICE(d); contexts[d].pool = pool; return OK; }
API cuCtxGetCurrent(Context **found) { STARTED; *found = current; return OK; }
API cuCtxSetCurrent(Context *wanted) { STARTED; current = wanted; return OK; }
static __thread Context *stack[64];
static __thread int depth;
API cuCtxPushCurrent_v2(Context *wanted) { STARTED; stack[depth++] = current; current = wanted; return OK; }
API cuCtxPopCurrent_v2(Context **popped) { STARTED; if (!depth) return INVALID_CONTEXT; if (popped) *popped = current; current = stack[--depth]; return OK; }
API cuCtxGetDevice(int *d) { STARTED; if (!current) return INVALID_CONTEXT; *d = current->device; return OK; }
API cuCtxGetDevice_v2(int *d, Context *c) { STARTED; if (!c) c = current; if (!c) return INVALID_CONTEXT; *d = c->device; return OK; }
API cuCtxGetId(Context *c, uint64_t *id) { STARTED; if (!c) c = current; *id = c - contexts + 1; return OK; }
API cuCtxGetApiVersion(Context *c, unsigned *v) { (void)c; *v = 13000; return OK; }
API cuCtxGetFlags(unsigned *flags) { *flags = 0; return OK; }
API cuCtxGetStreamPriorityRange(int *least, int *most) { *least = 0; *most = -5; return OK; }
API cuCtxSynchronize(void) { CONTEXT; return run_all(current); }
API cuCtxSynchronize_v2(Context *c) { STARTED; LOCKED; return run_all(c ? c : current); }
API cuCtxEnablePeerAccess(Context *other, unsigned flags) { (void)flags; CONTEXT; peers[current->device] |= 1u << other->device; return OK; }
API cuCtxDisablePeerAccess(Context *other) { CONTEXT; peers[current->device] &= ~(1u << other->device); return OK; }

/* -- streams and events -------------------------------------------------------------------------- */

API cuStreamCreateWithPriority(Stream **made, unsigned flags, int priority) { CONTEXT; *made = new_stream(current, !(flags & 1), priority); return OK; }
API cuStreamCreate(Stream **made, unsigned flags) { return cuStreamCreateWithPriority(made, flags, 0); }
/* As documented, this returns at once; the work of the stream still runs. */
API cuStreamDestroy_v2(void *handle) { STREAM(handle); stream->is_destroyed = 1; return OK; }
API cuStreamSynchronize(void *handle) {
    STREAM(handle);
    n_calls[2]++;
    if (stream == stream->context->legacy) /* it waits for blocking streams, too */
        for (Stream *s = streams; s; s = s->next)
            if (s->context == stream->context && s->is_blocking) run_until(s, s->submitted);
    return run_until(stream, stream->submitted);
}
/* A program may poll, so after many questions the answer is yes. */
static int is_ready(Stream *stream, uint64_t point, int *queries) {
    if (stream->done < point && ++*queries > 1000) run_until(stream, point);
    if (stream->context->error) return stream->context->error;
    return stream->done >= point ? OK : NOT_READY;
}
API cuStreamQuery(void *handle) { STREAM(handle); return is_ready(stream, stream->submitted, &stream->queries); }
API cuStreamGetCtx(void *handle, Context **found) { STREAM(handle); *found = stream->context; return OK; }
API cuStreamGetCtx_v2(void *handle, Context **found, void **green) { STREAM(handle); *found = stream->context; if (green) *green = NULL; return OK; }
API cuStreamGetDevice(void *handle, int *d) { STREAM(handle); *d = stream->context->device; return OK; }
API cuStreamGetFlags(void *handle, unsigned *flags) { STREAM(handle); *flags = !stream->is_blocking; return OK; }
API cuStreamGetPriority(void *handle, int *priority) { STREAM(handle); *priority = stream->priority; return OK; }
API cuStreamGetId(void *handle, uint64_t *id) { STREAM(handle); *id = (uint64_t)stream; return OK; }
API cuStreamIsCapturing(void *handle, int *status) { STREAM(handle); *status = 0; return OK; }
API cuStreamWaitEvent(void *handle, Event *event, unsigned flags) {
    (void)flags;
    STREAM(handle);
    if (!event || event->is_destroyed) return INVALID_HANDLE;
    if (event->stream) await(stream, event->stream, event->point);
    return is_eager ? run_until(stream, stream->submitted) : OK;
}
API cuLaunchHostFunc(void *handle, void (*call)(void *), void *argument) {
    STREAM(handle);
    Op *op = new_op(CALL);
    op->call = call;
    op->argument = argument;
    return submit(stream, op);
}
API cuEventCreate(Event **made, unsigned flags) {
    (void)flags;
    CONTEXT;
    *made = calloc(1, sizeof **made);
    (*made)->context = current;
    return OK;
}
API cuEventDestroy_v2(Event *event) { STARTED; LOCKED; event->is_destroyed = 1; return OK; }
API cuEventRecord(Event *event, void *handle) {
    STREAM(handle);
    if (!event || event->is_destroyed) return INVALID_HANDLE;
    if (event->context != stream->context)
        return raise_fault(INVALID_HANDLE, "an event of GPU %d is recorded on a stream of GPU %d", event->context->device, stream->context->device);
    event->stream = stream;
    event->point = stream->submitted;
    event->queries = 0;
    return OK;
}
API cuEventRecordWithFlags(Event *event, void *handle, unsigned flags) { (void)flags; return cuEventRecord(event, handle); }
API cuEventQuery(Event *event) { STARTED; LOCKED; return event->stream ? is_ready(event->stream, event->point, &event->queries) : OK; }
API cuEventSynchronize(Event *event) { STARTED; LOCKED; n_calls[2]++; return event->stream ? run_until(event->stream, event->point) : OK; }
API cuEventElapsedTime_v2(float *ms, Event *a, Event *b) { STARTED; (void)a; (void)b; *ms = 1; return OK; }

/* -- memory ----------------------------------------------------------------------------------------- */

API cuMemAlloc_v2(Address *address, size_t nbytes) { CONTEXT; return nbytes ? memory_take(current->device, nbytes, 1, NULL, address) : INVALID_VALUE; }
static int allocation_of(Address address, int is_host, Allocation **found) {
    *found = memory_find(address);
    if (!*found || (*found)->address != address || ((*found)->device < 0) != is_host)
        return raise_fault(INVALID_VALUE, "%#llx is freed, which was not allocated", (unsigned long long)address);
    if ((*found)->is_freed || (*found)->is_free_queued)
        return raise_fault(INVALID_VALUE, "%#llx is freed a second time", (unsigned long long)address);
    (*found)->is_free_queued = 1;
    return OK;
}
API cuMemFree_v2(Address address) {
    CONTEXT;
    Allocation *found;
    if (!address) return OK;
    run_all(current); /* documented: it waits for the device */
    int status = allocation_of(address, 0, &found);
    if (!status) memory_release(found);
    return status;
}
API cuMemAllocHost_v2(void **pointer, size_t nbytes) { CONTEXT; return memory_take(-1, nbytes, 1, NULL, (Address *)pointer); }
API cuMemHostAlloc(void **pointer, size_t nbytes, unsigned flags) { (void)flags; return cuMemAllocHost_v2(pointer, nbytes); }
API cuMemFreeHost(void *pointer) {
    CONTEXT;
    Allocation *found;
    int status = allocation_of((Address)pointer, 1, &found);
    if (!status) memory_release(found);
    return status;
}
API cuMemHostGetDevicePointer_v2(Address *address, void *pointer, unsigned flags) { (void)flags; *address = (Address)pointer; return OK; }
/* Numba looks this one up when it starts. */
API cuIpcOpenMemHandle_v2(Address *to, void *handle, unsigned flags) { (void)to; (void)handle; (void)flags; return NOT_SUPPORTED; }
API cuIpcOpenMemHandle(Address *to, void *handle, unsigned flags) { return cuIpcOpenMemHandle_v2(to, handle, flags); }
API cuMemGetInfo_v2(size_t *left, size_t *total) { CONTEXT; *left = 7ull << 30; *total = 8ull << 30; return OK; }

typedef struct { int type, handle_types; struct { int type, id; } location; void *security; size_t max_size; unsigned short usage; char reserved[54]; } PoolProps;
typedef struct { int device; } Pool;
API cuMemPoolCreate(Pool **made, const PoolProps *props) { STARTED; *made = calloc(1, sizeof(Pool)); (*made)->device = props->location.type == 1 ? props->location.id : -1; return OK; }
API cuMemPoolDestroy(void *pool) { (void)pool; return OK; }
API cuMemPoolSetAttribute(void *pool, int which, void *value) { (void)pool; (void)which; (void)value; return OK; }
API cuMemPoolGetAttribute(void *pool, int which, void *value) { (void)pool; if (which <= 3) *(int *)value = 1; else *(uint64_t *)value = 0; return OK; }
API cuMemPoolSetAccess(void *pool, const void *map, size_t count) { (void)pool; (void)map; (void)count; return OK; }
API cuMemPoolGetAccess(int *flags, void *pool, void *location) { (void)pool; (void)location; *flags = 3; return OK; }
API cuMemPoolTrimTo(void *pool, size_t keep) { (void)pool; (void)keep; return OK; }

static int take_async(Address *address, size_t nbytes, int device, void *pool, Stream *stream) {
    int status = nbytes ? memory_take(device, nbytes, 0, pool, address) : INVALID_VALUE;
    if (status) return status;
    Op *op = new_op(ALLOW);
    op->allocation = memory_find(*address);
    return submit(stream, op);
}
API cuMemAllocFromPoolAsync(Address *address, size_t nbytes, void *pool, void *handle) {
    STREAM(handle);
    for (int k = 0; k < n_devices; k++)
        if (pool == &contexts[k].pool) return take_async(address, nbytes, k, pool, stream);
    return take_async(address, nbytes, ((Pool *)pool)->device, pool, stream);
}
API cuMemAllocAsync(Address *address, size_t nbytes, void *handle) { STREAM(handle); return take_async(address, nbytes, stream->context->device, stream->context->pool, stream); }
API cuMemFreeAsync(Address address, void *handle) {
    STREAM(handle);
    Allocation *found;
    int status = allocation_of(address, 0, &found);
    if (status) return status;
    Op *op = new_op(RELEASE);
    op->allocation = found;
    return submit(stream, op);
}

API cuMemcpyAsync(Address to, Address from, size_t nbytes, void *handle) {
    STREAM(handle);
    n_calls[1]++;
    if (!nbytes) return OK;
    Op *op = new_op(COPY);
    op->to = to;
    op->from = from;
    op->nbytes = nbytes;
    if (!is_emulated(from)) { /* pageable memory is staged at once */
        op->staged = malloc(nbytes);
        memcpy(op->staged, (void *)from, nbytes);
    }
    int status = submit(stream, op);
    if (is_emulated(to)) return status;
    return run_until(stream, stream->submitted); /* a copy to pageable memory waits */
}
API cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t nbytes, void *handle) { return cuMemcpyAsync(to, (Address)from, nbytes, handle); }
API cuMemcpyDtoHAsync_v2(void *to, Address from, size_t nbytes, void *handle) { return cuMemcpyAsync((Address)to, from, nbytes, handle); }
API cuMemcpyDtoDAsync_v2(Address to, Address from, size_t nbytes, void *handle) { return cuMemcpyAsync(to, from, nbytes, handle); }
API cuMemcpyPeerAsync(Address to, Context *a, Address from, Context *b, size_t nbytes, void *handle) { (void)a; (void)b; return cuMemcpyAsync(to, from, nbytes, handle); }
API cuMemcpy(Address to, Address from, size_t nbytes) {
    CONTEXT;
    int status = cuMemcpyAsync(to, from, nbytes, NULL);
    return status ? status : run_until(current->legacy, current->legacy->submitted);
}
API cuMemcpyHtoD_v2(Address to, const void *from, size_t nbytes) { return cuMemcpy(to, (Address)from, nbytes); }
API cuMemcpyDtoH_v2(void *to, Address from, size_t nbytes) { return cuMemcpy((Address)to, from, nbytes); }
API cuMemcpyDtoD_v2(Address to, Address from, size_t nbytes) { return cuMemcpy(to, from, nbytes); }
static int fill(Address to, unsigned value, unsigned width, size_t count, void *handle) {
    STREAM(handle);
    if (!count) return OK;
    Op *op = new_op(FILL);
    op->to = to;
    op->value = value;
    op->width = width;
    op->nbytes = count * width;
    return submit(stream, op);
}
API cuMemsetD8Async(Address to, unsigned char value, size_t count, void *handle) { return fill(to, value, 1, count, handle); }
API cuMemsetD16Async(Address to, unsigned short value, size_t count, void *handle) { return fill(to, value, 2, count, handle); }
API cuMemsetD32Async(Address to, unsigned value, size_t count, void *handle) { return fill(to, value, 4, count, handle); }

API cuPointerGetAttribute(void *value, int which, Address address) {
    STARTED;
    LOCKED;
    Allocation *found = memory_find(address);
    if (!found || found->is_freed) return INVALID_VALUE;
    switch (which) {
    case 1: *(Context **)value = found->device < 0 ? NULL : &contexts[found->device]; break;
    case 2: *(int *)value = found->device < 0 ? 1 : 2; break;
    case 3: *(Address *)value = address; break;
    case 4: if (found->device >= 0) return INVALID_VALUE; *(Address *)value = address; break;
    case 7: *(uint64_t *)value = found->address; break;
    case 8: *(int *)value = 0; break;
    case 9: *(int *)value = found->device < 0 ? 0 : found->device; break;
    case 11: *(Address *)value = found->address; break;
    case 12: *(size_t *)value = found->nbytes; break;
    case 13: *(int *)value = 1; break;
    case 17: *(void **)value = found->pool; break;
    default: return NOT_SUPPORTED;
    }
    return OK;
}
API cuPointerGetAttributes(unsigned count, int *which, void **values, Address address) {
    STARTED;
    for (unsigned k = 0; k < count; k++)
        if (cuPointerGetAttribute(values[k], which[k], address)) *(int *)values[k] = 0;
    return OK;
}

/* -- code ------------------------------------------------------------------------------------------ */

static size_t size_of_elf(const uint8_t *image) {
    if (memcmp(image, "\177ELF", 4)) return 0;
    uint64_t sections = *(const uint64_t *)(image + 40), programs = *(const uint64_t *)(image + 32);
    uint16_t section_size = *(const uint16_t *)(image + 58), n_sections = *(const uint16_t *)(image + 60);
    uint16_t program_size = *(const uint16_t *)(image + 54), n_programs = *(const uint16_t *)(image + 56);
    size_t end = sections + (size_t)section_size * n_sections, other = programs + (size_t)program_size * n_programs;
    return end > other ? end : other;
}
API cuLibraryLoadData(Library **made, const void *image, int *a, void **b, unsigned c, int *d, void **e, unsigned f) {
    (void)a; (void)b; (void)c; (void)d; (void)e; (void)f;
    STARTED;
    size_t nbytes = size_of_elf(image);
    if (!nbytes) return raise_fault(INVALID_IMAGE, "only cubins can be loaded");
    *made = calloc(1, sizeof **made);
    (*made)->image = malloc(nbytes);
    (*made)->nbytes = nbytes;
    memcpy((*made)->image, image, nbytes);
    return OK;
}
API cuLibraryUnload(Library *library) { (void)library; return OK; }
API cuLibraryGetKernel(Kernel **made, Library *library, const char *name) {
    STARTED;
    Program *program = compile(library->image, library->nbytes, name);
    if (!program) return NOT_FOUND;
    *made = calloc(1, sizeof **made);
    **made = (Kernel){library, program, 48 << 10};
    return OK;
}
API cuModuleLoadData(Library **made, const void *image) {
    STARTED;
    if (!current) return INVALID_CONTEXT;
    int status = cuLibraryLoadData(made, image, 0, 0, 0, 0, 0, 0);
    return status;
}
API cuModuleLoadDataEx(Library **made, const void *image, unsigned n, int *a, void **b) { (void)n; (void)a; (void)b; return cuModuleLoadData(made, image); }
API cuModuleUnload(Library *library) { (void)library; return OK; }
/* A function belongs to a context, a kernel to none: the marker tells their handles apart. */
#define IS_FUNCTION 1ull
API cuKernelGetFunction(Function **made, Kernel *kernel) {
    STARTED;
    if (!current) return INVALID_CONTEXT;
    Function *function = calloc(1, sizeof *function);
    *function = (Function){kernel, current};
    *made = (Function *)((uint64_t)function | IS_FUNCTION);
    return OK;
}
API cuModuleGetFunction(Function **made, Library *library, const char *name) {
    Kernel *kernel;
    int status = cuLibraryGetKernel(&kernel, library, name);
    return status ? status : cuKernelGetFunction(made, kernel);
}
static Kernel *kernel_of(void *handle) {
    uint64_t bits = (uint64_t)handle;
    return bits & IS_FUNCTION ? ((Function *)(bits & ~IS_FUNCTION))->kernel : handle;
}
static int attribute_of(int *value, int which, void *handle) {
    Kernel *kernel = kernel_of(handle);
    switch (which) {
    case 0: *value = kernel->program->required_threads ? kernel->program->required_threads : 1024; break;
    case 1: *value = kernel->program->static_shared; break;
    case 5: case 6: *value = kernel->program->arch; break;
    case 8: *value = kernel->dynamic_shared; break;
    default: *value = 0;
    }
    return OK;
}
API cuKernelGetAttribute(int *value, int which, void *kernel, int d) { DEVICE(d); return attribute_of(value, which, kernel); }
API cuFuncGetAttribute(int *value, int which, void *function) { STARTED; return attribute_of(value, which, function); }
API cuKernelSetAttribute(int which, int value, void *kernel, int d) { DEVICE(d); if (which == 8) { if (value > 99 << 10) return INVALID_VALUE; kernel_of(kernel)->dynamic_shared = value; } return OK; }
API cuFuncSetAttribute(void *function, int which, int value) { return cuKernelSetAttribute(which, value, function, 0); }
API cuKernelGetParamInfo(void *handle, size_t index, size_t *offset, size_t *nbytes) {
    Program *p = kernel_of(handle)->program;
    if (index >= (size_t)p->n_params) return INVALID_VALUE;
    *offset = p->param_offsets[index];
    if (nbytes) *nbytes = p->param_sizes[index];
    return OK;
}
API cuFuncGetParamInfo(void *handle, size_t index, size_t *offset, size_t *nbytes) { return cuKernelGetParamInfo(handle, index, offset, nbytes); }
API cuKernelGetName(const char **name, void *handle) { *name = kernel_of(handle)->program->name; return OK; }
API cuFuncGetName(const char **name, void *handle) { return cuKernelGetName(name, handle); }
API cuKernelGetLibrary(Library **library, void *handle) { *library = kernel_of(handle)->library; return OK; }

API cuLaunchKernel(void *handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *on, void **arguments, void **extra) {
    STREAM(on);
    uint64_t bits = (uint64_t)handle;
    if (!bits || extra) return INVALID_VALUE;
    if (bits & IS_FUNCTION && ((Function *)(bits & ~IS_FUNCTION))->context != stream->context)
        return raise_fault(INVALID_HANDLE, "a function of GPU %d is launched on a stream of GPU %d",
                           ((Function *)(bits & ~IS_FUNCTION))->context->device, stream->context->device);
    Kernel *kernel = kernel_of(handle);
    Program *p = kernel->program;
    int arch = stream->context->arch;
    if (p->arch / 10 != arch / 10 || p->arch > arch)
        return raise_fault(NO_BINARY_FOR_GPU, "%s was compiled for sm_%d and is launched on GPU %d, an sm_%d", p->name, p->arch, stream->context->device, arch);
    uint64_t threads = (uint64_t)bx * by * bz;
    if (!gx || !gy || !gz || !threads || gy > 65535 || gz > 65535 || gx > 0x7fffffff) return raise_fault(INVALID_VALUE, "%s: a grid of %u × %u × %u", p->name, gx, gy, gz);
    if (threads > 1024 || (p->required_threads && threads != (uint64_t)p->required_threads)) return raise_fault(INVALID_VALUE, "%s: blocks of %llu threads", p->name, (unsigned long long)threads);
    if (shared > (unsigned)kernel->dynamic_shared) return raise_fault(OUT_OF_RESOURCES, "%s: %u bytes of shared memory, more than the kernel asked for", p->name, shared);
    Op *op = new_op(KERNEL);
    op->program = p;
    uint32_t grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    memcpy(op->grid, grid, sizeof grid);
    memcpy(op->block, block, sizeof block);
    op->shared = shared;
    int nbytes = p->n_params ? p->param_offsets[p->n_params - 1] + p->param_sizes[p->n_params - 1] : 0;
    op->params = calloc(1, nbytes + 16);
    for (int k = 0; k < p->n_params; k++) memcpy(op->params + p->param_offsets[k], arguments[k], p->param_sizes[k]);
    n_calls[0]++;
    return submit(stream, op);
}
typedef struct { unsigned gx, gy, gz, bx, by, bz, shared; void *stream, *attributes; unsigned n_attributes; } LaunchConfig;
API cuLaunchKernelEx(const LaunchConfig *c, void *handle, void **arguments, void **extra) {
    if (c->n_attributes) return NOT_SUPPORTED;
    return cuLaunchKernel(handle, c->gx, c->gy, c->gz, c->bx, c->by, c->bz, c->shared, c->stream, arguments, extra);
}

/* -- names ------------------------------------------------------------------------------------------ */

static const struct { int code; const char *name, *text; } ERRORS[] = {
    {OK, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};
static int error_text(int code, const char **text, int is_name) {
    for (size_t k = 0; k < sizeof ERRORS / sizeof *ERRORS; k++)
        if (ERRORS[k].code == code) { *text = is_name ? ERRORS[k].name : ERRORS[k].text; return OK; }
    *text = NULL;
    return INVALID_VALUE;
}
API cuGetErrorName(int code, const char **text) { return error_text(code, text, 1); }
API cuGetErrorString(int code, const char **text) { return error_text(code, text, 0); }

/* The newest version of a function that is here; a name that is not here is not found. */
API cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status) {
    (void)version; (void)flags;
    static void *self;
    if (!self) self = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    char full[200];
    static const char *SUFFIXES[] = {"_v2", ""};
    /* Functions of which a caller of an older version means one with other arguments. */
    static const struct { const char *name; int since; } CHANGED[] = {
        {"cuCtxGetDevice", 13000}, {"cuCtxSynchronize", 13000}, {"cuStreamGetCtx", 12050}};
    int is_plain = 0;
    for (int k = 0; k < 3; k++) is_plain |= !strcmp(name, CHANGED[k].name) && version < CHANGED[k].since;
    *found = NULL;
    for (int k = is_plain; k < 2 && !*found; k++) {
        snprintf(full, sizeof full, "%s%s", name, SUFFIXES[k]);
        *found = dlsym(self, full);
    }
    if (getenv("EMU_TRACE") && !*found) fprintf(stderr, "emulated driver: %s (version %d) is not here\n", name, version);
    if (status) *status = *found ? 0 : 1;
    return *found ? OK : NOT_FOUND;
}
API cuGetProcAddress(const char *name, void **found, int version, uint64_t flags) { return cuGetProcAddress_v2(name, found, version, flags, NULL); }
