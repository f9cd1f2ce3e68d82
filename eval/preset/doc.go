// Package preset has the protocols of publications as data: what they evaluate,
// where attention is sparse, and what they got.
//
// The few types:
//
//   - [Preset]: a protocol, from presets.json.
//   - [Figure]: a published score, to see whether a template is broken before a
//     sparse method is blamed.
//
// Scores of different presets do not compare, also where model and suite have the
// same names.
//
// Start reading at presets.json.
package preset
