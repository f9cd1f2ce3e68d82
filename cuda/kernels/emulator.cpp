//go:build cudaemu

// The emulator: blocks as fibers. See emu/emu.h.

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

constexpr size_t most_shared = 227 << 10;   // bytes of shared memory of a block
constexpr size_t between = 2 << 10;         // and between its arrays, at most
constexpr size_t shared_size = (most_shared + between + 1023) / 1024 * 1024;
constexpr size_t stack_size = SANITIZED ? 256 << 10 : 64 << 10;
constexpr int most_threads = 1024, lanes = 32;

enum State { ready, at_barrier, at_exchange, at_point, at_others, at_gate, done };
constexpr int points = 16;  // that threads can meet at

#if defined(__x86_64__)

typedef void* Context;  // the stack pointer; the registers lie on the stack

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
	*--top = nullptr;  // keeps the stack on 16 bytes where entry starts
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
	std::vector<Copy> copies;  // not made yet
	int group;                 // number of the group that is being noted
	char* stack;
	State state;
	int point;         // where it waits
	const void* gate;  // for which it waits
	void* fake;  // the sanitizer's
};

// Warp is where lanes meet: two sets of words in turn, because a fast lane may
// leave its next word before a slow one has read the last.
struct Warp {
	uint64_t words[2][lanes];
	int turn, arrived;
	const char* what;
};

struct Region {
	const void* key;
	size_t offset, size;
};

// Machine is a block that runs.
struct Machine {
	Fiber fibers[most_threads];
	Warp warps[most_threads / lanes];
	Context scheduler;
	std::vector<int> queue;  // of fibers that are ready
	int current, waiting, finished, threads;
	int come[points];  // threads that have come to a point
	int others;        // threads that wait for the other blocks
	dim3 block;
	int rank;  // among the blocks that run together
	std::vector<emu::Bring> brings;

	char* shared;  // on 1024 bytes
	std::vector<Region> regions;
	size_t used, dynamic_size;
	size_t taken, declared;  // bytes of SHARED so far, and what the kernel declares

	const emu::Kernel* kernel;
	const uint64_t* args;
	uint64_t random;  // 0: in order
	int slow;         // warp that runs when hardly another can; -1 for none
	char message[512];
	bool failed;
	const void* outer_stack;
	size_t outer_size;

	Machine() : shared((char*)aligned_alloc(1024, shared_size)) {
		char* all = (char*)mmap(nullptr, most_threads * stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		for (int i = 0; i < most_threads; i++) fibers[i].stack = all + i * stack_size;
	}

	uint64_t next() {
		random ^= random << 13;
		random ^= random >> 7;
		random ^= random << 17;
		return random;
	}
};

Machine* machine;
std::vector<Machine*> machines;  // of blocks that run together; more than there are now
emu::Kernel* kernels;

// leave gives the CPU back to the scheduler.
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

// enter is where a fiber starts.
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

// release makes fibers lo to hi-1, which wait, ready.
void release(int lo, int hi, State from) {
	Machine& m = *machine;
	for (int i = lo; i < hi; i++) {
		if (m.fibers[i].state == from) {
			m.fibers[i].state = ready;
			m.queue.push_back(i);
		}
	}
}

// stuck says why no fiber can run.
void stuck() {
	Machine& m = *machine;
	m.failed = true;
	int barrier = m.waiting, point = 0;
	for (int i = 0; i < m.threads; i++) point += m.fibers[i].state == at_point || m.fibers[i].state == at_others || m.fibers[i].state == at_gate;
	int exchange = m.threads - m.finished - barrier - point;
	const char* what = "";
	for (int w = 0; w < m.threads / lanes; w++) {
		if (m.warps[w].arrived > 0) what = m.warps[w].what;
	}
	snprintf(m.message, sizeof m.message,
		"block %u,%u,%u: %d threads wait at a barrier, %d where some meet, %d at %s and %d have returned", blockIdx.x, blockIdx.y, blockIdx.z,
		barrier, point, exchange, exchange ? what : "a shuffle", m.finished);
}

void start_block() {
	Machine& m = *machine;
	m.queue.clear();
	m.regions.clear();
	m.used = m.dynamic_size;
	m.taken = 0;
	m.waiting = m.finished = m.others = 0;
	m.slow = m.random && m.threads > lanes ? (int)(m.next() % (m.threads / lanes)) : -1;
	memset(m.come, 0, sizeof m.come);
	m.brings.clear();
#if SANITIZED
	__asan_unpoison_memory_region(m.shared, shared_size);
#endif
	memset(m.shared, 0xff, m.dynamic_size + m.declared + between);
#if SANITIZED
	__asan_poison_memory_region(m.shared + m.dynamic_size, shared_size - m.dynamic_size);
#endif
	for (int w = 0; w < m.threads / lanes; w++) m.warps[w].turn = m.warps[w].arrived = 0;
	for (int i = 0; i < m.threads; i++) {
		prepare(m.fibers[i].context, m.fibers[i].stack, enter);
		m.fibers[i].state = ready;
		m.fibers[i].copies.clear();
		m.fibers[i].group = 0;
		m.queue.push_back(i);
	}
}

// run_ready runs a block until all of its threads wait for something or have returned.
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
	if (!m.brings.empty() && !m.failed && m.finished == m.threads) {
		m.failed = true;
		snprintf(m.message, sizeof m.message, "block %u,%u,%u: nobody has waited for %zu panels", blockIdx.x, blockIdx.y, blockIdx.z, m.brings.size());
	}
}

