package console

import (
	"encoding/json"
	"io"
	"math"
	"strings"
)

// Number is a float64 that may be infinite or none: JSON has null for those.
type Number float64

// MarshalJSON writes the number, or null.
func (x Number) MarshalJSON() ([]byte, error) {
	if v := float64(x); math.IsInf(v, 0) || math.IsNaN(v) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(x))
}

// Numbers are float32s with null for each that is infinite or none.
type Numbers []float32

// MarshalJSON writes the numbers.
func (x Numbers) MarshalJSON() ([]byte, error) {
	list := make([]*float32, len(x))
	for i := range x {
		if v := x[i]; v-v == 0 {
			list[i] = &v
		}
	}
	return json.Marshal(list)
}

// WriteJSON writes v on one line, with text as it is but for hidden characters, which
// are escaped.
func WriteJSON(w io.Writer, v any) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, VisibleJSON(b.String()))
	return err
}
