package sparse

// SketchBasis is the projection of a sketch.
var SketchBasis = sketchBasis
