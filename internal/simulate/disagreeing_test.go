package simulate_test

// disagreeing has the scenarios that do not agree yet, with the reason.
var disagreeing = map[string]string{
	"place-default-queue":             "queue files do not state placement rules yet",
	"place-user-below-fixed":          "queue files do not state placement rules yet",
	"place-tag":                       "queue files do not state placement rules yet",
	"place-tag-missing-falls-through": "queue files do not state placement rules yet",
	"place-chain":                     "queue files do not state placement rules yet",
	"place-filter-deny":               "queue files do not state placement rules yet",
	"place-filter-group":              "queue files do not state placement rules yet",
	"place-short-name":                "a job names its queue in full",
	"template-maxapps":                "queue files do not state placement rules yet",
	"dynamic-goes-when-empty":         "queue files do not state placement rules yet",
	"acl-group":                       "queue files do not state access lists yet",
	"acl-of-an-ancestor":              "queue files do not state access lists yet",
	"acl-none-is-nobody":              "access lists have no effect yet",
	"acl-next-rule":                   "queue files do not state placement rules yet",
	"nodes-binpacking":                "queue files do not state node sorting yet",
	"nodes-fair":                      "queue files do not state node sorting yet",
	"nodes-weights":                   "queue files do not state node sorting yet",
}
