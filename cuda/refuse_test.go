//go:build cudaemu

package cuda

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/cuda/kernels"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
	"github.com/gollm/gollm/device/sampling"
)

// openCard opens a device that emulates a GPU.
func openCard(t *testing.T, c Card) *dev {
	t.Helper()
	Emulate(&c)
	defer Emulate(nil)
	d := openTest(t).(*dev)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestRefusals: the emulator refuses the launches that a driver refuses, with the same error.
func TestRefusals(t *testing.T) {
	const static = 8 << 10
	hopper := Card{Major: 9, Shared: 227 << 10, Multiprocessors: 132, Memory: 1 << 30, Idle: true}
	ampere := Card{Major: 8, Shared: 163 << 10, Multiprocessors: 108, Memory: 1 << 30, Idle: true}
	one := blocks{1, 1, 1}
	for _, c := range []struct {
		what             string
		card             Card
		at               blocks
		threads, dynamic int
		cluster          int
		allow            int // bytes that an attribute allows, -1 for none
		registers        int
		want             error
	}{
		{"all that there is", hopper, blocks{1<<31 - 1, 65535, 65535}, 256, 219 << 10, 1, 219 << 10, 255, nil},
		{"no blocks", hopper, blocks{0, 1, 1}, 256, 0, 0, -1, 32, errValue},
		{"blocks in x", hopper, blocks{1 << 31, 1, 1}, 256, 0, 0, -1, 32, errValue},
		{"blocks in y", hopper, blocks{1, 65536, 1}, 256, 0, 0, -1, 32, errValue},
		{"blocks in z", hopper, blocks{1, 1, 65536}, 256, 0, 0, -1, 32, errValue},
		{"no threads", hopper, one, 0, 0, 0, -1, 32, errValue},
		{"threads of the launch bounds", hopper, one, 288, 0, 0, -1, 32, errValue},
		{"threads of the registers", hopper, one, 256, 0, 0, -1, 257, errResources},
		{"48 KB", hopper, one, 256, 40 << 10, 0, -1, 32, nil},
		{"more than 48 KB with what is declared", hopper, one, 256, 40<<10 + 1, 0, -1, 32, errValue},
		{"more than is allowed", hopper, one, 256, 100<<10 + 1, 0, 100 << 10, 32, errValue},
		{"a cluster of 8", hopper, blocks{1, 1, 16}, 256, 0, 8, -1, 32, nil},
		{"a cluster of 16", hopper, blocks{1, 1, 16}, 256, 0, 16, -1, 32, errCluster},
		{"part of a cluster", hopper, blocks{1, 1, 12}, 256, 0, 8, -1, 32, errCluster},
		{"clusters before compute capability 9.0", ampere, blocks{1, 1, 2}, 256, 0, 2, -1, 32, errCluster},
	} {
		d := openCard(t, c.card)
		d.drv.sizes["softmax_states"] = size{static, c.registers}
		k, err := d.kernel("softmax_states")
		if err != nil {
			t.Fatal(err)
		}
		if c.allow >= 0 {
			if err := d.drv.allowShared(k.function, c.allow); err != nil {
				t.Errorf("%s: %v", c.what, err)
			}
		}
		if err := d.drv.launch(k.function, c.at, c.threads, c.dynamic, c.cluster, false, nil); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
	d := openCard(t, ampere)
	d.drv.sizes["softmax_states"] = size{static, 32}
	k, err := d.kernel("softmax_states")
	if err != nil {
		t.Fatal(err)
	}
	for bytes, want := range map[int]error{155 << 10: nil, 155<<10 + 1: errValue} {
		if err := d.drv.allowShared(k.function, bytes); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("an attribute of %d bytes with %d static: %v, want %v", bytes, static, err, want)
		}
	}
	for at, want := range map[uintptr]error{16: nil, 24: errValue} {
		if _, err := d.drv.tensorMap(at, 64, 128); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("a tensor map at %d: %v, want %v", at, err, want)
		}
	}
	if _, err := d.drv.tensorMap(16, 64, 100); !errors.Is(err, errValue) {
		t.Errorf("a tensor map of rows of 200 bytes: %v", err)
	}
}

// TestMisalignedAddress: an access that is not aligned to its size ends a launch, as on a GPU.
func TestMisalignedAddress(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	const k = 64
	rng := rand.New(rand.NewPCG(1, 2))
	x, w := alloc(t, d, device.F32, 2*k), alloc(t, d, device.F32, k)
	d.Write(x, normal(rng, 2*k))
	for _, from := range []int{0, 1, 2, 4} {
		d.ops.launch("to_f16_rmsnorm").word(uint64(d.operands.at)).word(uint64(d.address(x))+uint64(4*from)).tensor(w).int(k).
			float(1e-5).run(blocks{1, 1, 1}, 256)
		err := d.Sync()
		if from%4 == 0 && err != nil || from%4 != 0 && (err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_MISALIGNED_ADDRESS")) {
			t.Errorf("from number %d on: %v", from, err)
		}
	}
	// 4 bytes at a time through the compiler's own checks
	d.ops.launch("add").tensor(x).word(uint64(d.address(w))+2).int(8, 8).run(blocks{1, 1, 1}, 256)
	if err := d.Sync(); err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_MISALIGNED_ADDRESS") {
		t.Errorf("numbers on 2 bytes: %v", err)
	}
}

