package main

import (
	"encoding/json"
	"math"
)

// jsonNumber is a float64 that may be infinite or none: JSON has null for those.
type jsonNumber float64

// MarshalJSON writes the number, or null.
func (x jsonNumber) MarshalJSON() ([]byte, error) {
	if v := float64(x); math.IsInf(v, 0) || math.IsNaN(v) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(x))
}

// jsonNumbers are float32s with null for each that is infinite or none.
type jsonNumbers []float32

// MarshalJSON writes the numbers.
func (x jsonNumbers) MarshalJSON() ([]byte, error) {
	list := make([]*float32, len(x))
	for i := range x {
		if v := x[i]; v-v == 0 {
			list[i] = &v
		}
	}
	return json.Marshal(list)
}
