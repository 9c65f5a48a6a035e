// Package metricfile reads the file of metrics that the node's agent is given.
//
//	metrics, err := metricfile.Load("metrics.yaml")
//	loop, err := nodeqos.New(nodeqos.Config{Dir: dir, Metrics: metrics}, deps)
//
// An entry says where its number comes from: a command that prints it, or a Prometheus endpoint of
// the node or of each task. It also says what can be done about it. Load checks everything and
// starts nothing; qos/nodeqos measures. What a command prints, and what an endpoint answers, is
// bounded. Unknown fields are refused, and an error names the file and the line.
//
// Its callers are the flags of the roles and plimsoll policy test.
package metricfile
