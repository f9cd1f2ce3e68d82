//go:build cudaemu

// The emulator: threads as fibers. See emu/emu.h.

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <vector>

#include "emu/api.h"
#include "emu/emu.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace {

constexpr size_t max_shared = 227 << 10;   // bytes of shared memory per block
constexpr size_t padding = 2 << 10;         // and of padding padding its arrays, at most
constexpr size_t shared_size = (max_shared + padding + 1023) / 1024 * 1024;
constexpr size_t stack_size = SANITIZED ? 256 << 10 : 64 << 10;
constexpr int max_threads = 1024, lanes = 32;

enum FiberState { ready, at_barrier, at_exchange, at_named_barrier, at_cluster_barrier, at_mbarrier, done };
constexpr int named_barriers = 16;

#if defined(__x86_64__)

typedef void* Context;  // the stack pointer; registers are saved on the stack

extern "C" void emu_switch(Context* from, Context to);
asm(R"(
.text
.globl emu_switch
.type emu_switch, @function
emu_switch:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, (%rdi)
	movq %rsi, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
.size emu_switch, .-emu_switch
.section .note.GNU-stack,"",@progbits
.text
)");

void change(Context& from, Context& to) { emu_switch(&from, to); }

void prepare(Context& c, char* stack, void (*entry)()) {
	void** top = (void**)(stack + stack_size);
	*--top = nullptr;  // aligns the stack to 16 bytes at entry
	*--top = (void*)entry;
	for (int i = 0; i < 6; i++) *--top = nullptr;
	c = top;
}

#else

typedef ucontext_t Context;

void change(Context& from, Context& to) { swapcontext(&from, &to); }

void prepare(Context& c, char* stack, void (*entry)()) {
	getcontext(&c);
	c.uc_stack.ss_sp = stack;
	c.uc_stack.ss_size = stack_size;
	c.uc_link = nullptr;
	makecontext(&c, entry, 0);
}

#endif

struct Copy {
	void* to;
	const void* from;
	int group;
};

void make(const Copy& c) {
	if (c.from)
		memcpy(c.to, c.from, 16);
	else
		memset(c.to, 0, 16);
}

struct Fiber {
	Context context;
	std::vector<Copy> copies;  // issued, not executed yet
	int group;                 // current cp.async group
	char* stack;
	FiberState state;
	int barrier;       // named barrier that it waits at
	const void* mbarrier;  // that it waits at
	void* fake;  // the address sanitizer's stack
};

// Warp is the exchange buffer of a warp: two sets of words in alternation, because a fast lane
// may publish its next word before a slow one has read the last.
struct Warp {
	uint64_t words[2][lanes];
	int parity, arrived;
	const char* what;
};

struct Region {
	const void* key;
	size_t offset, size;
};

// Machine is a running block.
struct Machine {
	Fiber fibers[max_threads];
	Warp warps[max_threads / lanes];
	Context scheduler;
	std::vector<int> queue;  // ready fibers
	int current, waiting, finished, threads;
	int arrived[named_barriers];  // threads at each named barrier
	int at_cluster;    // threads at the cluster barrier
	dim3 block;
	int rank;  // in its cluster
	std::vector<emu::TmaCopy> tma_copies;

	char* shared;  // aligned to 1024 bytes
	std::vector<Region> regions;
	size_t used, dynamic_size;
	size_t taken, declared;  // bytes of SHARED arrays so far, and those of the kernel on a GPU

	const emu::Kernel* kernel;
	const uint64_t* args;
	uint64_t random;  // state of the generator; 0: in order
	int slow;         // the starved warp; -1 for none
	char message[512];
	bool failed;
	const void* outer_stack;
	size_t outer_size;

