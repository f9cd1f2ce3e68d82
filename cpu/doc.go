// Package cpu is the backend that runs every operation of [device.Queue] on the
// processor, and the definition that other backends are compared with.
//
// The few types: dev owns the memory, the worker threads and the first failure;
// ops runs operations in order, each finished when it returns; recorder keeps
// them for a [device.Graph]. Nothing is exported but [Open], and that is
// registered with package device under the name "cpu".
//
// Attention has two layers. reach (visible.go) says which stored positions a row
// of a plan reads and with what weight; attendRow (attend.go) is the definition,
// a loop over it, and runs where rows do not fill registers. The fast paths
// (decode.go, prefill.go) add up tiles of up to one page (tile.go), or of entries
// of a list of positions, read where they lie (listed.go), with the vector kernels
// of package vec, which are chosen when the device is opened.
//
// Results do not depend on the number of threads. A row of a prefill does not
// depend on the chunk it arrived in: a tile is a page of absolute positions and
// is always added in the same order. A row alone (decode) may differ from the
// same row in a prefill in its last bits.
//
// Device data that breaks the contract (an id outside its table, a page number
// outside the cache) never reads foreign memory: the op skips what it cannot do
// and Sync reports it. Shapes that break it panic, as device/check.go says.
//
// Start reading at cpu.go, then math.go, then visible.go.
package cpu
