// Package agent runs the tasks of one node that the coordinator has assigned to it. Packages dev
// and cmd/plimsoll call it.
//
//	a, err := agent.New(agent.Config{Dir: dir, Gateways: []string{"10.0.0.1:7171"}}, agent.Deps{
//		Executor: supervised, // from agent.NewSupervised
//	})
//	err = a.Run(ctx)
//
// The agent registers the machine and follows the tasks that are bound to it. The node's supervisor
// starts and stops them for the agent, which reports every start and end. The agent also runs the
// node's QoS loop (qos/nodeqos). It gives the loop the live attempts and the policies, evicts tasks
// for it, and sends its reports.
//
// The package owns these files and directories, all below Config.Dir:
//
//	lock                     one agent per directory
//	node.json, node.key      id and incarnation; key of the node
//	reports/                 reports that the coordinator has not acknowledged
//	policies.pb              policies of the node
//	qos/                     the loop's own files
//	tasks/<task>/work        the task's own directory
//	tasks/<task>/<attempt>/  logs and records, made by the supervisor and removed by the agent
//	trash/                   directories to be removed
//
// <task> is the local name of a task: its id, ~ and the uid of its job (see lives.go). So a job
// that uses the id of an earlier one has logs and reports of its own on a node that ran both.
//
// While Run is under way the agent has a few goroutines. One follows the supervisor, one performs
// operations, and one watches the disk. One runs the QoS loop, and one holds a session with a
// gateway (heartbeats, assignments, policies, reports). Two remove old directories, and a server
// answers requests for logs, the loop's status and /metrics.
//
// The agent does not run processes: they are children of the supervisor, and survive the agent and
// the network. It decides neither placement nor the victims over a waterline. It talks to gateways
// only, never to the coordinator itself.
//
// Guarantees:
//   - An attempt is started only while a gateway confirms its assignment, and only once: the
//     attempt's directory prevents a second start. It never starts while an older attempt of the
//     same task, or of an earlier job's task with the same id, runs on this node.
//   - The end of an attempt of an earlier job is not taken for that of the present one. An attempt
//     that an agent without uids has started is adopted, and runs once, if it still runs or its end
//     was not acknowledged.
//   - No task is stopped because the network is away. An attempt is stopped when a complete list of
//     assignments says so. A gateway must therefore put a barrier before the list.
//   - The end of an attempt is on disk before it is sent, and it is sent until it is acknowledged.
//     Each attempt has at most two waiting reports: one about its start, one about its end.
//   - An eviction needs no gateway. Its end is reported like any other, with the reason. The
//     attempt stays assigned until the coordinator has the report, and is not started again
//     meanwhile.
//   - The policies and the worth of each attempt are known after a restart without a network. The
//     worth is unknown after a crash between start and note, or an earlier version's start. Such an
//     attempt is spared: it ranks highest, no policy can act on it, and its control group is left
//     alone until an assignment arrives.
//   - The QoS loop's reports wait in memory: the newest condition, and a bounded number of events.
//     A report is repeated unchanged until it is accepted, so none is accepted twice. A new agent
//     reports its condition anew, and the waiting events of the earlier one are lost.
//   - Every decision follows from the wanted and the present state (reconcile), not from changes.
//     So the next list of assignments or of attempts makes up for any missed message.
//   - When a later start with the node's key has taken over, Run ends with a CodeStale error, and
//     tasks are left alone. An agent with another key ends no other agent: the present one retries
//     registering until it succeeds.
//
// A change costs one comparison of its task, a reconnect a comparison of all assigned tasks. A
// start costs one small file that is not synced. The QoS loop costs 0.2 % of a core for 200 idle
// tasks at a sample a second (measured on 2 shared vCPUs, cgroup v1). Config.Logs bounds the
// directories that are kept, by bytes and age; the cost of an end does not grow with their number.
// At most 64 logs are read at a time, fewer with few descriptors. A follower costs two descriptors,
// and a check each half second while its task writes nothing.
//
// The comparison of wanted and present state is that of Kubernetes' kubelet. The outbox with an
// incarnation and a sequence is from Titus' agent and Nomad's client.
package agent
