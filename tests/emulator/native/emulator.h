/* What the parts of the emulated CUDA driver share. See docs/gpu.md, "The emulated driver". */
#pragma once
#include <stdint.h>
#include <stddef.h>

#define PUBLIC __attribute__((visibility("default")))
#define MAX_DEVICES 4
#define WARP 32

enum { /* error codes of the driver API */
    OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101,
    INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NO_BINARY_FOR_GPU = 209, INVALID_HANDLE = 400,
    NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700, OUT_OF_RESOURCES = 701,
    MISALIGNED_ADDRESS = 716, LAUNCH_FAILED = 719, NOT_SUPPORTED = 801,
};

/* One allocation. Addresses are never used twice, so a record stays valid after it was freed. */
typedef struct {
    uint64_t address, nbytes;
    int device;      /* -1: pinned host memory */
    int is_freed, is_free_queued;
    void *pool;
} Allocation;

/* What generated code sees of the thread that runs. translate.py knows these offsets. */
typedef struct {
    const uint8_t *params; /* 0 */
    uint32_t tid[3];       /* 8 */
    uint32_t ntid[3];      /* 20 */
    uint32_t ctaid[3];     /* 32 */
    uint32_t nctaid[3];    /* 44 */
} Frame;

/* A piece of a kernel without branches, or one instruction in which threads meet. */
typedef struct {
    int32_t (*run)(Frame *, uint64_t *); /* returns the next segment; -1: the thread ends */
    int32_t kind, operation, next, count; /* count: PTX instructions */
    int64_t operands[6];                  /* see `operand_of` */
} Segment;

enum { PLAIN = 0, BARRIER = 1, REDUX = 2, SHUFFLE = 3, VOTE = 4 };

/* A kernel as compiled by translate.py. */
typedef struct {
    const char *name;
    int32_t arch, n_segments, n_slots, n_params, static_shared, required_threads;
    const Segment *segments;
    const int32_t *param_offsets, *param_sizes;
    const int32_t *lines; /* the line of PTX of each memory instruction */
    int32_t n_accesses;
} Program;

/* What one launch has done. `sectors` of 32 bytes are counted for each request of a warp, `unique_sectors` once. */
typedef struct {
    uint64_t blocks, thread_instructions, warp_instructions, lane_slots;
    uint64_t requests, sectors, unique_sectors, bytes_requested;
} Counters;

typedef struct { const char *name; Counters counters; } LaunchRecord;

/* machine.c */
void machine_start(int n_devices);
int memory_take(int device, uint64_t nbytes, int usable_now, void *pool, uint64_t *address);
Allocation *memory_find(uint64_t address);
void memory_allow(Allocation *);
void memory_release(Allocation *);
uint8_t *memory_range(uint64_t address, uint64_t nbytes, const char *what, int *status);
int is_emulated(uint64_t address);
int machine_run(const Program *, int device, const uint32_t grid[3], const uint32_t block[3],
                uint32_t dynamic_shared, const uint8_t *params);
int raise_fault(int status, const char *format, ...);
extern unsigned peers[MAX_DEVICES]; /* bit mask: devices whose memory a device may access */
