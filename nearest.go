package plimsoll

import (
	"strconv"
	"strings"
)

// maxCompared bounds how many bytes of a name are compared, so that a long one costs little.
const maxCompared = 64

// Nearest returns the most similar name, or an empty string if none is similar. Case, hyphens and
// underscores are ignored, and so is a domain in front of the same name. Two transposed letters
// count as one difference.
//
//	plimsoll.Nearest("cuont", []string{"name", "count"}) // "count"
func Nearest(name string, names []string) string {
	if len(name) > maxCompared {
		return ""
	}
	best, least := "", max(1, len(name)/3)+1
	wanted := folded(name)
	for _, other := range names {
		if d, ok := nameDistance(wanted, folded(other)); ok && d < least {
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

// nameDistance returns the number of letters in which two folded names differ. It reports false for
// names that are too long to be compared.
func nameDistance(a, b string) (distance int, ok bool) {
	if max(len(a), len(b)) > maxCompared {
		return 0, false
	}
	if withoutDomain(a) == withoutDomain(b) {
		return 0, true
	}
	var rows [3][maxCompared + 1]int
	beyond, above, row := rows[0][:len(b)+1], rows[1][:len(b)+1], rows[2][:len(b)+1]
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
	return row[len(b)], true
}

// separators occur in some styles of naming: max_runtime, max-runtime.
const separators = "_-"

// folded returns a name in the form in which names are compared.
func folded(name string) string {
	name = strings.ToLower(name)
	if !strings.ContainsAny(name, separators) {
		return name
	}
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(separators, r) {
			return -1
		}
		return r
	}, name)
}

// withoutDomain returns a name without its domain.
func withoutDomain(name string) string { return name[strings.LastIndexByte(name, '/')+1:] }
