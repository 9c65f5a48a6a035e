package plimsoll

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// wordOf returns the word of a value of an enumeration. For an unknown value, which a newer
// version may have written, it returns the number.
func wordOf[T ~uint8](words []string, value T) string {
	if int(value) < len(words) && (value == 0 || words[value] != "") {
		return words[value]
	}
	return unknown(value)
}

func unknown[T ~uint8 | ~uint16](value T) string { return fmt.Sprintf("unknown(%d)", uint16(value)) }

// oneOf lists alternatives: "none, immediate or backoff".
func oneOf(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func indexOf(names []string, s string) int {
	if s == "" {
		return 0
	}
	return max(slices.Index(names, s), 0)
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func madeOf(s, extra string) bool {
	for i := range len(s) {
		if !isAlphanumeric(s[i]) && (i == 0 || strings.IndexByte(extra, s[i]) < 0) {
			return false
		}
	}
	return true
}

// maxShown bounds what an error shows of a text, in bytes.
const maxShown = 80

// Shorten returns what an error shows of a text that a caller gave: the text itself, or its first
// characters and an ellipsis, at most 80 bytes in all.
func Shorten(text string) string {
	const mark = "…"
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown-len(mark)], "") + mark
}

// MaxID is the longest id in bytes.
const MaxID = 128

// ValidateID accepts 1 to MaxID letters, digits and - _ . starting with a letter or digit.
func ValidateID(field, id string) error {
	if id == "" {
		return Invalid(field, "is empty; give a name such as wordcount")
	}
	if len(id) > MaxID || !madeOf(id, "-_.") || strings.HasSuffix(id, ".") || strings.Contains(id, "..") {
		return Invalid(
			field, "%q is not a possible id: use at most 128 letters, digits and - _ . starting with a letter or digit",
			Shorten(id),
		)
	}
	return nil
}

// ValidateToken accepts the token of a command: at most MaxToken bytes; it may be empty.
func ValidateToken(token string) error {
	if len(token) > MaxToken {
		return Invalid("token", "is %d bytes long; at most %d are possible", len(token), MaxToken)
	}
	return nil
}

func validateGroupName(field, name string) error {
	if name == "" || len(name) > 63 || !madeOf(name, "-_") {
		return Invalid(
			field, "%q is not a possible name: use 1 to 63 letters, digits and - _ starting with a letter or digit",
			Shorten(name),
		)
	}
	return nil
}

func validateQueueName(field, name string) error {
	possible := name != "" && len(name) <= 64
	for i := range len(name) {
		possible = possible && (isAlphanumeric(name[i]) || strings.IndexByte("_:#/@-", name[i]) >= 0)
	}
	if !possible {
		return Invalid(
			field, "%q is not a possible queue name: use 1 to 64 letters, digits and _ : # / @ -", Shorten(name),
		)
	}
	return nil
}

// ValidateQueuePath accepts a full path such as root.batch.
func ValidateQueuePath(field, path string) error {
	parts := strings.Split(path, ".")
	if parts[0] != RootQueue {
		return Invalid(field, "%q is not a full queue path; write for example root.batch", Shorten(path))
	}
	if len(parts) > MaxQueueDepth {
		return Invalid(field, "%q is deeper than %d levels", Shorten(path), MaxQueueDepth)
	}
	for _, name := range parts {
		if err := validateQueueName(field, name); err != nil {
			return err
		}
	}
	return nil
}

// SortedPairs returns the entries of m as key and value, in the order of the keys.
func SortedPairs(m map[string]string) [][2]string {
	pairs := make([][2]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, [2]string{key, m[key]})
	}
	return pairs
}
