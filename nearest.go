package plimsoll

import (
	"strconv"
	"strings"
)

// maxCompared bounds how many bytes of a name are compared, so that a long one costs little.
const maxCompared = 64

// Nearest returns the name that is most like another one; empty if none is like it. Case counts for
// nothing, nor does a domain in front of the same name; two letters that changed places count as
// one difference.
//
//	plimsoll.Nearest("cuont", []string{"name", "count"}) // "count"
func Nearest(name string, names []string) string {
	if len(name) > maxCompared {
		return ""
	}
	best, least := "", max(1, len(name)/3)+1
	for _, other := range names {
		if d := nameDistance(name, other); d < least {
			best, least = other, d
		}
	}
	return best
}

// Suggest says which of the names was probably meant, or else all that are possible:
// `did you mean "count"?` or "possible are name, count".
func Suggest(name string, names []string) string {
	if near := Nearest(name, names); near != "" {
		return "did you mean " + strconv.Quote(near) + "?"
	}
	return "possible are " + strings.Join(names, ", ")
}

// nameDistance is how many letters make the difference between two names.
func nameDistance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	if bare(a) == bare(b) {
		return 0
	}
	beyond, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		beyond, above, row = above, row, beyond
		row[0] = i + 1
		for j := range len(b) {
			change := above[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, row[j]+1, above[j+1]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], beyond[j-1]+1)
			}
		}
	}
	return row[len(b)]
}

// bare is a name without the domain in front of it.
func bare(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
