package devtest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/gollm/gollm/device"
)

// aliases checks that calls which are nearly a sequence of those that backends fuse, but
// whose operands share memory, compute what they compute one by one.
func aliases(t *testing.T, d device.Device) {
	for _, rows := range []int{1, 5, 64} {
		for name, c := range aliasCases {
			t.Run(fmt.Sprintf("%s/rows=%d", name, rows), func(t *testing.T) {
				one, all := newBed(t, d), newBed(t, d)
				apart := one.after(c(one, rows), one.sync)
				if together := all.after(c(all, rows), func() {}); !bytes.Equal(apart, together) {
					t.Error("calls give other bits together than one by one")
				}
			})
		}
	}
}

// after is the contents of all tensors after calls, with something between each two.
func (b *bed) after(calls []func(q device.Queue), between func()) (all []byte) {
	b.t.Helper()
	for _, c := range calls {
		c(b.d.Queue())
		between()
	}
	b.sync()
	for _, c := range b.first {
		all = append(all, b.raw(c.t)...)
	}
	return all
}

// queued is a call as [bed.after] takes it.
func queued[T any, C interface {
	*T
	device.Call
}](c T) func(device.Queue) {
	return func(q device.Queue) { device.Do[T, C](q, c) }
}

const aliasDim = 256

// aliasCases make calls whose operands share memory.
var aliasCases = map[string]func(b *bed, rows int) []func(device.Queue){
	"product of a norm over what was normalized": func(b *bed, rows int) []func(device.Queue) {
		x, d := b.rows(rows), b.scratch(rows)
		return append(b.norm(d, x), queued(device.MatMul{Dst: x, X: d, W: b.square()}), queued(device.Discard{T: d}))
	},
	"gate of a norm over what was normalized": func(b *bed, rows int) []func(device.Queue) {
		x, d, up := b.rows(rows), b.scratch(rows), b.scratch(rows)
		return append(b.norm(d, x), queued(device.MatMul{Dst: x, X: d, W: b.square()}), queued(device.MatMul{Dst: up, X: d, W: b.square()}),
			queued(device.Discard{T: d}), queued(device.SwiGLU{Dst: x, Gate: x, Up: up}), queued(device.Discard{T: up}))
	},
	"products of a norm with each other": func(b *bed, rows int) []func(device.Queue) {
		x, d := b.rows(rows), b.scratch(rows)
		y := b.rows(rows)
		return append(b.norm(d, x), queued(device.MatMul{Dst: y, X: d, W: b.square()}), queued(device.MatMul{Dst: b.out(rows, rows), X: d, W: y}), queued(device.Discard{T: d}))
	},
	"product of a norm with itself": func(b *bed, rows int) []func(device.Queue) {
		x, d := b.rows(rows), b.scratch(rows)
		return append(b.norm(d, x), queued(device.MatMul{Dst: b.out(rows, rows), X: d, W: d}), queued(device.Discard{T: d}))
	},
	"product added to what was multiplied": func(b *bed, rows int) []func(device.Queue) {
		x, p := b.rows(rows), b.scratch(rows)
		return []func(device.Queue){queued(device.MatMul{Dst: p, X: x, W: b.square()}), queued(device.Add{Dst: x, X: p}), queued(device.Discard{T: p})}
	},
	"products over each other": func(b *bed, rows int) []func(device.Queue) {
		x, y := b.rows(rows), b.rows(rows)
		return []func(device.Queue){queued(device.MatMul{Dst: y, X: x, W: b.square()}), queued(device.MatMul{Dst: y, X: x, W: b.square()})}
	},
	"product with the product before": func(b *bed, rows int) []func(device.Queue) {
		x, y := b.rows(rows), b.rows(rows)
		return []func(device.Queue){queued(device.MatMul{Dst: y, X: x, W: b.square()}), queued(device.MatMul{Dst: b.out(rows, rows), X: x, W: y})}
	},
	"rotation of what was rotated": func(b *bed, rows int) []func(device.Queue) { return b.turns(rows, true, false) },
	"keys that are the values":     func(b *bed, rows int) []func(device.Queue) { return b.turns(rows, false, true) },
}

// rows are random.
func (b *bed) rows(n int) device.Tensor { return b.f32(b.normal(n*aliasDim), n, aliasDim) }

// scratch is rows that are not compared, since calls discard them.
func (b *bed) scratch(n int) device.Tensor {
	b.t.Helper()
	x, err := b.d.Alloc(device.F32, n, aliasDim)
	if err != nil {
		b.t.Fatalf("Alloc: %v", err)
	}
	return x
}

// square is a matrix that keeps the length of rows.
func (b *bed) square() device.Tensor {
	return b.weights(device.F16, b.matrix(device.F16, aliasDim, aliasDim), aliasDim, aliasDim)
}

// norm makes d the norm of x.
func (b *bed) norm(d, x device.Tensor) []func(device.Queue) {
	return []func(device.Queue){queued(device.RMSNorm{Dst: d, X: x, W: b.f32(filled(aliasDim, 1.5), aliasDim), Eps: 1e-5})}
}

// turns rotates and stores keys, which are the queries or the values too.
func (b *bed) turns(rows int, queries, values bool) []func(device.Queue) {
	a := attention{heads: 4, kvHeads: 4, dim: 64, lens: []int{rows + 5}, rows: rows, full: true}
	kv, t := b.cacheOf(&a), newTurning(a, a.dim/2, true)
	pos, r := t.tensors(b)
	of := func(x device.Tensor) device.Tensor { return x.Reshape(rows, a.heads, a.dim) }
	k := of(b.rows(rows))
	q, v := k, k
	if !queries {
		q = of(b.rows(rows))
	}
	if !values {
		v = of(b.rows(rows))
	}
	return []func(device.Queue){
		queued(device.Rope{X: q, Pos: pos, Rotation: r}), queued(device.Rope{X: k, Pos: pos, Rotation: r}),
		queued(device.Append{KV: kv, K: k, V: v}),
	}
}
