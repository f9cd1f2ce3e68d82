package kernel

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gollm/gollm/device"
)

// Blocks made by hand, and elements worked out by hand from the layout.
func TestDequantizeHandmade(t *testing.T) {
	const one = 0x3c00 // half-precision 1
	half := func(b []byte, at int, bits uint16) { binary.LittleEndian.PutUint16(b[at:], bits) }
	tests := []struct {
		dt   device.DType
		make func(b []byte)
		want map[int]float32
	}{
		{device.Q4_0, func(b []byte) { half(b, 0, one); b[2] = 0xf1 }, map[int]float32{0: -7, 16: 7}},
		{device.Q4_1, func(b []byte) { half(b, 0, one); half(b, 2, 0x4000); b[4+15] = 0x3e }, map[int]float32{15: 16, 31: 5}},
		{device.Q5_0, func(b []byte) { half(b, 0, one); b[2], b[5], b[6] = 1, 0x80, 2 }, map[int]float32{0: 2, 31: 0}},
		{device.Q5_1, func(b []byte) { half(b, 0, one); half(b, 2, one); b[6], b[8] = 1, 0x70 }, map[int]float32{16: 24}},
		{device.Q8_0, func(b []byte) { half(b, 0, 0xc000); b[2], b[33] = 0x80, 3 }, map[int]float32{0: 256, 31: -6}},
		{device.IQ4_NL, func(b []byte) { half(b, 0, one); b[2] = 0x8f }, map[int]float32{0: 113, 16: 1}},
		{device.Q2_K, func(b []byte) {
			half(b, 80, one)
			half(b, 82, one)
			b[0], b[15] = 0x12, 0xf3 // groups 0 and 15
			b[16], b[16+63] = 0xe1, 0x80
		}, map[int]float32{0: 1, 255: -9}},
		{device.Q3_K, func(b []byte) {
			half(b, 108, one)
			for i := 96; i < 108; i++ {
				b[i] = 0
			}
			b[96], b[104] = 0x21, 0x0e // scales 0, 4, 8: 1|2<<4, 0|3<<4, 2, less 32
			b[0], b[32] = 1, 2
		}, map[int]float32{0: 2, 1: -4, 64: -64, 128: 120}},
		{device.Q4_K, func(b []byte) {
			half(b, 0, one)
			half(b, 2, one)
			b[4], b[8], b[12] = 0x42, 0x83, 0x51 // group 0: 2, 3; group 4: 1|1<<4, 5|2<<4
			b[16], b[16+64] = 0x07, 0x03
		}, map[int]float32{0: 11, 1: -3, 128: 3*17 - 37, 129: -37}},
		{device.Q5_K, func(b []byte) {
			half(b, 0, one)
			b[4], b[7] = 1, 1 // groups 0 and 3
			b[16], b[48], b[48+32+31] = 0x09, 0x21, 0xf0
		}, map[int]float32{0: 17, 96: 16, 127: 15}},
		{device.Q6_K, func(b []byte) {
			half(b, 208, one)
			b[192], b[193+8] = 1, 0xff // groups 0 and 9
			b[0], b[128], b[64+16] = 5, 2, 4
		}, map[int]float32{0: 5, 144: 28}},
		{device.IQ4_XS, func(b []byte) {
			half(b, 0, one)
			for i := range 4 {
				b[4+i] = 0
			}
			half(b, 2, 0xaaaa) // scales 32 - 32
			b[4], b[2] = 0x03, 0xaa
			b[8] = 0x1f
		}, map[int]float32{0: 3 * 113, 16: -312}},
	}
	for _, test := range tests {
		b, y := make([]byte, test.dt.BlockSize()), make([]float32, test.dt.BlockLen())
		test.make(b)
		Dequantize(test.dt, y, b)
		for i, want := range test.want {
			if y[i] != want {
				t.Errorf("%v: element %d is %v, want %v", test.dt, i, y[i], want)
			}
		}
	}
}

