// Package nodeqos keeps one node at its waterlines: every second it measures the machine and the control groups of its tasks, asks package qos what
// that calls for, does it, and says what it did.
package nodeqos
