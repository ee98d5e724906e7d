/* Device memory and the execution of kernels.
 *
 * Device memory has two addresses. Programs get the first, at which nothing can be read or written
 * by the host. The bytes lie at the second, which only this library knows. A third area holds, for
 * each 8 bytes of memory, how many of them may be accessed: 0 to 8, or FREED.
 */
#include "emulator.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define ARENA (16ull << 30)
#define GAP 512 /* bytes between allocations, and their alignment */
#define FREED 0xFD
#define MAX_ALLOCATIONS (1 << 20)

typedef struct {
    uint64_t base;   /* addresses that programs see */
    uint8_t *data;   /* where the bytes are */
    uint8_t *usable; /* accessible bytes of each 8 */
    uint64_t next;
    Allocation *allocations; /* by address */
    int count;
} Arena;

static Arena arenas[MAX_DEVICES + 1]; /* the last one is pinned host memory */
static int n_arenas;
static uint8_t garbage = 0x51;
unsigned peers[MAX_DEVICES];
static char fault[2048];
static uint8_t *seen_sectors; /* a bit for each 32 bytes of all arenas */
#define SEEN_BYTES ((MAX_DEVICES + 1) * (ARENA >> 8))

static Counters counters;
PUBLIC int emu_is_counting;

PUBLIC const char *emu_fault(void) { return fault; }
PUBLIC void emu_clear_fault(void) { fault[0] = 0; }

int raise_fault(int status, const char *format, ...) {
    if (!fault[0]) { /* the first one is the cause */
        va_list rest;
        va_start(rest, format);
        vsnprintf(fault, sizeof fault, format, rest);
        va_end(rest);
    }
    return status;
}

static void *reserve(uint64_t nbytes, int protection) {
    void *found = mmap(NULL, nbytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) { perror("emulated driver: mmap"); abort(); }
    return found;
}

void machine_start(int n_devices) {
    n_arenas = n_devices + 1;
    seen_sectors = reserve(SEEN_BYTES, PROT_READ | PROT_WRITE);
    for (int k = 0; k < n_arenas; k++) {
        Arena *a = &arenas[k];
        a->data = reserve(ARENA, PROT_READ | PROT_WRITE);
        a->base = k == n_devices ? (uint64_t)a->data : (uint64_t)reserve(ARENA, PROT_NONE);
        a->usable = reserve(ARENA / 8, PROT_READ | PROT_WRITE);
        a->allocations = reserve(MAX_ALLOCATIONS * sizeof(Allocation), PROT_READ | PROT_WRITE);
        a->next = GAP;
    }
}

static Arena *arena_of(uint64_t address) {
    for (int k = 0; k < n_arenas; k++)
        if (address - arenas[k].base < ARENA) return &arenas[k];
    return NULL;
}

int is_emulated(uint64_t address) { return arena_of(address) != NULL; }

static Allocation *nearest(uint64_t address) {
    Arena *a = arena_of(address);
    if (!a || !a->count) return NULL;
    int low = 0, high = a->count;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (a->allocations[middle].address <= address) low = middle; else high = middle;
    }
    return &a->allocations[low];
}

Allocation *memory_find(uint64_t address) {
    Allocation *found = nearest(address);
    if (!found || address < found->address) return NULL;
    return address < found->address + (found->nbytes ? found->nbytes : 1) ? found : NULL;
}

/* device -1: pinned host memory */
int memory_take(int device, uint64_t nbytes, int usable_now, void *pool, uint64_t *address) {
    Arena *a = &arenas[device < 0 ? n_arenas - 1 : device];
    if (nbytes > ARENA / 2 || a->next + nbytes + 2 * GAP > ARENA || a->count == MAX_ALLOCATIONS)
        return OUT_OF_MEMORY;
    Allocation *made = &a->allocations[a->count++];
    *made = (Allocation){a->base + a->next, nbytes, device, 0, 0, pool};
    a->next += (nbytes + GAP + GAP - 1) / GAP * GAP;
    *address = made->address;
    if (usable_now) memory_allow(made);
    return OK;
}

