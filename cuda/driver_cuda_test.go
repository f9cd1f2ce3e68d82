//go:build cuda && !cudaemu

package cuda

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"gorgonia.org/cu"

	"github.com/gollm/gollm/cuda/kernels"
	"github.com/gollm/gollm/device"
)

// childOf names the part of a test that its child process runs, with the driver of
// testdata/driver.c.
const childOf = "GOLLM_TEST_DRIVER"

// withDriver runs the calling test again in a process that finds the driver of
// testdata/driver.c, and is what that prints.
func withDriver(t *testing.T, part string, env ...string) string {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("the driver of this test is compiled with cc, which is not there")
	}
	dir := t.TempDir()
	out, err := exec.Command(compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", filepath.Join(dir, "libcuda.so.1"), "testdata/driver.c").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	c := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	c.Env = append(os.Environ(), append(env, "LD_LIBRARY_PATH="+dir, childOf+"="+part)...)
	out, err = c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", part, err, out)
	}
	return string(out)
}

// TestDriverOnAnyThread: goroutines move between threads, and every call sets the context of its
// thread.
func TestDriverOnAnyThread(t *testing.T) {
	if os.Getenv(childOf) == "" {
		withDriver(t, "calls")
		if start() != nil {
			return // no GPU
		}
	}
	d, err := openDriver(0)
	if err != nil {
		t.Fatal(err)
	}
	at, err := d.alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	var (
		buffer  = make([]byte, 64)
		host    hostMemory
		a, b    event
		f       function
		g       *driverGraph
		capture = func() error {
			if err := d.begin(); err != nil {
				return err
			}
			if err := d.record(a); err != nil {
				return err
			}
			g, err = d.end()
			return err
		}
		words = make([]uint64, 32)
	)
	clean := func(pdl bool) error { // a kernel that copies nothing
		return d.launch(f, blocks{1, 1, 1}, 32, 32<<10, 1, pdl, words)
	}
	calls := []struct {
		methods string
		call    func() error
	}{
		{"available", func() error {
			if d.available() == 0 {
				return fmt.Errorf("no memory is free")
			}
			return nil
		}},
		{"write", func() error { return d.write(at, buffer) }},
		{"copy", func() error { return d.copy(at+64, at, 64) }},
		{"read", func() error { return d.read(buffer, at) }},
		{"allocHost", func() (err error) { host, err = d.allocHost(64); return err }},
		{"freeHost", func() error { return d.freeHost(host) }},
		{"find", func() (err error) { f, err = d.find("copy"); return err }},
		{"staticShared", func() error { _, err := d.staticShared(f); return err }},
		{"allowShared", func() error { return d.allowShared(f, 64<<10) }},
		{"launch", func() error { return clean(false) }},
		{"launch", func() error { return clean(true) }},
		{"tensorMap", func() error { _, err := d.tensorMap(at, 64, 128); return err }},
		{"newEvent", func() (err error) { a, err = d.newEvent(); return err }},
		{"newEvent", func() (err error) { b, err = d.newEvent(); return err }},
		{"record", func() error { return d.record(a) }},
		{"record", func() error { return d.record(b) }},
		{"wait", func() error { return d.wait(b) }},
		{"elapsed", func() error { _, err := d.elapsed(a, b); return err }},
		{"begin end", capture},
		{"launch", func() error { return g.launch() }},
		{"sync", d.sync},
		{"close", func() error { return g.close() }},
		{"prepare", func() error { d.prepare(); return nil }},
		{"freeEvent", func() error { return d.freeEvent(a) }},
		{"freeEvent", func() error { return d.freeEvent(b) }},
		{"alloc", func() error { _, err := d.alloc(64); return err }},
		{"free", func() error { return d.free(at) }},
		{"close", d.close},
	}
	tried := map[string]bool{}
	for _, c := range calls {
		for _, name := range strings.Fields(c.methods) {
			tried[name] = true
		}
		if err := onBareThread(c.call); err != nil {
			t.Errorf("%s on a thread without a context: %v", c.methods, err)
		}
	}
	if missing := slices.DeleteFunc(methodsThatCall(t), func(name string) bool { return tried[name] }); len(missing) > 0 {
		t.Errorf("not tried: %v", missing)
	}
}

