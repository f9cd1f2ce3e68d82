//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// marginKernels are the kernels of WithinMargin on tensor cores by head dimension.
var marginKernels = map[int]string{64: "within_margin_64", 128: "within_margin_128"}

// withinMargin selects the positions whose score is within a margin of the anchor's, for any
// block of the group.
func (o *ops) withinMargin(c *device.Select) {
	kernel := ""
	if suitsAnchor(c.Rows, c.KV) {
		kernel = marginKernels[c.Q.Dim(2)]
	}
	o.withinMarginBy(kernel, c)
}

// withinMarginBy is withinMargin by a kernel on tensor cores; without a name by the one for any
// shape.
func (o *ops) withinMarginBy(kernel string, c *device.Select) {
	l, heads, pages := &c.List, c.Q.Dim(1), c.KV.Pages.Dim(1)
	if !o.fits("WithinMargin", 16*l.Index.Dim(0)*heads*pages) {
		return
	}
	group := max(l.Group, 1)
	queue := func(name string, x, y, threads int) {
		o.launch(name).tensor(c.Q).tensor(c.Scores).work(0).int(heads, c.Q.Dim(0), c.Block, pages).float(float64(c.Below)).int(c.Twice).
			tensor(l.Index).tensor(l.Count).tensor(l.Weight).int(l.Index.Dim(0), l.Index.Dim(2), group).pages(c.KV, c.Rows).plan(c.Plan).
			run(blocks{tailGroups(c.Rows, group) * x, y, c.KV.Len.Dim(0)}, threads)
	}
	if kernel == "" {
		queue("within_margin", heads, min(pages, 256), 256)
	} else {
		queue(kernel, c.KV.K.Dim(1), min(pages, 64), 128)
	}
	queue("margin_list", heads, 1, 256)
}