void memory_allow(Allocation *which) {
    Arena *a = arena_of(which->address);
    uint64_t start = which->address - a->base;
    memset(a->usable + start / 8, 8, which->nbytes / 8);
    if (which->nbytes % 8) a->usable[(start + which->nbytes) / 8] = which->nbytes % 8;
    /* Unwritten memory differs each time, so that results which depend on it differ, too. */
    memset(a->data + start, garbage = garbage == 0xF1 ? 0x51 : garbage + 1, which->nbytes);
}

void memory_release(Allocation *which) {
    Arena *a = arena_of(which->address);
    uint64_t start = which->address - a->base, end = start + which->nbytes;
    memset(a->usable + start / 8, FREED, (which->nbytes + 7) / 8);
    memset(a->data + start, 0xDD, which->nbytes);
    uint64_t first = (start + 4095) & ~4095ull, last = end & ~4095ull;
    if (last > first) madvise(a->data + first, last - first, MADV_DONTNEED);
    which->is_freed = 1;
}

static const char *describe(uint64_t address, char *text, size_t size) {
    Arena *a = arena_of(address);
    Allocation *near = nearest(address);
    if (!a) snprintf(text, size, "it is no device memory");
    else if (!near || address < near->address) snprintf(text, size, "nothing was allocated there");
    else {
        uint64_t offset = address - near->address;
        char owner[32] = "pinned host memory";
        if (near->device >= 0) snprintf(owner, sizeof owner, "GPU %d", near->device);
        int is_allocated = a->usable[(near->address - a->base) / 8] != 0;
        const char *state = near->is_freed ? ", freed" : is_allocated ? "" : ", whose allocation has not run yet in its stream";
        snprintf(text, size, "byte %llu of an allocation of %llu bytes on %s%s", (unsigned long long)offset,
                 (unsigned long long)near->nbytes, owner, state);
    }
    return text;
}

/* Where the bytes of a range are; the host's own memory is not checked. */
uint8_t *memory_range(uint64_t address, uint64_t nbytes, const char *what, int *status) {
    Arena *a = arena_of(address);
    if (!a) return (uint8_t *)address;
    uint64_t start = address - a->base;
    for (uint64_t k = start; k < start + nbytes; k = (k | 7) + 1) {
        uint64_t upto = (k | 7) + 1 < start + nbytes ? 8 : (start + nbytes - 1) % 8 + 1;
        uint8_t usable = a->usable[k / 8];
        if (usable > 8 || usable < upto) {
            char text[200];
            *status = raise_fault(ILLEGAL_ADDRESS, "%s of %llu bytes at %#llx: %s", what, (unsigned long long)nbytes,
                                  (unsigned long long)address, describe(a->base + k, text, sizeof text));
            return NULL;
        }
    }
    return a->data + start;
}

/* -- execution ------------------------------------------------------------------------------- */

typedef struct {
    const Program *program;
    int device, status;
    uint8_t *shared;
    uint32_t shared_nbytes;
    Frame frame;
    uint64_t turn; /* counts segments run by a warp: accesses of one turn are one request */
    jmp_buf stop;
} Run;

typedef struct { uint64_t turn; int count; uint64_t sectors[2 * WARP]; } Request;
static Run *running;
static Request *requests;
static int n_requests;

static __attribute__((noreturn)) void stop(int status, const char *format, ...) {
    char text[600], place[300];
    va_list rest;
    va_start(rest, format);
    vsnprintf(text, sizeof text, format, rest);
    va_end(rest);
    Frame *f = &running->frame;
    snprintf(place, sizeof place, "kernel %s, block %u, thread %u", running->program->name, f->ctaid[0], f->tid[0]);
    running->status = raise_fault(status, "%s: %s", place, text);
    longjmp(running->stop, 1);
}

