package grammar

import (
	"context"
	"slices"
	"testing"
)

// letters is a vocabulary of bytes and of all texts of three letters.
func letters(t *testing.T) *Vocabulary {
	t.Helper()
	texts := []string{"</s>"}
	for b := range 256 {
		texts = append(texts, string([]byte{byte(b)}))
	}
	for i := range 26 * 26 * 26 {
		texts = append(texts, string([]byte{'a' + byte(i/676), 'a' + byte(i/26%26), 'a' + byte(i%26)}))
	}
	v, err := NewVocabulary(texts, []int32{0})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestSlowMasks has a mask of much work wait for another one while others do not, and given up: what was
// begun of it is not kept.
func TestSlowMasks(t *testing.T) {
	v := letters(t)
	g := mustCompile(t, alike(maxAlike), Options{})
	begin := func(v *Vocabulary) *Matcher {
		m := v.Bind(mustCompile(t, alike(maxAlike), Options{})).Matcher()
		if !m.Accept([]byte(`{"`)) {
			t.Fatal("the schema has no object")
		}
		return m
	}
	want := begin(v).Mask()
	if len(v.slow) != 0 {
		t.Fatal("the turn of slow masks is not given back")
	}
	v.slow <- struct{}{} // another slow mask is made
	if m := v.Bind(g).Matcher(); !slices.Equal(m.Mask(), v.Bind(g).Matcher().Mask()) {
		t.Error("a mask of little work differs")
	}
	slow := begin(v)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := slow.MaskContext(ctx)
		failed <- err
	}()
	other := letters(t)
	for range 3 { // as long as it would take
		begin(other).Mask()
	}
	select {
	case err := <-failed:
		t.Fatalf("a mask of much work does not wait for the other one: %v", err)
	default:
		cancel()
	}
	if err := <-failed; err != context.Canceled {
		t.Fatalf("given up, the mask is %v", err)
	}
	<-v.slow
	if _, err := begin(v).MaskContext(ctx); err != context.Canceled || len(v.slow) != 0 {
		t.Errorf("a mask that nobody wants: %v, %d", err, len(v.slow))
	}
	if !slices.Equal(slow.Mask(), want) {
		t.Error("a mask that was given up is another one afterwards")
	}
}
