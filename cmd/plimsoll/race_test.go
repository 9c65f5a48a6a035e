//go:build race

package main

// raceFactor is the additional need for memory of a process with the race detector (its
// documentation says five to ten times).
const raceFactor = 5