static void count_access(int which, uint64_t address, uint32_t nbytes) {
    Request *request = &requests[which];
    if (request->turn != running->turn) {
        request->turn = running->turn;
        request->count = 0;
        counters.requests++;
    }
    counters.bytes_requested += nbytes;
    uint64_t sector = address / 32;
    for (int k = 0; k < request->count; k++)
        if (request->sectors[k] == sector) return;
    request->sectors[request->count++] = sector;
    counters.sectors++;
    Arena *a = arena_of(address);
    uint64_t bit = (a - arenas) * (ARENA >> 5) + (address - a->base) / 32;
    uint8_t mask = 1 << bit % 8;
    if (!(seen_sectors[bit / 8] & mask)) counters.unique_sectors++;
    seen_sectors[bit / 8] |= mask;
}

#define MAX_RECORDS 4096
PUBLIC LaunchRecord emu_records[MAX_RECORDS]; /* of the launches since `emu_clear_counters` */
PUBLIC int emu_n_records;

PUBLIC void emu_clear_counters(void) { emu_n_records = 0; }

static void begin_counting(void) {
    memset(&counters, 0, sizeof counters);
    if (emu_is_counting) madvise(seen_sectors, SEEN_BYTES, MADV_DONTNEED);
}

static void end_counting(const char *name) {
    if (emu_is_counting && emu_n_records < MAX_RECORDS) emu_records[emu_n_records++] = (LaunchRecord){name, counters};
}

/* Called by generated code before each access to global memory; returns where the bytes are. */
PUBLIC uint8_t *emu_global(uint64_t address, uint32_t nbytes, uint32_t which, uint32_t is_store) {
    Arena *a = arena_of(address);
    char text[200];
    const char *what = is_store ? "store" : "load";
    int line = running->program->lines[which];
    if (address % nbytes)
        stop(MISALIGNED_ADDRESS, "%s of %u bytes at %#llx (PTX line %d): the address is not aligned", what, nbytes, (unsigned long long)address, line);
    if (a) {
        uint64_t offset = address - a->base;
        uint8_t usable = a->usable[offset / 8];
        int is_fine = usable <= 8 && offset % 8 + (nbytes > 8 ? 8 : nbytes) <= usable;
        if (nbytes > 8) is_fine &= a->usable[offset / 8 + 1] == 8;
        int owner = a - arenas;
        if (is_fine && owner != running->device && owner != n_arenas - 1 && !(peers[running->device] >> owner & 1))
            stop(ILLEGAL_ADDRESS, "%s of %u bytes at %#llx (PTX line %d) on GPU %d: %s", what, nbytes, (unsigned long long)address, line, running->device, describe(address, text, sizeof text));
        if (is_fine) {
            if (emu_is_counting) count_access(which, address, nbytes);
            return a->data + offset;
        }
    }
    stop(ILLEGAL_ADDRESS, "%s of %u bytes at %#llx (PTX line %d): %s", what, nbytes, (unsigned long long)address, line, describe(address, text, sizeof text));
}

PUBLIC uint8_t *emu_shared(uint64_t address, uint32_t nbytes, uint32_t which, uint32_t is_store) {
    if (address % nbytes || address + nbytes > running->shared_nbytes)
        stop(address % nbytes ? MISALIGNED_ADDRESS : ILLEGAL_ADDRESS, "%s of %u bytes at %llu of %u bytes of shared memory (PTX line %d)",
             is_store ? "store" : "load", nbytes, (unsigned long long)address, running->shared_nbytes, running->program->lines[which]);
    return running->shared + address;
}

PUBLIC void emu_trap(void) { stop(LAUNCH_FAILED, "the kernel trapped"); }

/* An operand of a meeting: a slot of the thread's registers if even, else a number. */
static uint64_t operand_of(int64_t operand, const uint64_t *slots) {
    return operand & 1 ? (uint64_t)(operand >> 1) : slots[operand >> 1];
}

