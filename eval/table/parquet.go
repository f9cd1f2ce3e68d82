package table

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
)

// Parquet are the rows of a Parquet file of size bytes, which errors call name. The library
// panics on some files that are damaged; that is an error of the file.
func Parquet(name string, file io.ReaderAt, size int64) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		in, form, err := openParquet(file, size)
		if err != nil {
			yield(Row{}, fmt.Errorf("%s is no Parquet file that can be read: %w", name, err))
			return
		}
		defer in.Close()
		var object bytes.Buffer
		for number := 0; ; number++ {
			at := fmt.Sprintf("%s: row %d", name, number)
			row, err := nextRow(in, form)
			if err == io.EOF {
				return
			}
			if err == nil {
				object.Reset()
				err = writeJSON(&object, row)
			}
			if err != nil {
				yield(Row{}, fmt.Errorf("%s: %w", at, err))
				return
			}
			if !yield(Row{object.Bytes(), at}, nil) {
				return
			}
		}
	}
}

// openParquet reads the schema of a file.
func openParquet(file io.ReaderAt, size int64) (in *parquet.GenericReader[any], form shape, err error) {
	defer damaged(&err)
	f, err := parquet.OpenFile(file, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, nil, err
	}
	if form, err = shapeOf(f.Schema()); err != nil {
		return nil, nil, err
	}
	return parquet.NewGenericReader[any](f), form, nil
}

// nextRow reads a row; its error is io.EOF behind the last.
func nextRow(in *parquet.GenericReader[any], form shape) (row any, err error) {
	defer damaged(&err)
	var rows [1]parquet.Row
	n, err := in.ReadRows(rows[:])
	if n == 0 {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if err := form.check(rows[0]); err != nil {
		return nil, fmt.Errorf("the file is damaged: %w", err)
	}
	return row, in.Schema().Reconstruct(&row, rows[0])
}

// damaged makes an error of a panic.
func damaged(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("the file is damaged: %v", v)
	}
}

// writeJSON writes a value of a row. A float has a point, so that it is not taken for an
// integer, as Python writes it.
func writeJSON(b *bytes.Buffer, v any) error {
	switch v := v.(type) {
	case map[string]any:
		b.WriteByte('{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b.WriteByte(',')
			}
			writeText(b, name)
			b.WriteByte(':')
			if err := writeJSON(b, v[name]); err != nil {
				return err
			}
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, x := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := writeJSON(b, x); err != nil {
				return err
			}
		}
		b.WriteByte(']')
	case string:
		return checkText(b, v)
	case []byte:
		return checkText(b, string(v))
	case float32:
		return writeFloat(b, float64(v))
	case float64:
		return writeFloat(b, v)
	default: // numbers, truth and what is not there
		raw, err := json.Marshal(v)
		b.Write(raw)
		return err
	}
	return nil
}

// checkText writes a text that is UTF-8.
func checkText(b *bytes.Buffer, text string) error {
	if !utf8.ValidString(text) {
		return fmt.Errorf("a text is not UTF-8: it begins with %.20q", text)
	}
	writeText(b, text)
	return nil
}

// writeText writes a text as JSON.
func writeText(b *bytes.Buffer, text string) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a text is always JSON
	b.Truncate(b.Len() - 1)
}

// writeFloat writes a number with a point or an exponent.
func writeFloat(b *bytes.Buffer, x float64) error {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return fmt.Errorf("a number is %v, which JSON does not have", x)
	}
	text := strconv.AppendFloat(nil, x, 'g', -1, 64)
	if !bytes.ContainsAny(text, ".e") {
		text = append(text, ".0"...)
	}
	b.Write(text)
	return nil
}
