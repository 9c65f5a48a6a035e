package simulate_test

// disagreeing has the scenarios that do not agree yet, with the reason.
var disagreeing = map[string]string{
	"acl-none-is-nobody": "access lists have no effect yet",
	"nodes-binpacking":   "queue files do not state node sorting yet",
	"nodes-fair":         "queue files do not state node sorting yet",
	"nodes-weights":      "queue files do not state node sorting yet",
}
