// Package informer compares package informer of this module with client-go, which it takes its
// design from: the same operations on both in the same run, and the time of both side by side.
package informer
