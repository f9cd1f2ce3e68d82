// Package userfile is the files that a command line names: read up to a bound, written
// whole or not at all, and never over one that is read.
//
// Start reading at Create.
package userfile
