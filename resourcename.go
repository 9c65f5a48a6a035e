package plimsoll

import (
	"slices"
	"strings"
)

// MaxUnknownNames is the number of resource names in one job that no node and no queue has.
const MaxUnknownNames = 8

// StandardResources are the names of the resources that every node has.
var StandardResources = [...]string{CPU, Memory, Disk}

// StandardResource reports whether every node has the resource, or may lend it at any time.
func StandardResource(name string) bool {
	return slices.Contains(StandardResources[:], name) || Extended(name)
}

// NoResource says that no node has a resource, lists the names that nodes have, and suggests one:
// "no node has nvidia.com/gpus (known: cpu, disk, memory, nvidia.com/gpu; did you mean
// nvidia.com/gpu?)".
func NoResource(name string, known []string) string {
	return noResource(name, KnownResources(name, known))
}

// KnownResources returns the part of NoResource in brackets.
func KnownResources(name string, known []string) string {
	if len(known) == 0 {
		return ""
	}
	names := slices.Compact(slices.Sorted(slices.Values(known)))
	text := "known: " + strings.Join(names, ", ")
	if near := Nearest(name, names); near != "" {
		text += "; did you mean " + near + "?"
	}
	return text
}

func noResource(name, known string) string {
	if Extended(name) {
		return "no node lends " + name + " now"
	}
	text := "no node has " + name
	if known != "" {
		text += " (" + known + ")"
	}
	return text
}
