package page

import (
	"fmt"
	"html/template"
	"math"
	"strings"

	"github.com/gollm/gollm/eval/trial"
)

// viridis is colours for each tenth from 0 to 1, dark for little, which also those tell
// apart who see no red or green; the last is that of 1 and more alone, which is all.
var viridis = [...]string{"#440154", "#482475", "#414487", "#355f8d", "#2a788e", "#21918c", "#22a884", "#44bf70", "#7ad151", "#bddf26", "#fde725"}

// colourOf is the number of the colour of a figure.
func colourOf(v float64) int {
	last := len(viridis) - 1
	return int(min(max(v*float64(last), 0), float64(last)))
}

// layerFigures are the maps of what was lost where, of each setting and phase that
// did not read everything.
func layerFigures(s *trial.Summary) []Figure {
	var list []Figure
	for i, set := range s.Settings {
		if set.Maps == nil {
			continue
		}
		for _, phase := range []struct {
			name string
			of   *trial.Map
		}{{"prefill", set.Maps.Prefill}, {"decode steps", set.Maps.Decode}} {
			if m := phase.of; m != nil && least(m.Mass) < 0.9999 {
				file, _, _ := strings.Cut(phase.name, " ")
				list = append(list, Figure{
					File: fmt.Sprintf("layers-%s-%s", trial.SettingName(i, set.Attn), file), Title: set.Attn + ", " + phase.name,
					Text: layerText(m), SVG: layerSVG(m), width: layerWidth, height: layerHeight(m),
				})
			}
		}
	}
	return list
}

// least is the smallest figure of a map, 1 where it has none.
func least(cells [][]*float64) float64 {
	x := 1.0
	eachCell(cells, func(_, _ int, v float64) { x = min(x, v) })
	return x
}

// eachCell calls f for the cells that were measured.
func eachCell(cells [][]*float64, f func(layer, head int, v float64)) {
	for l, row := range cells {
		for h, v := range row {
			if v != nil {
				f(l, h, *v)
			}
		}
	}
}

// layerText says in numbers what a map shows.
func layerText(m *trial.Map) string {
	mean := func(cells [][]*float64) float64 {
		sum, n := 0.0, 0
		eachCell(cells, func(_, _ int, v float64) { sum, n = sum+v, n+1 })
		return sum / float64(max(n, 1))
	}
	lowest, at := 2.0, ""
	eachCell(m.Mass, func(l, h int, v float64) {
		if v < lowest {
			lowest, at = v, fmt.Sprintf("layer %d, head %d", l, h)
		}
	})
	return fmt.Sprintf("retained mass %.1f %%, least %.1f %% in %s; error %.3f; %d rows of a head", 100*mean(m.Mass), 100*lowest, at, mean(m.Error), m.Rows)
}

// The size of a map of layers, in pixels of its own: two panels side by side, each
// with room for the names of the axes, and a scale below.
const (
	layerWidth = 560
	layerPanel = 226
	layerLeft  = 44
	layerTop   = 24
	layerBelow = 60
)

// layerCell is the height of a cell.
func layerCell(m *trial.Map) float64 { return min(18, 300/float64(max(len(m.Mass), 1))) }

func layerHeight(m *trial.Map) int {
	return layerTop + int(math.Ceil(layerCell(m)*float64(len(m.Mass)))) + layerBelow
}

// layerSVG draws mass and error by layer and head.
func layerSVG(m *trial.Map) template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="plot" viewBox="0 0 %d %d" role="img" aria-label="by layer and head">`, layerWidth, layerHeight(m))
	b.WriteString(layerBody(m))
	b.WriteString("</svg>")
	return template.HTML(b.String()) // numbers only
}

func layerBody(m *trial.Map) string {
	var b strings.Builder
	bottom := layerTop + int(math.Ceil(layerCell(m)*float64(len(m.Mass))))
	layerPanelOf(&b, "retained mass", m.Mass, layerLeft, layerCell(m))
	layerPanelOf(&b, "error", m.Error, layerWidth-layerPanel-4, layerCell(m))
	for i, c := range viridis {
		fmt.Fprintf(&b, `<path fill="%s" d="M%d %dh14v10h-14z"/>`, c, layerLeft+20+14*i, bottom+32)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d">0</text><text x="%d" y="%d">1 or more</text>`, layerLeft, bottom+41, layerLeft+26+14*len(viridis), bottom+41)
	return b.String()
}

// layerPanelOf draws one figure of all layers, downwards, and heads. Cells of a
// colour are one path.
func layerPanelOf(b *strings.Builder, name string, cells [][]*float64, left int, high float64) {
	heads := 0
	for _, row := range cells {
		heads = max(heads, len(row))
	}
	wide := float64(layerPanel) / float64(max(heads, 1))
	var paths [len(viridis)]strings.Builder
	eachCell(cells, func(l, h int, v float64) {
		fmt.Fprintf(&paths[colourOf(v)], "M%.4g %.4gh%.4gv%.4gh-%.4gz", float64(left)+wide*float64(h), layerTop+high*float64(l), wide, high, wide)
	})
	for i := range paths {
		if d := paths[i].String(); d != "" {
			fmt.Fprintf(b, `<path class="cells" shape-rendering="crispEdges" fill="%s" d="%s"/>`, viridis[i], d)
		}
	}
	bottom := layerTop + high*float64(len(cells))
	fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`, left, layerTop-8, name)
	fmt.Fprintf(b, `<text x="%d" y="%.4g">head 0 to %d</text>`, left, bottom+16, heads-1)
	for _, l := range []int{0, len(cells) - 1} {
		fmt.Fprintf(b, `<text x="%d" y="%.4g" text-anchor="end">%d</text>`, left-6, layerTop+high*(float64(l)+0.5)+4, l)
	}
}
