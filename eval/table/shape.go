package table

import (
	"fmt"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// shape is what the rows of a Parquet file are made of, by column. The library trusts a file in
// this: it takes a number for the address of a text where a damaged file says so, which is no panic
// that can be recovered from.
type shape []leaf

// leaf is a column of values.
type leaf struct {
	name  string
	kind  parquet.Kind
	most  int      // definition level of a value that is there
	lists []string // that it is in, the outermost first: one for each repetition level
}

// shapeOf is the shape of a schema.
func shapeOf(s *parquet.Schema) (shape, error) {
	all := make(shape, len(s.Columns()))
	var walk func(n parquet.Node, path []string, most int, lists []string) error
	walk = func(n parquet.Node, path []string, most int, lists []string) error {
		if len(path) > 0 && (n.Optional() || n.Repeated()) {
			most++
		}
		if len(path) > 0 && n.Repeated() {
			lists = append(slices.Clone(lists), fmt.Sprintf("%q", path))
		}
		if n.Leaf() {
			column, ok := s.Lookup(path...)
			if !ok || column.ColumnIndex >= len(all) {
				return fmt.Errorf("the schema has no column %q", path)
			}
			all[column.ColumnIndex] = leaf{fmt.Sprintf("%q", path), n.Type().Kind(), most, lists}
			return nil
		}
		for _, f := range n.Fields() {
			if err := walk(f, append(slices.Clone(path), f.Name()), most, lists); err != nil {
				return err
			}
		}
		return nil
	}
	return all, walk(s, nil, 0, nil)
}

// check reports values of a row that its columns cannot have: of another kind, of levels beyond
// those of the schema, and lists whose columns are not of one length.
func (s shape) check(row parquet.Row) (err error) {
	lengths := map[string]int{}
	row.Range(func(column int, values []parquet.Value) bool {
		if column >= len(s) {
			err = fmt.Errorf("column %d of %d", column, len(s))
			return false
		}
		err = s[column].check(values, lengths)
		return err == nil
	})
	return err
}

// check is shape.check for a column; lengths are those of the lists so far.
func (l *leaf) check(values []parquet.Value, lengths map[string]int) error {
	for i, v := range values {
		there := v.DefinitionLevel() == l.most
		if v.DefinitionLevel() > l.most || v.RepetitionLevel() > len(l.lists) || (v.RepetitionLevel() == 0) != (i == 0) {
			return fmt.Errorf("a value of column %s has levels that its schema has not", l.name)
		}
		if there == v.IsNull() || (there && v.Kind() != l.kind) {
			return fmt.Errorf("a value of column %s is %v, want %v", l.name, v.Kind(), l.kind)
		}
	}
	for level, list := range l.lists {
		n := 0
		for _, v := range values {
			if v.RepetitionLevel() <= level+1 {
				n++
			}
		}
		if m, seen := lengths[list]; seen && m != n {
			return fmt.Errorf("column %s has %d values in list %s, another column %d", l.name, n, list, m)
		}
		lengths[list] = n
	}
	return nil
}
