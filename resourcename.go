package plimsoll

import (
	"slices"
	"strings"
)

// MaxUnknownNames is how many names of resources that no node and no queue has one job may have.
const MaxUnknownNames = 8

// StandardResources are the names of the resources that every node has.
var StandardResources = [...]string{CPU, Memory, Disk}

// StandardResource reports whether every node has a resource of the name, or may lend it at any time.
func StandardResource(name string) bool {
	return slices.Contains(StandardResources[:], name) || Extended(name)
}

// NoResource says that no node has a resource, which names nodes have, and which of those may be
// meant: "no node has nvidia.com/gpus (known: cpu, disk, memory, nvidia.com/gpu; did you mean
// nvidia.com/gpu?)".
func NoResource(name string, known []string) string {
	return noResource(name, KnownResources(name, known))
}

// KnownResources is the part of NoResource in brackets.
func KnownResources(name string, known []string) string {
	if len(known) == 0 {
		return ""
	}
	names := slices.Compact(slices.Sorted(slices.Values(known)))
	text := "known: " + strings.Join(names, ", ")
	if near := nearest(name, names); near != "" {
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

// nearest returns the name that is most like another one; empty if none is like it.
func nearest(name string, names []string) string {
	best, least := "", max(1, len(name)/3)+1
	for _, other := range names {
		if d := nameDistance(name, other); d < least {
			best, least = other, d
		}
	}
	return best
}

// nameDistance is how many letters make the difference between two names. Case counts for nothing,
// nor does a domain in front of the same name.
func nameDistance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	if bare(a) == bare(b) {
		return 0
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := before
			if a[i] != b[j] {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// bare is a name without the domain in front of it.
func bare(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
