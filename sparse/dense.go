package sparse

// denseEntry is full causal attention, which every method is compared with.
var denseEntry = Entry{
	Doc: Doc{
		Name: "dense", Title: "full causal attention", Source: "Vaswani et al., Attention is all you need, 2017",
		Prefill: true, Decode: true, Granularity: "every position", Reads: "all of K and V",
	},
	defaults: struct{}{},
	build:    func(any, *Env) ([]Method, error) { return nil, nil },
}