// Unpacking, which the products build on, means what Dequantize means.
func TestExpandMeansDequantize(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 0))
	for dt, s := range schemes {
		m := randomMatrix(rng, dt, 1, 256)
		want := make([]float32, 256)
		Dequantize(dt, want, m.Data)
		var b block
		expandSuper(dt, &b, m.Data)
		for k, w := range want {
			got := float64(b.blockD[k/32])*float64(b.w[k]) + float64(b.blockM[k/32])
			if s.group > 0 {
				g := k / s.group
				got = float64(b.d)*float64(b.scale[g])*float64(b.w[k]) - float64(b.dmin)*float64(b.min[g])
			}
			if math.Abs(got-float64(w)) > 1e-6*math.Abs(got)+1e-9 {
				t.Fatalf("%v: element %d unpacks to %v, is %v", dt, k, got, w)
			}
		}
	}
}

// The largest error of each reference quantizer on values of a normal
// distribution, relative to the largest value, is what its steps allow.
func TestQuantizeRoundTrip(t *testing.T) {
	bounds := map[device.DType]float64{
		device.F32: 0, device.F16: 0.0005, device.BF16: 0.004,
		device.Q8_0: 0.0042, device.Q6_K: 0.035, device.Q5_K: 0.04, device.Q5_1: 0.035,
		device.Q5_0: 0.065, device.Q4_K: 0.075, device.Q4_1: 0.07, device.Q4_0: 0.13,
		device.IQ4_NL: 0.13, device.IQ4_XS: 0.14, device.Q3_K: 0.26, device.Q2_K: 0.4,
	}
	rng := rand.New(rand.NewPCG(6, 0))
	x, y := make([]float32, 2048), make([]float32, 2048)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	for _, dt := range types() {
		b := make([]byte, dt.RowSize(len(x)))
		Quantize(dt, b, x)
		Dequantize(dt, y, b)
		n := max(dt.BlockLen(), 32)
		for lo := 0; lo < len(x); lo += n {
			top := math.Abs(float64(extreme(x[lo : lo+n])))
			for i := lo; i < lo+n; i++ {
				if e := math.Abs(float64(x[i]-y[i])) / top; e > bounds[dt] {
					t.Fatalf("%v: element %d is %v, stored as %v: error %.4f of the largest, want at most %v", dt, i, x[i], y[i], e, bounds[dt])
				}
			}
		}
	}
}

// A block of zeros stays zero in every type.
func TestQuantizeZeros(t *testing.T) {
	for _, dt := range types() {
		b, y := make([]byte, dt.RowSize(256)), make([]float32, 256)
		Quantize(dt, b, y)
		y[7] = 1
		Dequantize(dt, y, b)
		for i, v := range y {
			if v != 0 {
				t.Errorf("%v: element %d of zeros is %v", dt, i, v)
				break
			}
		}
	}
}

func TestHalf(t *testing.T) {
	for h := range 1 << 16 {
		f := Float16(uint16(h))
		if f != f {
			continue
		}
		if got := Float16Bits(f); got != uint16(h) {
			t.Fatalf("half %#04x is %v, rounds to %#04x", h, f, got)
		}
		up := math.Nextafter32(f, float32(math.Inf(1)))
		if h&0x7fff < 0x7bff && Float16Bits(up) != uint16(h) && f != 0 {
			t.Fatalf("%v rounds to %#04x, want %#04x", up, Float16Bits(up), h)
		}
	}
	for f, want := range map[float32]uint16{65519: 0x7bff, 65520: 0x7c00, 1 + 0x1p-11: 0x3c00, 1 + 3*0x1p-11: 0x3c02, 0x1p-25: 0, 0x1.8p-25: 1} {
		if got := Float16Bits(f); got != want {
			t.Errorf("%v rounds to %#04x, want %#04x", f, got, want)
		}
	}
	if got := BFloat16Bits(1 + 0x1p-8); got != 0x3f80 {
		t.Errorf("bfloat16 of 1+2^-8 is %#04x, want a tie to even", got)
	}
}
