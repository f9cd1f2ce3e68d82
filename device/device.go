package device

import "time"

// Device owns memory and the order of work. The engine holds one; a method of
// sparse attention never sees it.
type Device interface {
	// Info says what the device is and prefers, as it is now.
	Info() Info
	// Alloc returns zeroed memory, or an error with the bytes needed and free.
	Alloc(dt DType, dims ...int) (Tensor, error)
	// Load returns a read-only tensor with the given contents. It may alias
	// src, which must stay mapped and unchanged until Close.
	Load(src []byte, dt DType, dims ...int) (Tensor, error)
	// Write queues a copy of src into dst; their sizes are equal. src may be
	// reused once Write returns.
	Write(dst Tensor, src []byte)
	// Read waits for queued work and copies src into dst.
	Read(dst []byte, src Tensor) error
	// Queue takes calls, which are run eagerly and in order.
	Queue() Queue
	// Capture records the calls of step without running them.
	Capture(step func(Queue)) (Graph, error)
	// Scope runs f. What Alloc and Load return meanwhile, free gives back, and
	// Close where free was not called; after an error of f it is given back at
	// once. Nothing may use it, or a graph that does, from then on.
	Scope(f func() error) (free func() error, err error)
	// Sync waits and reports the first failure since the last Sync.
	Sync() error
	// Until makes calls end early, or do nothing, once done is closed: what they
	// would have written is undefined from then on, and a Sync may report
	// anything. nil, as at first, lets all work be done. It is called between
	// calls, by who makes them.
	Until(done <-chan struct{})
	// NaNScores waits and says how many scores that were not numbers the calls have
	// met since the device was opened, where they choose, compare or draw by
	// scores. Such a score counts as -Inf; that there is one means that a query or
	// a key was broken before.
	NaNScores() (int64, error)
	// Peaks measures what the hardware can do at best, which benchmarks are compared
	// with.
	Roofline() Roofline
	// Close frees everything that Alloc and Load returned.
	Close() error
}

// Info is what a device is, and how it is used best. What is 0 is unknown, or no matter.
type Info struct {
	Name string // for example "cpu (2 threads, AVX-512)"
	Free uint64 // bytes that Alloc may still give
	// Products is what multiplies many rows, for people.
	Products string
	// ProductRows is with how many rows at once products are fast. More are no faster and
	// need more memory.
	ProductRows int
	// PassRows is with how many rows of a prompt at once a pass is fast, and what they need
	// is little of the memory that is free.
	PassRows int
	// Replays says that launching captured calls costs less than making them again.
	Replays bool
}

// Clock is an optional ability of a [Device] whose calls return before they are
// done: it tells when they were.
type Clock interface {
	// Between is the time from mark i to mark j, which were set by [Mark] before the
	// last Sync.
	Between(i, j int) (time.Duration, error)
}

// AsyncReader is an optional ability of a [Device] whose calls return before they are
// done: it hands results over while calls after them still run.
type AsyncReader interface {
	// Deliver queues a copy of some tensors to the host: up to [MaxAsyncTensors] of
	// up to [MaxAsyncBytes] in all. [MaxPendingReads] may be on their way at once.
	ReadAsync(src ...Tensor) PendingRead
}

// What a [AsyncReader] takes.
const (
	MaxAsyncTensors = 4
	MaxAsyncBytes   = 64
	MaxPendingReads = 4
)

// PendingRead is copies on their way to the host.
type PendingRead interface {
	// Wait waits for all calls before the copies, and copies out what was asked for,
	// in its order. An error is the first failure since the last Sync, whose calls may be
	// those after the copies; Sync does not report it again. It is called once.
	Wait(dst ...[]byte) error
}

// Peaks is rates per second with all of the device at work; 0 is unknown. A
// multiplication with its addition counts as two operations.
type Roofline struct {
	Read  float64 // bytes to and from memory
	Int8  float64 // operations of products with quantized weights
	Float float64 // operations of other products
	How   string  // what was measured, for people
}

// Graph replays captured calls with the tensors they were captured with.
type Graph interface {
	Launch()
	Close() error
}
