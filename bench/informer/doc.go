// Package informer compares the store of package informer with that of client-go, in one run and
// with the same objects.
//
// It has tests only. It belongs to a module of its own, so that the peer's code never becomes a
// dependency of the program. The figure cpu-ns/op is the processor time of the writer's own thread:
// readers that never pause take the rest of the machine, and ns/op has their share too.
package informer
