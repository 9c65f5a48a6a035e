// Package metricfile reads the file of user-defined metrics that a node's agent is given.
//
//	metrics, err := metricfile.Load("metrics.yaml")
//	loop, err := nodeqos.New(nodeqos.Config{Dir: dir, Metrics: metrics}, deps)
//
// An entry names the source of its number: a command that prints it, or a Prometheus endpoint of
// the node or of each task. It also says which actions lower the metric. Load checks everything
// and starts nothing; qos/nodeqos measures. The output of a command and the answer of an endpoint
// are bounded. Unknown fields are refused, and an error names the file and the line.
//
// Its callers are the flags of the roles and plimsoll policy test.
package metricfile
