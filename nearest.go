package plimsoll

import (
	"strconv"
	"strings"
)

// maxCompared bounds how many bytes of a name are compared, so that a long one costs little.
const maxCompared = 64

// Nearest returns the most similar name, or an empty string if none is similar. Case is ignored,
// and so is a domain in front of the same name. Two transposed letters count as one difference.
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

// Suggest returns the name that was probably meant or, failing that, all possible ones: `did you
// mean "count"?` or `possible are name, count`.
func Suggest(name string, names []string) string {
	if near := Nearest(name, names); near != "" {
		return "did you mean " + strconv.Quote(near) + "?"
	}
	return "possible are " + strings.Join(names, ", ")
}

// nameDistance returns the number of letters in which two names differ.
func nameDistance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	if withoutDomain(a) == withoutDomain(b) {
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

// withoutDomain returns a name without its domain.
func withoutDomain(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
