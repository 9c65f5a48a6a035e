// Package qos measures what the node's QoS agent pays for reading and limiting control groups
// beside what peers pay for the same, in one run and in the same real groups: BenchmarkQoSSweep and
// BenchmarkQoSQuota. TestSameValues holds the values that peers read against ours.
//
// It has tests only. It belongs to a module of its own, so that the peers' code never becomes a
// dependency of the program; scripts/bench runs it and scripts/targets.awk prints the ratios. Where
// no control groups can be made, it skips and says why.
//
// What is compared is the work and not the machine, which others may use: cpu-ms/op and cpu-us/op
// are processor time of the whole process, collecting garbage included. Peers are asked for no more
// than they must be: they are loaded once, and only for the controllers of cpu and memory.
package qos
