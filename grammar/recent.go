package grammar

import "container/list"

// recent keeps the values that were asked for last.
type recent[K comparable, V any] struct {
	max   int
	order list.List // of recentEntry, the newest in front
	at    map[K]*list.Element
}

type recentEntry[K comparable, V any] struct {
	key   K
	value V
}

func newRecent[K comparable, V any](max int) *recent[K, V] {
	return &recent[K, V]{max: max, at: map[K]*list.Element{}}
}

func (r *recent[K, V]) get(key K) (value V, ok bool) {
	e := r.at[key]
	if e == nil {
		return value, false
	}
	r.order.MoveToFront(e)
	return e.Value.(recentEntry[K, V]).value, true
}

// put adds a key that is not there, in the place of the oldest one if there are too many.
func (r *recent[K, V]) put(key K, value V) {
	r.at[key] = r.order.PushFront(recentEntry[K, V]{key, value})
	if r.order.Len() > r.max {
		oldest := r.order.Back()
		delete(r.at, oldest.Value.(recentEntry[K, V]).key)
		r.order.Remove(oldest)
	}
}