// onBareThread calls a function on a thread that has no context.
func onBareThread(call func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(cu.CUContext{}); err != nil {
		return err
	}
	return call()
}

// methodsThatCall are the methods of driver and driverGraph in driver_cuda.go that
// call the driver, but for those that open it.
func methodsThatCall(t *testing.T) []string {
	const file = "driver_cuda.go"
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	tree, err := parser.ParseFile(set, file, source, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, declared := range tree.Decls {
		f, ok := declared.(*ast.FuncDecl)
		if !ok || f.Recv == nil {
			continue
		}
		body := string(source[set.Position(f.Body.Pos()).Offset:set.Position(f.Body.End()).Offset])
		if strings.Contains(body, "d.do(") || strings.Contains(body, "result(C.") {
			found[f.Name.Name] = true
		}
	}
	if len(found) < 15 {
		t.Fatalf("%d methods, which is too few: %v", len(found), found)
	}
	return slices.Sorted(maps.Keys(found))
}

// TestOpenErrors: what opening the device reports where the driver fails.
func TestOpenErrors(t *testing.T) {
	if os.Getenv(childOf) != "" {
		index, _ := strconv.Atoi(os.Getenv("DEVICE_INDEX"))
		d, err := Open(device.Config{Index: index})
		if err == nil {
			err = d.Close()
		}
		fmt.Println(err)
		return
	}
	for _, c := range []struct{ env, want string }{
		{"DRIVER_MAJOR=9", "<nil>"},
		{"DRIVER_FAILS=cuMemsetD8Async=700", "cuda: 0.0 MiB (40 bytes) are needed, 81920.0 MiB are free on the device: CUDA_ERROR: words"},
		{"DRIVER_FAILS=cuMemHostGetDevicePointer_v2=999", "cuda: CUDA_ERROR: words"},
		{"DRIVER_FAILS=cuStreamCreate=999", "cuda: GPU 0: CUDA_ERROR: words"},
		{"DRIVER_FAILS=cuInit=100", "cuda: the NVIDIA driver finds no GPU"},
		{"DRIVER_FAILS=cuInit=803", "cuda: the NVIDIA driver does not start: CUDA_ERROR: words"},
		{"DEVICE_INDEX=1", "cuda: no GPU 1: there is one, cuda:0"},
		{"DRIVER_MAJOR=7", "cuda: GPU 0: a card has compute capability 7.0, want 8.0 or more"},
		{"DRIVER_FAILS=cuModuleLoadData=222", "cuda: GPU 0: the kernels do not load into driver 13.0: CUDA_ERROR: words; a newer driver is needed, or a build with an older CUDA"},
		{"DRIVER_FAILS=cuMemAlloc_v2=2", "cuda: 0.0 MiB (40 bytes) are needed, 81920.0 MiB are free on the device: CUDA_ERROR_OUT_OF_MEMORY: words"},
	} {
		held, got := "0", ""
		for line := range strings.Lines(withDriver(t, "open", c.env, "DRIVER_COUNTS=1")) {
			if n, counts := strings.CutPrefix(line, "held: "); counts {
				held = strings.TrimSpace(n)
			} else if got == "" {
				got = strings.TrimSpace(line)
			}
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.env, got, c.want)
		}
		if held != "0" {
			t.Errorf("%s: %s contexts and allocations are not freed", c.env, held)
		}
	}
}