static uint32_t reduced(int operation, uint32_t a, uint32_t b) {
    int32_t x = a, y = b;
    switch (operation) {
    case 0: return a + b;
    case 1: return x < y ? a : b;
    case 2: return x > y ? a : b;
    case 3: return a < b ? a : b;
    case 4: return a > b ? a : b;
    case 5: return a & b;
    case 6: return a | b;
    case 7: return a ^ b;
    }
    stop(LAUNCH_FAILED, "unknown reduction %d", operation);
}

/* operands: destination, source, b, c (as in PTX), mask, destination predicate (or -2) */
static void meet(const Segment *s, uint64_t *slots, int n_slots, int32_t *at, int here, int first, int n) {
    uint32_t present = 0, values[WARP], mask = 0;
    for (int lane = 0; lane < n; lane++)
        if (at[first + lane] == here) present |= 1u << lane;
    for (int lane = 0; lane < n; lane++)
        if (present >> lane & 1) {
            uint64_t *own = slots + (size_t)(first + lane) * n_slots;
            values[lane] = operand_of(s->operands[1], own);
            mask = operand_of(s->operands[4], own);
            running->frame.tid[0] = first + lane;
            if (n == WARP && mask & ~present)
                stop(LAUNCH_FAILED, "lanes %#x of mask %#x do not reach a warp-wide instruction", mask & ~present, mask);
        }
    uint32_t total = 0, is_first = 1, votes = 0;
    for (int lane = 0; lane < n; lane++)
        if (present >> lane & 1) {
            total = is_first ? values[lane] : reduced(s->operation, total, values[lane]);
            is_first = 0;
            votes |= (values[lane] & 1) << lane;
        }
    for (int lane = 0; lane < n; lane++) {
        if (!(present >> lane & 1)) continue;
        uint64_t *own = slots + (size_t)(first + lane) * n_slots;
        uint64_t result = total;
        if (s->kind == VOTE) result = s->operation == 0 ? votes : s->operation == 1 ? votes != 0 : votes == present;
        if (s->kind == SHUFFLE) {
            int b = operand_of(s->operands[2], own) & 31, c = operand_of(s->operands[3], own);
            int segment = c >> 8 & 31, limit = c & 31;
            int most = (lane & segment) | (limit & ~segment), least = lane & segment, from = lane, is_valid = 1;
            switch (s->operation) {
            case 0: from = lane - b; is_valid = from >= most; break;                      /* up */
            case 1: from = lane + b; is_valid = from <= most; break;                      /* down */
            case 2: from = lane ^ b; is_valid = from <= most; break;                      /* bfly */
            case 3: from = least | (b & ~segment); is_valid = from <= most; break;        /* idx */
            }
            if (!is_valid) from = lane;
            if (!(present >> from & 1)) stop(LAUNCH_FAILED, "a shuffle reads lane %d, which is not there", from);
            result = values[from];
            if (s->operands[5] >= 0) own[s->operands[5] >> 1] = is_valid;
        }
        own[s->operands[0] >> 1] = result;
        at[first + lane] = s->next;
    }
}

static void run_segment(const Segment *s, int here, int32_t *at, uint64_t *slots, int n_slots, int n) {
    Frame *f = &running->frame;
    for (int first = 0; first < n; first += WARP) {
        int last = first + WARP < n ? first + WARP : n, active = 0;
        running->turn++;
        for (int t = first; t < last; t++) {
            if (at[t] != here) continue;
            f->tid[0] = t % f->ntid[0];
            f->tid[1] = t / f->ntid[0] % f->ntid[1];
            f->tid[2] = t / f->ntid[0] / f->ntid[1];
            at[t] = s->run(f, slots + (size_t)t * n_slots);
            active++;
        }
        if (active) {
            counters.thread_instructions += (uint64_t)active * s->count;
            counters.warp_instructions += s->count;
            counters.lane_slots += (uint64_t)WARP * s->count;
        }
    }
}

/* Whether all threads that must take part in a barrier have reached it. */
static int is_barrier_full(const int32_t *at, int here, int n) {
    for (int t = 0; t < n; t++)
        if (at[t] >= 0 && at[t] != here) return 0;
    return 1;
}

