package eval

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"github.com/gollm/gollm/engine"
)

// Audit is an audit and what it was made of.
type Audit struct {
	Model  string `json:"model,omitempty"`
	Device string `json:"device,omitempty"`
	engine.AuditReport
}

//go:embed audit.html
var auditPage string

var auditTemplate = template.Must(template.New("audit").Funcs(template.FuncMap{
	"percent": func(x float64) string { return fmt.Sprintf("%.2f", 100*x) },
	"number":  func(x float64) string { return fmt.Sprintf("%.3g", x) },
	"counted": counted,
}).Parse(auditPage))

// counted is "1 layer", "2 layers".
func counted(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// WriteHTML writes the audit as one page that needs no network: a heat map of
// layers and heads for each figure, and a table.
func (a Audit) WriteHTML(w io.Writer) error {
	if err := auditTemplate.Execute(w, a); err != nil {
		return fmt.Errorf("eval: audit page: %w", err)
	}
	return nil
}