// TestClusterLaunches: a launch in clusters is one, programmatic dependent or not.
func TestClusterLaunches(t *testing.T) {
	if os.Getenv(childOf) != "" {
		opened, err := Open(device.Config{})
		if err != nil {
			t.Fatal(err)
		}
		d := opened.(*dev)
		d.ops.launch("softmax_states").inClusters(2).run(blocks{1, 1, 4}, 256)
		d.ops.launch("softmax_states").inClusters(4).pdlEarly().run(blocks{1, 1, 4}, 256)
		d.ops.launch("softmax_states").pdlEarly().run(blocks{1, 1, 4}, 256)
		fmt.Println(d.Close())
		return
	}
	got := withDriver(t, "clusters", "DRIVER_CLUSTERS=1")
	if want := "cluster: 2\ncluster: 4\n<nil>"; !strings.HasPrefix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestSharedMemory: the limit of a kernel's dynamic shared memory is raised where static and
// dynamic exceed 48 KB, and nowhere else; more than the GPU has is an error with the numbers.
func TestSharedMemory(t *testing.T) {
	if os.Getenv(childOf) != "" {
		opened, err := Open(device.Config{})
		if err != nil {
			t.Fatal(err)
		}
		d := opened.(*dev)
		for _, shared := range strings.Fields(os.Getenv("DYNAMIC")) {
			n, _ := strconv.Atoi(shared)
			d.ops.launch("softmax_states").runShared(blocks{1, 1, 1}, 256, n)
			if err := d.Sync(); err != nil {
				fmt.Println(err)
			}
		}
		fmt.Println(d.Close())
		return
	}
	for _, c := range []struct{ static, dynamic, want string }{
		{"0", "0 49152", ""},
		{"8720", "40432 40000", ""}, // static of softmax_states, and 48 KB in all
		{"8720", "40433 40433 0", "allowed: 40433"},
		{"8720", "41216 61696 41216", "allowed: 41216,allowed: 61696"}, // heads of 128 and of 192
		{"49152", "1", "allowed: 1"},
		{"8720", "223728", "allowed: 223728"},
		{"8720", "223729", "cuda: kernel softmax_states: a block needs 232449 bytes of shared memory (8720 static, 223729 dynamic), the GPU has 232448"},
	} {
		got := withDriver(t, "shared", "DRIVER_STATIC="+c.static, "DYNAMIC="+c.dynamic)
		if lines := strings.Split(got, "\n"); strings.Join(lines[:slices.Index(lines, "<nil>")], ",") != c.want {
			t.Errorf("%s static, %s dynamic: %s, want %s", c.static, c.dynamic, got, c.want)
		}
	}
}

// TestKernelSizes: the emulator refuses launches by the sizes that the kernels have in the fat
// binary of make cuda's own compiler.
func TestKernelSizes(t *testing.T) {
	const made, kept, compiledBy = "../build/cuda/sizes.txt", "kernels/sizes.txt", "../build/cuda/compiled-by"
	compiler, err := os.ReadFile(compiledBy)
	if err != nil || !strings.HasPrefix(string(compiler), "build/cuda/toolkit/bin/nvcc ") {
		t.Skipf("%s: %q: the kernels are another compiler's", compiledBy, compiler)
	}
	want := kernelSizes(t, []byte(kernels.Image))
	got, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) == want {
		return
	}
	if err := os.WriteFile(made, []byte(want), 0o666); err != nil {
		t.Fatal(err)
	}
	t.Errorf("the kernels have other sizes than cuda/%s says: cp build/cuda/sizes.txt cuda/%s", kept, kept)
}

// decompressed is a part of a fat binary that has so many bytes.
func decompressed(t *testing.T, part []byte, size uint64) []byte {
	t.Helper()
	d, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	whole, err := d.DecodeAll(part, nil)
	if err != nil || uint64(len(whole)) != size {
		t.Fatalf("a part of the fat binary has %d bytes, want %d: %v", len(whole), size, err)
	}
	return whole
}

// sizeColumns are the columns of sizes.txt by the compute capability of code.
var sizeColumns = map[uint32]int{80: 0, 89: 1, 90: 2}

