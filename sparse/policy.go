package sparse

import (
	"fmt"
	"strings"

	"github.com/gollm/gollm/device"
)

// Policy is the attention of one engine. The zero Policy is dense.
type Policy struct {
	// Window is the model's own sliding window: a row sees this many positions,
	// its own included; 0 sees all. It bounds every method.
	Window int
}

// Attend computes one layer's attention for the rows of a pass.
// dst, q f32 [rows, heads, dim].
func (c *Policy) Attend(p *Pass, layer int, dst, q device.Tensor) {
	p.Ops.Attend(dst, q, p.KV[layer], c.span(device.Plan{}))
}

// span confines a plan to what the model itself can see.
func (c *Policy) span(plan device.Plan) device.Plan {
	if w := c.Window; w > 0 && (plan.Span.Back == 0 || w < plan.Span.Back) {
		plan.Span.Back = w
	}
	return plan
}

// String is the text that [Parse] reads back.
func (c *Policy) String() string { return "dense" }

// Methods lists the names that [Parse] knows.
func Methods() []string { return []string{"dense"} }

// Parse reads a policy from text, the argument of --attn. An unknown name is an
// error that lists the known ones.
func Parse(spec string) (*Policy, error) {
	if s := strings.TrimSpace(spec); s != "dense" {
		return nil, fmt.Errorf("sparse: unknown attention %q; this build has: %s", spec, strings.Join(Methods(), ", "))
	}
	return &Policy{}, nil
}
