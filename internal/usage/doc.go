// Package usage is what is said about a command line that makes no sense: what is wrong
// in it, and what was probably meant, also by fingers that know another engine.
//
// Start reading at FlagError.
package usage