// kernelSizes is what sizes.txt has of a fat binary: behind a header of 16 bytes are parts,
// each with a header that tells its kind, its own length and that of what follows, and what
// GPU it is for. Machine code is ELF; nvcc compresses what is longer than some ten megabytes
// with zstd, and the header then has the lengths before and after.
func kernelSizes(t *testing.T, image []byte) string {
	t.Helper()
	const head, machine = 16, 2
	sizes := map[string]*[3][2]uint64{} // by kernel and column: bytes of shared memory, registers
	for rest := image[head:]; len(rest) > 0; {
		kind, header, size := binary.LittleEndian.Uint16(rest), binary.LittleEndian.Uint32(rest[4:]), binary.LittleEndian.Uint64(rest[8:])
		column, known := sizeColumns[binary.LittleEndian.Uint32(rest[28:])]
		if kind == machine && known {
			part := rest[header : uint64(header)+size]
			if whole := binary.LittleEndian.Uint64(rest[56:]); whole > 0 {
				part = decompressed(t, part[:binary.LittleEndian.Uint32(rest[16:])], whole)
			}
			code, err := elf.NewFile(bytes.NewReader(part))
			if err != nil {
				t.Fatal(err)
			}
			addSizes(t, sizes, code, column)
		}
		rest = rest[uint64(header)+size:]
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		fmt.Fprint(&text, name)
		for _, of := range sizes[name] {
			fmt.Fprintf(&text, " %d %d", of[0], of[1])
		}
		fmt.Fprintln(&text)
	}
	return text.String()
}

// addSizes adds what machine code says of its kernels: a section's size is that of a kernel's
// shared memory, with what compute capability 9.0 keeps for itself, and a table has the
// registers by symbol.
func addSizes(t *testing.T, sizes map[string]*[3][2]uint64, code *elf.File, column int) {
	t.Helper()
	const prefix, reserved, registers = "gollm_", 1024, 0x2f04
	of := func(name string) *[2]uint64 {
		if sizes[name] == nil {
			sizes[name] = new([3][2]uint64)
		}
		return &sizes[name][column]
	}
	for _, s := range code.Sections {
		if name, ok := strings.CutPrefix(s.Name, ".nv.shared."+prefix); ok {
			if of(name)[0] = s.Size; sizeColumns[90] == column {
				of(name)[0] -= reserved
			}
		}
	}
	symbols, err := code.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	info, err := code.Section(".nv.info").Data()
	if err != nil {
		t.Fatal(err)
	}
	for len(info) > 0 { // a format, what it tells, and here the length of what follows
		word := binary.LittleEndian.Uint16
		if info[0] != 4 {
			info = info[4:]
			continue
		}
		if word(info) == registers {
			symbol := symbols[binary.LittleEndian.Uint32(info[4:])-1]
			if name, ok := strings.CutPrefix(symbol.Name, prefix); ok {
				of(name)[1] = uint64(binary.LittleEndian.Uint32(info[8:]))
			}
		}
		info = info[4+word(info[2:]):]
	}
}

// TestWGMMA: without code for sm_90a, wgmma is not used.
func TestWGMMA(t *testing.T) {
	if os.Getenv(childOf) != "" {
		d, err := openDriver(0)
		fmt.Println(err == nil && d.hasWGMMA())
		return
	}
	for env, want := range map[string]string{"DRIVER_MAJOR=9": "true", "DRIVER_MAJOR=8": "false", "DRIVER_LACKS=gollm_wgmma_probe": "false"} {
		if got, _, _ := strings.Cut(withDriver(t, "wgmma", env), "\n"); got != want {
			t.Errorf("%s: %s, want %s", env, got, want)
		}
	}
}

// TestNoDriver: a driver library that does not load is named.
func TestNoDriver(t *testing.T) {
	if os.Getenv(childOf) != "" {
		_, err := Open(device.Config{})
		fmt.Println(err)
		return
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "libcuda.so.1")
	if err := os.WriteFile(path, []byte("no library"), 0o666); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, childOf+"=open")
	out, err := c.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "cuda: the NVIDIA driver does not load: "+path) {
		t.Errorf("%v: %s", err, out)
	}
}
