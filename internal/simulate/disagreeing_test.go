package simulate_test

// disagreeing has the scenarios that do not agree yet, with the reason.
var disagreeing = map[string]string{
	"acl-none-is-nobody": "without any access list everybody may submit, as docs/concepts/queues.md says",
	"nodes-binpacking":   "queue files do not state node sorting yet",
	"nodes-fair":         "queue files do not state node sorting yet",
	"nodes-weights":      "queue files do not state node sorting yet",
}