// TestDeclared: a kernel with more static shared memory than sizes.txt says is an error.
func TestDeclared(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	d.drv.sizes["rmsnorm"] = size{static: 8, registers: 32}
	x := alloc(t, d, device.F32, 2, 300)
	device.Do(d.ops, device.RMSNorm{Dst: x, X: x, W: alloc(t, d, device.F32, 300), Eps: 1e-5})
	if err := d.Sync(); err == nil || !strings.Contains(err.Error(), "sizes.txt") {
		t.Errorf("%v", err)
	}
}

// TestSizes: sizes.txt has a line for every kernel, and no other.
func TestSizes(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	names := kernels.Names()
	for _, name := range names {
		if _, err := d.kernel(name); err != nil {
			t.Error(err)
		}
	}
	for name := range d.drv.sizes {
		if name != "wgmma_probe" && name != "late_copies" && !slices.Contains(names, name) {
			t.Errorf("sizes.txt has %s, which is no kernel", name)
		}
	}
}

// TestProductsAtUserShapes: every launch of the products of Llama-3.1-8B and of sampling its
// tokens is legal on every kind of GPU. Nothing is computed.
func TestProductsAtUserShapes(t *testing.T) {
	const dim, ff, kv, vocab = 4096, 14336, 1024, 128256
	for _, card := range []Card{
		{Major: 8, Shared: 163 << 10, Multiprocessors: 108, Memory: 80 << 30, Idle: true},
		{Major: 8, Minor: 9, Shared: 99 << 10, Multiprocessors: 142, Memory: 48 << 30, Idle: true},
		{Major: 9, Shared: 227 << 10, Multiprocessors: 132, Memory: 141 << 30, Idle: true},
	} {
		d := openCard(t, card)
		for _, dt := range []device.DType{device.F32, device.F16, device.BF16, device.Q4_0, device.Q5_0, device.Q8_0, device.Q4_K, device.Q5_K, device.Q6_K} {
			productsOf(t, d, dt, dim, ff, kv, vocab)
			if err := d.Sync(); err != nil {
				t.Errorf("%d.%d, %v: %v", card.Major, card.Minor, dt, err)
			}
		}
	}
}

// productsOf queues the products of a layer and the head, from one row to a prefill chunk, and
// samples tokens.
func productsOf(t *testing.T, d *dev, dt device.DType, dim, ff, kv, vocab int) {
	t.Helper()
	free, err := d.Scope(func() error {
		weight := func(n, k int) device.Tensor { return alloc(t, d, dt, n, k) }
		q, k, o, gateUp, down, head := weight(dim, dim), weight(kv, dim), weight(dim, dim), weight(ff, dim), weight(dim, ff), weight(vocab, dim)
		n := devtest.Norm{W: alloc(t, d, device.F32, dim), Eps: 1e-5}
		for _, rows := range []int{1, 2, 7, 8, 9, 16, 17, 32, 33, 63, 64, 512, 2048, 8192} {
			f := func(n int) device.Tensor { return alloc(t, d, device.F32, rows, n) }
			i := func(dims ...int) device.Tensor { return alloc(t, d, device.I32, append([]int{rows}, dims...)...) }
			x, y, z, u, v, wide := f(dim), f(dim), f(kv), f(kv), f(ff), f(ff)
			devtest.NormProducts(d.ops, []device.Tensor{y, z, u}, x, n, []device.Tensor{q, k, k}, y)
			devtest.AddProduct(d.ops, x, y, o, y)
			devtest.Feed(d.ops, []device.Tensor{v, wide}, x, n, []device.Tensor{gateUp, gateUp, down}, y)
			devtest.NormSwiGLU(d.ops, []device.Tensor{v, wide}, x, n, []device.Tensor{gateUp, gateUp}, y)
			if rows <= 64 {
				logits := f(vocab)
				device.Do(d.ops, device.MatMul{Dst: logits, X: x, W: head})
				for _, s := range []sampling.Params{{}, {Temperature: 1, TopP: 0.9}, {Temperature: 1, TopK: 40, RepeatPenalty: 1.1}} {
					device.Do(d.ops, device.SampleTokens{Next: i(), Logits: logits, History: i(64), Pos: i(), Params: slices.Repeat([]sampling.Params{s}, rows)})
				}
			}
		}
		return nil
	})
	if err == nil {
		err = free()
	}
	if err != nil {
		t.Error(err)
	}
}
