package kernel

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

// Matrix is a matrix of one element type, row after row as in the model file.
type Matrix struct {
	DType      device.DType
	Rows, Cols int
	Data       []byte // [Rows] rows of DType.RowSize(Cols) bytes
}

// NewMatrix is the view of data as a matrix; data has exactly its size.
func NewMatrix(dt device.DType, rows, cols int, data []byte) Matrix {
	if want := rows * dt.RowSize(cols); len(data) != want {
		panic(fmt.Sprintf("kernel: NewMatrix: %d bytes for %v [%d %d], want %d", len(data), dt, rows, cols, want))
	}
	return Matrix{DType: dt, Rows: rows, Cols: cols, Data: data}
}

// RowSize is the number of bytes of a row.
func (m Matrix) RowSize() int { return m.DType.RowSize(m.Cols) }

// Row is row r, as stored.
func (m Matrix) Row(r int) []byte {
	n := m.RowSize()
	return m.Data[r*n : (r+1)*n]
}

// Floats is a view of float32 rows in memory: row i starts at i*Stride.
type Floats struct {
	Data   []float32 // [rows, Stride]
	Stride int       // elements from one row to the next
}

// Row is the first n elements of row i.
func (f Floats) Row(i, n int) []float32 { return f.Data[i*f.Stride:][:n] }
