//go:build race

package main

// raceFactor is how much more memory a process of the race detector may take (its documentation
// says five to ten times).
const raceFactor = 5