/* Whether the lanes that an instruction of a warp names have reached it; those behind the last thread never do. */
static int is_warp_here(const Segment *s, const uint64_t *slots, int n_slots, const int32_t *at, int here, int first, int n) {
    uint32_t present = 0, mask = 0, there = n == WARP ? ~0u : (1u << n) - 1;
    for (int lane = 0; lane < n; lane++)
        if (at[first + lane] == here) {
            present |= 1u << lane;
            mask |= operand_of(s->operands[4], slots + (size_t)(first + lane) * n_slots);
        }
    return present && !(mask & there & ~present);
}

/* Let the threads that are at a segment run it if they can; returns whether anything happened. */
static int step(const Segment *s, int here, int32_t *at, uint64_t *slots, int n_slots, int n) {
    if (s->kind == PLAIN) {
        run_segment(s, here, at, slots, n_slots, n);
        return 1;
    }
    if (s->kind == BARRIER) {
        if (!is_barrier_full(at, here, n)) return 0;
        for (int t = 0; t < n; t++)
            if (at[t] >= 0) at[t] = s->next;
        return 1;
    }
    int happened = 0;
    for (int first = 0; first < n; first += WARP) {
        int lanes = first + WARP < n ? WARP : n - first;
        if (!is_warp_here(s, slots, n_slots, at, here, first, lanes)) continue;
        meet(s, slots, n_slots, at, here, first, lanes);
        happened = 1;
    }
    return happened;
}

static void run_block(int n, int32_t *at, uint64_t *slots) {
    const Program *p = running->program;
    memset(at, 0, n * sizeof *at);
    int32_t from = 0; /* threads before this wait for others */
    for (;;) { /* those who are behind go first, so that branches meet again where they end */
        int32_t here = INT32_MAX, is_any_left = 0;
        for (int t = 0; t < n; t++) {
            is_any_left |= at[t] >= 0;
            if (at[t] >= from && at[t] < here) here = at[t];
        }
        if (!is_any_left) return;
        if (here == INT32_MAX) {
            for (int t = 0; t < n; t++)
                if (at[t] >= 0) running->frame.tid[0] = t;
            stop(LAUNCH_FAILED, "a barrier is reached by some threads only, and all wait");
        }
        from = step(&p->segments[here], here, at, slots, p->n_slots, n) ? 0 : here + 1;
    }
}

int machine_run(const Program *program, int device, const uint32_t grid[3], const uint32_t block[3],
                uint32_t dynamic_shared, const uint8_t *params) {
    int n = block[0] * block[1] * block[2];
    Run run = {.program = program, .device = device, .frame = {.params = params}};
    run.shared_nbytes = program->static_shared + dynamic_shared;
    run.shared = aligned_alloc(128, (run.shared_nbytes + 255) / 128 * 128);
    int32_t *at = malloc(n * sizeof *at);
    uint64_t *slots = calloc((size_t)n * program->n_slots + 1, 8);
    if (program->n_accesses > n_requests) {
        requests = realloc(requests, program->n_accesses * sizeof *requests);
        n_requests = program->n_accesses;
    }
    memset(requests, 0, n_requests * sizeof *requests);
    memcpy(run.frame.ntid, block, sizeof run.frame.ntid);
    memcpy(run.frame.nctaid, grid, sizeof run.frame.nctaid);
    begin_counting();
    running = &run;
    if (!setjmp(run.stop))
        for (uint32_t z = 0; z < grid[2]; z++)
            for (uint32_t y = 0; y < grid[1]; y++)
                for (uint32_t x = 0; x < grid[0]; x++) {
                    uint32_t here[3] = {x, y, z};
                    memcpy(run.frame.ctaid, here, sizeof here);
                    memset(run.shared, 0x5A + (x & 1), run.shared_nbytes);
                    counters.blocks++;
                    run_block(n, at, slots);
                }
    running = NULL;
    end_counting(program->name);
    free(run.shared);
    free(at);
    free(slots);
    return run.status;
}
