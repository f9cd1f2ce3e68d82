package weights

import (
	"fmt"
	"regexp"
	"strconv"
)

// The metadata keys of a split model.
const (
	keySplitNo      = "split.no"            // from 0
	keySplitCount   = "split.count"         // number of parts
	keySplitTensors = "split.tensors.count" // of all parts together
)

// partName matches the path of a part: stem, number from 1, count.
var partName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// partPath is the path of part i, from 0, of n.
func partPath(stem string, i, n int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.gguf", stem, i+1, n)
}

// complete opens the other parts of the model whose one part is open, and
// collects the tensors of all.
func (f *File) complete() error {
	opened := f.parts[0]
	n, err := f.UintOr(keySplitCount, 1)
	if err != nil {
		return err
	}
	stem, i, err := opened.numberIn(n)
	if err != nil {
		return err
	}
	if n > 1 {
		if err := f.openParts(opened, stem, i, n); err != nil {
			return err
		}
	}
	return f.collect()
}

// numberIn says which of n parts this is by its name: the stem of the path and the
// number of the part, from 0.
func (p *part) numberIn(n int) (stem string, i int, err error) {
	m := partName.FindStringSubmatch(p.path)
	named := 1
	if m != nil {
		stem = m[1]
		i, _ = strconv.Atoi(m[2])
		named, _ = strconv.Atoi(m[3])
	}
	switch {
	case n <= 1 && named <= 1:
		return "", 0, nil
	case n <= 1:
		return "", 0, p.errorf("the name says one of %d parts, but key %q does not; rename the file if it is a whole model", named, keySplitCount)
	case m == nil || named != n || i < 1 || i > n:
		return "", 0, p.errorf("key %q says one of %d parts, want a name that ends in -00001-of-%05d.gguf to -%05d-of-%05d.gguf; rename the file", keySplitCount, n, n, n, n)
	}
	return stem, i - 1, nil
}

// openParts opens all n parts, of which part i is open, and checks that they
// belong together.
func (f *File) openParts(opened *part, stem string, i, n int) error {
	var parts []*part
	for k := range n {
		p := opened
		if k != i {
			var err error
			if p, err = openPart(partPath(stem, k, n)); err != nil {
				return fmt.Errorf("%w; all %d parts of %s must be in one folder", err, n, f.path)
			}
			f.parts = append(f.parts, p) // for Close, should a later part fail
		}
		parts = append(parts, p)
		if err := p.belongs(k, n); err != nil {
			return err
		}
	}
	f.parts = parts
	return f.checkTensorCount()
}

// belongs checks that the part says itself that it is part i, from 0, of n.
func (p *part) belongs(i, n int) error {
	alone := &File{path: p.path, parts: []*part{p}}
	no, err := alone.Uint(keySplitNo)
	if err != nil {
		return err
	}
	count, err := alone.Uint(keySplitCount)
	if err != nil {
		return err
	}
	if no != i || count != n {
		return p.errorf("keys %q and %q are %d and %d, want %d and %d as the name says; the parts are mixed up", keySplitNo, keySplitCount, no, count, i, n)
	}
	return nil
}

// checkTensorCount compares the tensors of all parts with the number that the
// first part announces.
func (f *File) checkTensorCount() error {
	found := 0
	for _, p := range f.parts {
		found += p.head.tensors
	}
	want, err := f.UintOr(keySplitTensors, found)
	if err != nil {
		return err
	}
	if want != found {
		return f.parts[0].errorf("the %d parts hold %d tensors, want %d as key %q says; the parts are of different models or incomplete",
			len(f.parts), found, want, keySplitTensors)
	}
	return nil
}
