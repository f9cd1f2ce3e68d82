package device

import "time"

// Device owns memory and the order of work. The engine holds one; an attention method gets a
// [Queue] and tensors only.
type Device interface {
	// Info describes the device: name, free memory, preferred batch sizes.
	Info() Info
	// Alloc returns zeroed memory, or an error that names the bytes needed and free.
	Alloc(dt DType, dims ...int) (Tensor, error)
	// Load returns a read-only tensor with the given contents. It may alias
	// src, which must stay mapped and unchanged until Close.
	Load(src []byte, dt DType, dims ...int) (Tensor, error)
	// Write queues a copy of src into dst; their sizes are equal. src may be
	// reused once Write returns.
	Write(dst Tensor, src []byte)
	// Read waits for queued work and copies src into dst.
	Read(dst []byte, src Tensor) error
	// Queue executes calls eagerly and in order.
	Queue() Queue
	// Capture records the calls of step without executing them.
	Capture(step func(Queue)) (Graph, error)
	// Scope runs f and collects what Alloc and Load return during it. free releases all of
	// that, as does Close; if f fails it is released at once. No call or graph may use it
	// afterwards.
	Scope(f func() error) (free func() error, err error)
	// Sync waits for queued work and reports the first failure since the last Sync.
	Sync() error
	// Until cancels work once done is closed: calls end early or do nothing, what they would
	// have written is undefined, and Sync may report anything. nil, the default, never
	// cancels. Call it between calls, from the goroutine that queues them.
	Until(done <-chan struct{})
	// NaNScores waits and returns how many NaN scores [Score], [Select], [Sample] and
	// [ReuseSelection] have met since the device was opened. They treat NaN as -Inf; a NaN
	// means that a query or key was broken before.
	NaNScores() (int64, error)
	// Roofline measures the peak rates of the hardware, for benchmarks to compare with.
	Roofline() Roofline
	// Close frees everything that Alloc and Load returned.
	Close() error
}

// Info describes a device and its preferred sizes. 0 is unknown, or no preference.
type Info struct {
	Name string // for example "cpu (2 threads, AVX-512)"
	Free uint64 // bytes that Alloc may still give
	// Products names the implementation of GEMM, for reports.
	Products string
	// ProductRows is the number of rows at which GEMM is saturated; more rows are no faster
	// and need more memory.
	ProductRows int
	// PassRows is the preferred length of a prefill chunk: fast, with activations that are
	// small beside the free memory.
	PassRows int
	// Replays says that launching a graph is cheaper than queueing its calls again, as with CUDA
	// graphs.
	Replays bool
}

// Clock is an optional ability of an asynchronous [Device]: timestamps on the device.
type Clock interface {
	// Between is the time from mark i to mark j, both recorded by [Mark] before the last Sync.
	Between(i, j int) (time.Duration, error)
}

// AsyncReader is an optional ability of an asynchronous [Device]: it copies results to the
// host while later calls run.
type AsyncReader interface {
	// ReadAsync queues a copy of up to [MaxAsyncTensors] tensors, of [MaxAsyncBytes] bytes
	// in all, to the host. At most [MaxPendingReads] are pending at once.
	ReadAsync(src ...Tensor) PendingRead
}

// The limits of [AsyncReader].
const (
	MaxAsyncTensors = 4
	MaxAsyncBytes   = 64
	MaxPendingReads = 4
)

// PendingRead is a copy to the host that was queued.
type PendingRead interface {
	// Wait waits for the copies, and stores them in dst in the order of ReadAsync. Its error
	// is the first failure since the last Sync, possibly of a call queued after the copies;
	// Sync does not report it again. Call it once.
	Wait(dst ...[]byte) error
}

// Roofline is the measured peak rates of a device, per second; 0 is unknown. A multiply-add
// counts as two operations.
type Roofline struct {
	Read  float64 // bytes of device memory
	Int8  float64 // operations of products with quantized weights
	Float float64 // operations of other products
	How   string  // what was measured, for reports
}

// Graph is captured calls, bound to the tensors they were captured with.
type Graph interface {
	Launch()
	Close() error
}
