package cpu

import (
	"sync/atomic"
	"testing"
	"time"
)

// counters counts how often each item was done.
type counters struct{ done []atomic.Int32 }

func (t *counters) Do(_, lo, hi int) {
	for i := lo; i < hi; i++ {
		t.done[i].Add(1)
	}
}

func TestPoolDoesEachItemOnce(t *testing.T) {
	for _, workers := range []int{1, 2, 3, 7} {
		pool := NewPool(workers)
		for n := range 70 {
			task := &counters{make([]atomic.Int32, n)}
			pool.Run(n, task)
			pool.RunChunks(n, 3, task)
			for i := range task.done {
				if got := task.done[i].Load(); got != 2 {
					t.Fatalf("%d workers, %d items: item %d done %d times, want 2", workers, n, i, got)
				}
			}
		}
		pool.Close()
	}
}

// closer closes a channel in item 5 and counts the items that are done.
type closer struct {
	done  chan struct{}
	count atomic.Int32
}

func (c *closer) Do(_, lo, hi int) {
	for i := lo; i < hi; i++ {
		c.count.Add(1)
		if i == 5 {
			close(c.done)
		}
	}
}

// TestPoolUntil cancels a run: chunks that no worker has taken yet are left out, and the next
// run is complete again.
func TestPoolUntil(t *testing.T) {
	for _, workers := range []int{1, 2, 5} {
		pool := NewPool(workers)
		task := &closer{done: make(chan struct{})}
		pool.Until(task.done)
		pool.RunChunks(10_000_000, 3, task)
		if got := task.count.Load(); got < 6 || got >= 10_000_000 || workers == 1 && got != 6 {
			t.Errorf("%d workers: %d items were done", workers, got)
		}
		before := task.count.Load()
		pool.RunChunks(100, 3, task)
		pool.RunChunks(2, 3, task)
		if got := task.count.Load(); got != before {
			t.Errorf("%d workers: %d items of later runs were done", workers, got-before)
		}
		pool.Until(nil)
		whole := &counters{make([]atomic.Int32, 100)}
		pool.RunChunks(100, 3, whole)
		for i := range whole.done {
			if whole.done[i].Load() != 1 {
				t.Fatalf("%d workers: item %d is missing in a run without a channel", workers, i)
			}
		}
		pool.Close()
	}
}

// TestPoolAfterPark wakes workers that have parked.
func TestPoolAfterPark(t *testing.T) {
	pool := NewPool(3)
	defer pool.Close()
	for range 20 {
		task := &counters{make([]atomic.Int32, 100)}
		pool.RunChunks(100, 1, task)
		time.Sleep(2 * time.Millisecond)
		for i := range task.done {
			if task.done[i].Load() != 1 {
				t.Fatal("an item was lost after the workers had parked")
			}
		}
	}
}

// alone fails when two calls with one worker number overlap.
type alone struct {
	busy    [4]atomic.Bool
	overlap atomic.Bool
}

func (a *alone) Do(worker, lo, hi int) {
	if a.busy[worker].Swap(true) {
		a.overlap.Store(true)
	}
	time.Sleep(50 * time.Microsecond)
	a.busy[worker].Store(false)
}

func TestPoolWorkerNumbers(t *testing.T) {
	pool := NewPool(4)
	defer pool.Close()
	task := &alone{}
	done := make(chan struct{})
	for range 2 { // two callers at once
		go func() {
			for range 5 {
				pool.RunChunks(40, 1, task)
			}
			done <- struct{}{}
		}()
	}
	<-done
	<-done
	if task.overlap.Load() {
		t.Error("two calls of Do shared a worker number")
	}
}

type failing struct{}

func (failing) Do(_, lo, _ int) {
	if lo == 5 {
		panic("item 5")
	}
}

func TestPoolPanic(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	for range 3 {
		func() {
			defer func() {
				if v := recover(); v != "item 5" {
					t.Fatalf("recovered %v, want the panic of the task", v)
				}
			}()
			pool.RunChunks(10, 1, failing{})
			t.Fatal("Run returned after a panic in its task")
		}()
	}
	task := &counters{make([]atomic.Int32, 10)}
	pool.RunChunks(10, 1, task)
	if task.done[9].Load() != 1 {
		t.Error("the pool does not work after a panic")
	}
}

func TestPoolAllocates(t *testing.T) {
	pool := NewPool(2)
	defer pool.Close()
	task := &counters{make([]atomic.Int32, 64)}
	if n := testing.AllocsPerRun(100, func() { pool.Run(64, task) }); n != 0 {
		t.Errorf("Run allocates %v times, want 0", n)
	}
}

func BenchmarkPool(b *testing.B) {
	pool := NewPool(2)
	defer pool.Close()
	task := &counters{make([]atomic.Int32, 2)}
	for b.Loop() {
		pool.RunChunks(2, 1, task)
	}
}

// TestPoolLateMessageStartsNothing sends the message of a run that is over: signal can be
// preempted between raising the number of the run and sending it, and the worker may wait for
// the next run by then.
func TestPoolLateMessageStartsNothing(t *testing.T) {
	w := &poolWorker{wake: make(chan struct{}, 1)}
	w.wake <- struct{}{} // of a run that is over
	returned := make(chan struct{})
	go func() {
		w.park(1)
		close(returned)
	}()
	select {
	case <-returned:
		t.Fatal("a worker began a run that nobody signalled")
	case <-time.After(50 * time.Millisecond):
	}
	w.run.Add(1)
	if w.parked.CompareAndSwap(true, false) {
		w.wake <- struct{}{}
	}
	select {
	case <-returned:
	case <-time.After(10 * time.Second):
		t.Fatal("a worker slept through its run")
	}
}
