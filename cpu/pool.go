package cpu

import (
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Task is work that consists of items. Callers reuse a Task by pointer, so that a run allocates
// nothing.
type Task interface {
	// Do computes items lo to hi-1. Workers are numbered from 0 to Pool.Workers()-1, and no two
	// calls with the same number run at once, so a Task can keep scratch for each.
	Do(worker, lo, hi int)
}

// spinTime is how long an idle worker spins before it parks. Two products of a decode step are
// a few microseconds apart, and waking a parked worker takes longer than that.
const spinTime = 50 * time.Microsecond

// Pool runs tasks on a fixed number of workers, started once. The goroutine that calls Run is
// worker 0. Runs do not overlap: a second caller waits.
type Pool struct {
	mu      sync.Mutex // held during a Run
	workers []poolWorker

	task     Task
	items    int
	chunk    int
	next     atomic.Int64 // first item that no worker has taken
	pending  atomic.Int32 // workers that have not finished this run
	panicked atomic.Pointer[failure]
	closed   bool
	done     <-chan struct{} // closed: the run is cancelled; may be nil
}

// failure is the value of a panic in a worker, which Run panics with.
type failure struct{ value any }

// poolWorker is what Run and one worker share, padded against false sharing.
type poolWorker struct {
	run    atomic.Uint32 // number of the newest run
	parked atomic.Bool
	wake   chan struct{} // capacity 1
	_      [104]byte
}

// NewPool starts a pool of n workers, the caller of Run included. With n below
// 1 it takes all cores.
func NewPool(n int) *Pool {
	if n < 1 {
		n = runtime.GOMAXPROCS(0)
	}
	p := &Pool{workers: make([]poolWorker, n)}
	for i := 1; i < n; i++ {
		p.workers[i].wake = make(chan struct{}, 1)
		go p.loop(i)
	}
	return p
}

// Workers is the number of workers, the caller of Run included.
func (p *Pool) Workers() int { return len(p.workers) }

// Run computes items 0 to n-1 of t, in chunks that workers take as they become free, and
// returns when all are done. Each worker gets about eight chunks, which balances the load at
// little cost.
func (p *Pool) Run(n int, t Task) {
	p.RunChunks(n, max(1, n/(8*len(p.workers))), t)
}

// RunChunks is Run with chunks of chunk items.
func (p *Pool) RunChunks(n, chunk int, t Task) {
	if n <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		panic("cpu: Pool: Run after Close")
	}
	if n <= chunk || len(p.workers) == 1 {
		p.alone(n, chunk, t)
		return
	}
	p.task, p.items, p.chunk = t, n, chunk
	p.next.Store(0)
	p.signal()
	p.work(0)
	for spins := 1; p.pending.Load() != 0; spins++ {
		pause(spins)
	}
	p.task = nil
	if v := p.panicked.Swap(nil); v != nil {
		panic(v.value)
	}
}

// alone runs on the caller alone, in one piece unless the run can be cancelled.
func (p *Pool) alone(n, chunk int, t Task) {
	if p.done == nil {
		chunk = n
	}
	for lo := 0; lo < n && !p.over(); lo += chunk {
		t.Do(0, lo, min(lo+chunk, n))
	}
}

// Until cancels runs once done is closed: chunks that no worker has taken are left out. Nil
// ends that.
func (p *Pool) Until(done <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = done
}

// over reports whether runs are cancelled.
func (p *Pool) over() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Close ends the workers. The pool cannot be used afterwards.
func (p *Pool) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.closed = true
		p.signal()
	}
}

// signal starts a new run on every other worker.
func (p *Pool) signal() {
	p.pending.Store(int32(len(p.workers) - 1))
	for i := 1; i < len(p.workers); i++ {
		w := &p.workers[i]
		w.run.Add(1)
		if w.parked.CompareAndSwap(true, false) {
			w.wake <- struct{}{}
		}
	}
}

// loop is the goroutine of worker i. A fault on a mapped file that has been truncated since is
// turned into a panic, which goes to the caller of Run like any other.
func (p *Pool) loop(i int) {
	debug.SetPanicOnFault(true)
	w := &p.workers[i]
	for run := uint32(1); ; run++ {
		w.await(run)
		if p.closed {
			return
		}
		p.work(i)
		p.pending.Add(-1)
	}
}

// await returns when run has been signalled: it spins for spinTime, then parks.
func (w *poolWorker) await(run uint32) {
	var start time.Time
	for spins := 1; w.run.Load() != run; spins++ {
		pause(spins)
		if spins%256 != 0 {
			continue
		}
		if start.IsZero() {
			start = time.Now()
		} else if time.Since(start) > spinTime {
			w.park(run)
			return
		}
	}
}

// park blocks until run is signalled. It sets the flag before it looks at the number once more;
// who clears the flag sends, or has to receive, one message. The message may belong to an
// earlier run: signal can be preempted between the number and the flag until the worker, which
// saw the number, has finished that run and parks again. Hence the loop.
func (w *poolWorker) park(run uint32) {
	for w.run.Load() != run {
		w.parked.Store(true)
		if w.run.Load() == run && w.parked.CompareAndSwap(true, false) {
			return
		}
		<-w.wake
	}
}

// pause yields the processor every 64th spin, so that spinning does not starve other goroutines
// when there are more of them than cores.
func pause(spins int) {
	if spins%64 == 0 {
		runtime.Gosched()
	}
}

// work takes chunks until none is left or the run is cancelled. A panic of the task ends the
// work of this worker, and is raised again in the caller of Run.
func (p *Pool) work(worker int) {
	defer func() {
		if v := recover(); v != nil {
			p.panicked.Store(&failure{v})
		}
	}()
	for {
		hi := int(p.next.Add(int64(p.chunk)))
		lo := hi - p.chunk
		if lo >= p.items || p.over() {
			return
		}
		p.task.Do(worker, lo, min(hi, p.items))
	}
}
