package config

import (
	"fmt"
	"slices"
)

// FileKind is the kind of a file: job, queue, placement or policy.
type FileKind uint8

// The kinds of file.
const (
	JobFileKind FileKind = iota + 1
	QueueFileKind
	PlacementFileKind
	PolicyFileKind
)

// placementKeys are the fields by which a placement file is recognized.
var placementKeys = []string{
	"chain", "define", "batch", "all", "maxInstances", "capness", "headnodes", "largeServers", "ownerSpread", "sickFor",
	"evictedFor", "strategy", "weights",
	"owners",
}

// Detect recognizes by its keys whether a file is a job file, a queue file, a placement file or a
// policy file. The error is a *Error.
func Detect(name string, data []byte) (FileKind, error) {
	docs, err := parseDocuments(name, data)
	if err != nil {
		return 0, err
	}
	if len(docs) > 0 && policyKind(docs[0]) != nil {
		return PolicyFileKind, nil
	}
	v, err := parseValue(name, data)
	if err != nil {
		return 0, err
	}
	for _, e := range v.entries {
		switch e.name {
		case "partitions":
			return QueueFileKind, nil
		case "job", "groups":
			return JobFileKind, nil
		}
	}
	if slices.ContainsFunc(v.entries, func(e entry) bool { return slices.Contains(placementKeys, e.name) }) {
		return PlacementFileKind, nil
	}
	msg := fmt.Sprintf("is neither a job file, a queue file, a placement file nor a policy file; a job file has job: and groups:, a queue file has "+
		"partitions:, a placement file has chain:, weights: or other settings, a policy file has kind: (this is %s)", v.kindName())
	return 0, newError(name, []Problem{{Line: v.line, Msg: msg}})
}
