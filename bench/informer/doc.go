// Package informer compares package informer of Plimsoll with client-go, whose design it follows.
// The queue, the store and the whole informer do the same with the same objects in one run.
//
// It has tests only. It belongs to a module of its own, so that the peer's code never becomes a
// dependency of the program. The figures cpu-ns/op and cpu-ns/event are processor time, because
// other programs may use the machine too. That of the store is the time of the writer's own thread:
// readers that never pause take the rest of the machine, and ns/op has their share too.
package informer
