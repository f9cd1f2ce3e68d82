// Package kvcache manages the paged KV cache: page tables, reference counts and free
// pages. It stores no keys or values itself; it copies a shared page before it is
// written (copy on write).
//
// The few types:
//
//   - [Config]: the sizes, fixed when the cache is made.
//   - [Cache]: the pages, their reference counts and the page tables.
//   - [Seq]: one sequence in a slot: Extend, Fork, Truncate, Close.
//   - [Block]: pages that outlive their sequence, for a prefix cache.
//
// The rules:
//
//  1. A page holds one layer's K and V for device.PageLen positions. Every
//     (sequence, layer) has its own page table, so sharing a prefix, forking, and
//     a layer that shares the pages of the layer below are all another reference
//     to a page.
//  2. A page with two references is never written: Extend copies it first.
//  3. Calls change host tables only; Flush queues what changed to the device.
//
// Start reading at cache.go, then seq.go.
package kvcache
