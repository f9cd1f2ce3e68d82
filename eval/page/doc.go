// Package page makes one page out of a run: tables that sort, score against
// density, score and speed against length, and needle maps. The page needs no
// network and no other file.
//
// The few types:
//
//   - [Page]: what is on the page, made from a [trial.Summary].
//   - [Plot]: lines or points of several settings, as SVG.
//
// Start reading at page.go, then plot.go, then page.html.
package page
