//go:build cuda || cudaemu

package cuda

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

// hash gives a Hash of a cache with kvHeads heads.
func (c *call) hash(h device.Hash, kvHeads int) *call {
	return c.tensor(h.Planes).tensor(h.Codes).tensor(h.Norm).tensor(h.Center).tensor(h.Since).tensor(h.Done).
		int(h.Planes.Dim(0), h.Tables, h.MinCollisions, h.Codes.Dim(1)/kvHeads, h.Norm.Dim(2)).
		bool(h.Mean).bool(h.Queries).int(h.Sink, h.Recent)
}

// checkDim panics for heads that no kernel has room for.
func checkDim(op string, dim int) {
	if dim > maxDim {
		device.Check(false, op, "heads of %d, want at most %d", dim, maxDim)
	}
}

// keyHashes makes the codes of positions that have none.
func (o *ops) keyHashes(h device.Hash, kv device.KV) {
	const op = "KeyHashes"
	checkDim(op, kv.K.Dim(3))
	heads, slots := kv.K.Dim(1), kv.Len.Dim(0)
	o.call("hash_center").hash(h, heads).pages(kv, 1).run(blocks{heads, slots, 1}, 1024)
	o.call("hash_codes").hash(h, heads).pages(kv, 1).run(blocks{heads, slots, parts(kv)}, 256)
	o.call("hash_done").hash(h, heads).pages(kv, 1).run(blocks{slots, 1, 1}, 32)
}

// collisions lists the positions that collide with each row's queries.
func (o *ops) collisions(l device.List, h device.Hash, q device.Tensor, kv device.KV, p device.Plan) {
	const op = "Collisions"
	checkDim(op, q.Dim(2))
	slots, heads := q.Dim(0), q.Dim(1)
	if need := 8 * slots * heads * kv.Pages.Dim(1); need > workspaceSize {
		o.d.keep(fmt.Errorf("%s: needs %d bytes of workspace, there are %d", op, need, workspaceSize))
		return
	}
	call := func(name string, b blocks, threads, shared int) {
		o.call(name).hash(h, kv.K.Dim(1)).tensor(l.Index).tensor(l.Count).tensor(l.Weight).tensor(q).work(0).
			int(heads, l.Index.Dim(2)).pages(kv, 1).plan(p).runShared(b, threads, shared)
	}
	call("lsh_collisions", blocks{heads, parts(kv), slots}, 256, h.Planes.Dim(0))
	call("lsh_list", blocks{heads, slots, 1}, 512, 0)
}
