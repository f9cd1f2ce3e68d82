package console

import (
	"fmt"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// NewTable makes a table without lines, in which the columns of numbers that
// are named stand to the right.
func NewTable(numbers ...string) table.Writer {
	t := table.NewWriter()
	style := table.StyleDefault
	style.Options = table.OptionsNoBordersAndSeparators
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format.Header = text.FormatDefault
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	var columns []table.ColumnConfig
	for _, name := range numbers {
		columns = append(columns, table.ColumnConfig{Name: name, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(columns)
	return lineTable{t}
}

// lineTable is a table of cells that stay on a line, whatever a name in them has.
type lineTable struct{ table.Writer }

// maxCell is the characters of a cell.
const maxCell = 1000

// lineRow is row with its texts on one line each.
func lineRow(row table.Row) table.Row {
	shown := make(table.Row, len(row))
	for i, cell := range row {
		shown[i] = cell
		if text, ok := cell.(string); ok {
			shown[i] = Elide(OneLine(text), maxCell)
		}
	}
	return shown
}

func (t lineTable) AppendHeader(row table.Row, config ...table.RowConfig) {
	t.Writer.AppendHeader(lineRow(row), config...)
}

func (t lineTable) AppendRow(row table.Row, config ...table.RowConfig) {
	t.Writer.AppendRow(lineRow(row), config...)
}

func (t lineTable) AppendRows(rows []table.Row, config ...table.RowConfig) {
	for _, row := range rows {
		t.AppendRow(row, config...)
	}
}

func (t lineTable) SetCaption(format string, args ...any) {
	t.Writer.SetCaption("%s", Elide(OneLine(fmt.Sprintf(format, args...)), maxCell))
}
