package simulate_test

// disagreeing has the scenarios that do not agree, with the reason.
var disagreeing = map[string]string{
	"acl-none-is-nobody": "a queue file without any access list lets everybody submit; config check says so",
}

// better has the scenarios that have a better outcome than the one observed, and the differences
// that this outcome has from it.
var better = map[string][]string{
	// Nothing that asks for cpu runs where the max has none.
	"max-all-zero": {
		"ja: running: want 2, got 0", "ja: waiting: want 0, got 2", "ja: state: want Running, got Accepted",
	},
	// A leaf that is guaranteed nothing counts as satisfied with its first task.
	"share-guaranteed-zero": {
		"ja: running: want 4, got 1", "ja: waiting: want 6, got 9",
		"jb: running: want 4, got 7", "jb: waiting: want 6, got 3",
	},
}
