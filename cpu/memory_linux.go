package cpu

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// adviseHuge asks for transparent huge pages: reading a KV cache of gigabytes in 4 KiB pages
// costs TLB misses. A refusal costs only speed.
func adviseHuge(b []byte) {
	const hugePages = 14 // MADV_HUGEPAGE
	_ = syscall.Madvise(b, hugePages)
}

// availableMemory is how many bytes could be used without swapping or an out-of-memory kill:
// what the system has, or what is left of this process's cgroup if that is less. 0 is unknown.
func availableMemory() uint64 {
	free := memAvailable("/proc/meminfo")
	limit, used := readNumber("/sys/fs/cgroup/memory.max"), readNumber("/sys/fs/cgroup/memory.current")
	if limit > used && used > 0 {
		free = min(free, limit-used)
	}
	return free
}

// memAvailable is the line "MemAvailable: 123 kB" in bytes.
func memAvailable(path string) uint64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if rest, ok := strings.CutPrefix(s.Text(), "MemAvailable:"); ok {
			kb, _ := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10
		}
	}
	return 0
}

// readNumber is the number that a file holds, 0 if it holds none.
func readNumber(path string) uint64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	return n
}
