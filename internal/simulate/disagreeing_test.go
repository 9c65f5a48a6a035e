package simulate_test

// disagreeing has the scenarios that do not agree, with the reason.
var disagreeing = map[string]string{
	"acl-none-is-nobody": "a queue file without any access list lets everybody submit; config check says so",
}
