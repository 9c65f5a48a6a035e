// Package qos compares the cost of reading and limiting control groups: that of the node's QoS
// agent beside that of peers, in one run and in the same real groups. The benchmarks are
// BenchmarkQoSSweep and BenchmarkQoSQuota. TestSameValues holds the values that peers read against
// ours.
//
// The package has tests only. It belongs to a module of its own, so that the peers' code never
// becomes a dependency of the program; scripts/bench runs it and scripts/targets.awk prints the
// ratios. Where no control groups can be made, it skips and says why.
//
// The figures cpu-ms/op and cpu-us/op are processor time of the whole process, garbage collection
// included, because other programs may use the machine too. Peers do no more than they must: they
// are loaded once, and only for the controllers of cpu and memory.
package qos