// run_blocks runs the first n blocks of machines together. They wait for each other where
// all threads that have not returned do.
void run_blocks(int n) {
	for (int i = 0; i < n; i++) {
		machine = machines[i];
		start_block();
	}
	for (;;) {
		bool ran = false;
		int left = 0, others = 0;
		for (int i = 0; i < n; i++) {
			machine = machines[i];
			ran |= !machine->queue.empty();
			run_ready();
			if (machine->failed) return;
			left += machine->threads - machine->finished;
			others += machine->others;
		}
		if (left == 0) return;
		for (int i = 0; i < n && (others == left || !ran); i++) {
			machine = machines[i];
			if (others < left && machine->others < machine->threads - machine->finished) {
				stuck();
				return;
			}
			if (others < left) continue;
			machine->others = 0;
			release(0, machine->threads, at_others);
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

void wait_blocks() {
	Machine& m = *machine;
	m.fibers[m.current].state = at_others;
	m.others++;
	leave(false);
}

int rank() { return machine->rank; }

const void* other(const void* at, int rank) {
	Machine& m = *machine;
	size_t offset = (const char*)at - m.shared;
	if (offset >= m.used) stop("%p is no shared memory", at);
	const Machine& o = *machines[rank];
	if (o.finished == o.threads) stop("block %d of those that run together has returned", rank);
	return o.shared + offset;
}

void come(int point, int n, bool wait) {
	Machine& m = *machine;
	if (point < 1 || point >= points || n % lanes) stop("%d threads meet at point %d", n, point);
	if (++m.come[point] == n) {
		m.come[point] = 0;
		for (int i = 0; i < m.threads; i++) {
			Fiber& f = m.fibers[i];
			if (f.state != at_point || f.point != point) continue;
			f.state = ready;
			m.queue.push_back(i);
		}
		return;
	}
	if (!wait) return;
	m.fibers[m.current].point = point;
	m.fibers[m.current].state = at_point;
	leave(false);
}

void wait_gate(const void* gate) {
	Fiber& f = machine->fibers[machine->current];
	f.gate = gate;
	f.state = at_gate;
	leave(false);
}

void open(const void* gate) {
	Machine& m = *machine;
	for (int i = 0; i < m.threads; i++) {
		Fiber& f = m.fibers[i];
		if (f.state != at_gate || f.gate != gate) continue;
		f.state = ready;
		m.queue.push_back(i);
	}
}

void bring_later(const Bring& b) {
	machine->brings.push_back(b);
	open(b.gate);
}

bool brought(const void* gate, Bring& b) {
	auto& all = machine->brings;
	for (size_t i = 0; i < all.size(); i++) {
		if (all[i].gate != gate) continue;
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
	if (w.arrived > 0 && w.what != what) stop("%s meets %s in its warp", what, w.what);
	w.what = what;
	uint64_t* words = w.words[w.turn];
	words[at - first] = word;
	if (++w.arrived == lanes) {
		w.arrived = 0;
		w.turn ^= 1;
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
	if (m.taken > m.declared || m.used > m.dynamic_size + m.declared + between) stop("%zu bytes of shared memory are declared, sizes.txt has %zu: make test-driver says how it is brought up to date", m.taken, m.declared);
	m.regions.push_back({key, offset, size});
#if SANITIZED
	__asan_unpoison_memory_region(m.shared + offset, size);
	m.used += 32;  // stays poisoned
#endif
	return m.shared + offset;
}

bool early() { return machine->random && machine->next() % 2; }

void copy_later(void* to, const void* from) {
	Fiber& f = machine->fibers[machine->current];
	Copy c = {to, from, f.group};
	if (early())
		make(c);
	else
		f.copies.push_back(c);
}

void copy_group() { machine->fibers[machine->current].group++; }

void copy_now(int left) {
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

// What the compiler puts before accesses (-fsanitize=alignment) calls this where the address
// is none for the type: on a GPU such an access ends the launch.
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
	int together = g.together ? (int)g.together : 1;
	while ((int)machines.size() < together) machines.push_back(new Machine);
	Machine& m = *machines[0];
	m.kernel = (emu::Kernel*)kernel;
	if (n * 8 != (size_t)m.kernel->size) {
		snprintf(m.message, sizeof m.message, "%zu words of arguments, want %d", n, m.kernel->size / 8);
		return m.message;
	}
	if (g.threads == 0 || g.threads % lanes || g.threads > most_threads || g.shared > most_shared) {
		snprintf(m.message, sizeof m.message, "%u threads with %zu bytes of shared memory, the emulator wants a multiple of 32 and at most %d and %zu", g.threads, g.shared, most_threads, most_shared);
		return m.message;
	}
	for (int i = 0; i < together; i++) {
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
	uint64_t blocks = (uint64_t)g.x * g.y * g.z / together;  // or clusters of them
	uint64_t step = 1;
	if (m.random && blocks > 1) {  // a stride that shares no factor with the number of blocks visits each once
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
		for (int r = 0; r < together; r++) machines[r]->block = {(unsigned)(at % g.x), (unsigned)(at / g.x % g.y), (unsigned)(at / g.x / g.y * together + r)};
		run_blocks(together);
		for (int r = 0; r < together; r++) {
			if (machines[r]->failed) return machines[r]->message;
		}
	}
	return nullptr;
}