	Machine() : shared((char*)aligned_alloc(1024, shared_size)) {
		char* all = (char*)mmap(nullptr, max_threads * stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		for (int i = 0; i < max_threads; i++) fibers[i].stack = all + i * stack_size;
	}

	uint64_t next() {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		return random;
	}
};

Machine* machine;
std::vector<Machine*> machines;  // blocks of a cluster; never shrinks
emu::Kernel* kernels;

// leave yields to the scheduler.
void leave(bool forever) {
	Machine& m = *machine;
	Fiber& f = m.fibers[m.current];
#if SANITIZED
	__sanitizer_start_switch_fiber(forever ? nullptr : &f.fake, m.outer_stack, m.outer_size);
#endif
	change(f.context, m.scheduler);
#if SANITIZED
	__sanitizer_finish_switch_fiber(f.fake, &m.outer_stack, &m.outer_size);
#endif
	(void)forever;
}

// enter is the entry point of a fiber.
void enter() {
	Machine& m = *machine;
#if SANITIZED
	__sanitizer_finish_switch_fiber(nullptr, &m.outer_stack, &m.outer_size);
#endif
	m.kernel->call(m.args);
	m.fibers[m.current].state = done;
	m.finished++;
	leave(true);
}

void resume(int i) {
	Machine& m = *machine;
	m.current = i;
	threadIdx.x = i;
	blockIdx = m.block;
#if SANITIZED
	void* fake;
	__sanitizer_start_switch_fiber(&fake, m.fibers[i].stack, stack_size);
#endif
	change(m.scheduler, m.fibers[i].context);
#if SANITIZED
	__sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

// release makes waiting fibers lo to hi-1 ready.
void release(int lo, int hi, FiberState from) {
	Machine& m = *machine;
	for (int i = lo; i < hi; i++) {
		if (m.fibers[i].state == from) {
			m.fibers[i].state = ready;
			m.queue.push_back(i);
		}
	}
}

// stuck describes a deadlock.
void stuck() {
	Machine& m = *machine;
	m.failed = true;
	int barrier = m.waiting, point = 0;
	for (int i = 0; i < m.threads; i++) point += m.fibers[i].state == at_named_barrier || m.fibers[i].state == at_cluster_barrier || m.fibers[i].state == at_mbarrier;
	int exchange = m.threads - m.finished - barrier - point;
	const char* what = "";
	for (int w = 0; w < m.threads / lanes; w++) {
		if (m.warps[w].arrived > 0) what = m.warps[w].what;
	}
	snprintf(m.message, sizeof m.message,
		"block %u,%u,%u: %d threads wait at a barrier, %d at a named, cluster or mbarrier, %d at %s and %d have returned", blockIdx.x, blockIdx.y, blockIdx.z,
		barrier, point, exchange, exchange ? what : "a shuffle", m.finished);
}

void start_block() {
	Machine& m = *machine;
	m.queue.clear();
	m.regions.clear();
	m.used = m.dynamic_size;
	m.taken = 0;
	m.waiting = m.finished = m.at_cluster = 0;
	m.slow = m.random && m.threads > lanes ? (int)(m.next() % (m.threads / lanes)) : -1;
	memset(m.arrived, 0, sizeof m.arrived);
	m.tma_copies.clear();
#if SANITIZED
	__asan_unpoison_memory_region(m.shared, shared_size);
#endif
	memset(m.shared, 0xff, m.dynamic_size + m.declared + padding);
#if SANITIZED
	__asan_poison_memory_region(m.shared + m.dynamic_size, shared_size - m.dynamic_size);
#endif
	for (int w = 0; w < m.threads / lanes; w++) m.warps[w].parity = m.warps[w].arrived = 0;
	for (int i = 0; i < m.threads; i++) {
		prepare(m.fibers[i].context, m.fibers[i].stack, enter);
		m.fibers[i].state = ready;
		m.fibers[i].copies.clear();
		m.fibers[i].group = 0;
		m.queue.push_back(i);
	}
}

// run_ready runs a block until all of its threads wait or have returned.
void run_ready() {
	Machine& m = *machine;
	for (size_t head = 0; head < m.queue.size() && !m.failed;) {
		if (m.random) {
			size_t i = head + m.next() % (m.queue.size() - head);
			for (int tries = 0; tries < 8 && m.queue[i] / lanes == m.slow; tries++) i = head + m.next() % (m.queue.size() - head);
			int t = m.queue[i];
			m.queue[i] = m.queue[head];
			m.queue[head] = t;
		}
		resume(m.queue[head++]);
		if (head == m.queue.size()) {
			m.queue.clear();
			head = 0;
			if (m.waiting == m.threads) {
				m.waiting = 0;
				release(0, m.threads, at_barrier);
			}
		}
	}
	if (!m.tma_copies.empty() && !m.failed && m.finished == m.threads) {
		m.failed = true;
		snprintf(m.message, sizeof m.message, "block %u,%u,%u: nobody waited for %zu TMA copies", blockIdx.x, blockIdx.y, blockIdx.z, m.tma_copies.size());
	}
}

// run_blocks runs the n blocks of a cluster. The cluster barrier opens when all threads that
// have not returned are there.
void run_blocks(int n) {
	for (int i = 0; i < n; i++) {
		machine = machines[i];
		start_block();
	}
	for (;;) {
		bool ran = false;
		int left = 0, at_cluster = 0;
		for (int i = 0; i < n; i++) {
			machine = machines[i];
			ran |= !machine->queue.empty();
			run_ready();
			if (machine->failed) return;
			left += machine->threads - machine->finished;
			at_cluster += machine->at_cluster;
		}
		if (left == 0) return;
		for (int i = 0; i < n && (at_cluster == left || !ran); i++) {
			machine = machines[i];
			if (at_cluster < left && machine->at_cluster < machine->threads - machine->finished) {
				stuck();
				return;
			}
			if (at_cluster < left) continue;
			machine->at_cluster = 0;
			release(0, machine->threads, at_cluster_barrier);
		}
	}
}

}  // namespace

namespace emu {

Kernel::Kernel(const char* n, int s, int t, Call c) : name(n), size(s), threads(t), call(c), next(kernels) { kernels = this; }

void stop(const char* format, ...) {
	Machine& m = *machine;
	va_list list;
	va_start(list, format);
	int n = snprintf(m.message, sizeof m.message, "block %u,%u,%u, thread %d: ", blockIdx.x, blockIdx.y, blockIdx.z, m.current);
	vsnprintf(m.message + n, sizeof m.message - n, format, list);
	va_end(list);
	m.failed = true;
	leave(true);
	abort();
}

void wait_block() {
	Machine& m = *machine;
	m.fibers[m.current].state = at_barrier;
	m.waiting++;
	leave(false);
}

void cluster_wait() {
	Machine& m = *machine;
	m.fibers[m.current].state = at_cluster_barrier;
	m.at_cluster++;
	leave(false);
}

int cluster_rank_of_block() { return machine->rank; }

const void* map_shared(const void* at, int rank) {
	Machine& m = *machine;
	size_t offset = (const char*)at - m.shared;
	if (offset >= m.used) stop("%p is no shared memory", at);
	const Machine& o = *machines[rank];
	if (o.finished == o.threads) stop("block %d of the cluster has exited", rank);
	return o.shared + offset;
}

void named_barrier(int point, int n, bool wait) {
	Machine& m = *machine;
	if (point < 1 || point >= named_barriers || n % lanes) stop("named barrier %d of %d threads", point, n);
	if (++m.arrived[point] == n) {
		m.arrived[point] = 0;
		for (int i = 0; i < m.threads; i++) {
			Fiber& f = m.fibers[i];
			if (f.state != at_named_barrier || f.barrier != point) continue;
			f.state = ready;
			m.queue.push_back(i);
		}
		return;
	}
	if (!wait) return;
	m.fibers[m.current].barrier = point;
	m.fibers[m.current].state = at_named_barrier;
	leave(false);
}

void wait_mbarrier(const void* mbarrier) {
	Fiber& f = machine->fibers[machine->current];
	f.mbarrier = mbarrier;
	f.state = at_mbarrier;
	leave(false);
}

void wake_mbarrier(const void* mbarrier) {
	Machine& m = *machine;
	for (int i = 0; i < m.threads; i++) {
		Fiber& f = m.fibers[i];
		if (f.state != at_mbarrier || f.mbarrier != mbarrier) continue;
		f.state = ready;
		m.queue.push_back(i);
	}
}

void tma_issue(const TmaCopy& b) {
	machine->tma_copies.push_back(b);
	wake_mbarrier(b.mbarrier);
}

bool tma_pop(const void* mbarrier, TmaCopy& b) {
	auto& all = machine->tma_copies;
	for (size_t i = 0; i < all.size(); i++) {
		if (all[i].mbarrier != mbarrier) continue;
		b = all[i];
		all.erase(all.begin() + i);
		return true;
	}
	return false;
}

const uint64_t* exchange(uint64_t word, const char* what) {
	Machine& m = *machine;
	int at = m.current, first = at / lanes * lanes;
	Warp& w = m.warps[at / lanes];
	if (w.arrived > 0 && w.what != what) stop("%s while other lanes of the warp are at %s", what, w.what);
	w.what = what;
	uint64_t* words = w.words[w.parity];
	words[at - first] = word;
	if (++w.arrived == lanes) {
		w.arrived = 0;
		w.parity ^= 1;
		release(first, first + lanes, at_exchange);
		return words;
	}
	m.fibers[at].state = at_exchange;
	leave(false);
	return words;
}

void* shared_at(const void* key, size_t size, size_t align) {
	Machine& m = *machine;
	for (Region& r : m.regions) {
		if (r.key == key) return m.shared + r.offset;
	}
	size_t offset = (m.used + 15) / 16 * 16 + align % 16;
	m.used = offset + size;
	m.taken += size;
	if (m.taken > m.declared || m.used > m.dynamic_size + m.declared + padding) stop("%zu bytes of shared memory are declared, sizes.txt has %zu: make test-driver says how it is brought up to date", m.taken, m.declared);
	m.regions.push_back({key, offset, size});
#if SANITIZED
	__asan_unpoison_memory_region(m.shared + offset, size);
	m.used += 32;  // stays poisoned
#endif
	return m.shared + offset;
}

bool early() { return machine->random && machine->next() % 2; }

void cp_async_issue(void* to, const void* from) {
	Fiber& f = machine->fibers[machine->current];
	Copy c = {to, from, f.group};
	if (early())
		make(c);
	else
		f.copies.push_back(c);
}

void cp_async_close() { machine->fibers[machine->current].group++; }

void cp_async_drain(int left) {
	Fiber& f = machine->fibers[machine->current];
	size_t kept = 0;
	for (const Copy& c : f.copies) {
		if (c.group >= f.group - left)
			f.copies[kept++] = c;
		else
			make(c);
	}
	f.copies.resize(kept);
}

void* dynamic() { return machine->shared; }

}  // namespace emu

#if !SANITIZED

// The hook of -fsanitize=alignment for misaligned accesses: on a GPU such an access ends the
// launch.
struct Misaligned {
	const char* file;
	uint32_t line, column;
	const void* type;
	unsigned char log2;
};

extern "C" void __ubsan_handle_type_mismatch_v1(const Misaligned* m, const void* at) {
	emu::stop("CUDA_ERROR_MISALIGNED_ADDRESS: misaligned address: %s:%u reads or writes at %p, which is not on %d bytes", m->file, m->line, at, 1 << m->log2);
}

#endif

extern "C" void* emu_find(const char* name) {
	for (emu::Kernel* k = kernels; k; k = k->next) {
		if (strcmp(k->name, name) == 0) return k;
	}
	return nullptr;
}

extern "C" int emu_threads(void* kernel) { return ((emu::Kernel*)kernel)->threads; }

extern "C" const char* emu_name(int i) {
	emu::Kernel* k = kernels;
	for (; k && i > 0; i--) k = k->next;
	return k ? k->name : nullptr;
}

extern "C" const char* emu_launch(void* kernel, const uint64_t* words, size_t n, emu_grid g) {
	int cluster = g.cluster ? (int)g.cluster : 1;
	while ((int)machines.size() < cluster) machines.push_back(new Machine);
	Machine& m = *machines[0];
	m.kernel = (emu::Kernel*)kernel;
	if (n * 8 != (size_t)m.kernel->size) {
		snprintf(m.message, sizeof m.message, "%zu words of arguments, want %d", n, m.kernel->size / 8);
		return m.message;
	}
	if (g.threads == 0 || g.threads % lanes || g.threads > max_threads || g.shared > max_shared) {
		snprintf(m.message, sizeof m.message, "%u threads with %zu bytes of shared memory, the emulator wants a multiple of 32 and at most %d and %zu", g.threads, g.shared, max_threads, max_shared);
		return m.message;
	}
	for (int i = 0; i < cluster; i++) {
		Machine& one = *machines[i];
		one.kernel = m.kernel;
		one.failed = false;
		one.args = words;
		one.threads = g.threads;
		one.dynamic_size = g.shared;
		one.declared = g.declared;
		one.random = g.seed ? g.seed + i : 0;
		one.rank = i;
	}
	blockDim = {g.threads, 1, 1};
	gridDim = {g.x, g.y, g.z};
	uint64_t blocks = (uint64_t)g.x * g.y * g.z / cluster;  // or clusters
	uint64_t step = 1;
	if (m.random && blocks > 1) {  // a stride coprime to the number of blocks visits each once
		do {
			step = m.next() % blocks;
			uint64_t a = step, b = blocks;
			while (b) {
				uint64_t c = a % b;
				a = b;
				b = c;
			}
			if (a == 1) break;
		} while (true);
	}
	for (uint64_t i = 0, at = 0; i < blocks; i++, at = (at + step) % blocks) {
		for (int r = 0; r < cluster; r++) machines[r]->block = {(unsigned)(at % g.x), (unsigned)(at / g.x % g.y), (unsigned)(at / g.x / g.y * cluster + r)};
		run_blocks(cluster);
		for (int r = 0; r < cluster; r++) {
			if (machines[r]->failed) return machines[r]->message;
		}
	}
	return nullptr;
}
